#!/bin/sh
# PgBouncer in front of one database, in transaction mode. Variables: UPSTREAM (host:port), DATABASE,
# ROLE, PASSWORD_FILE, POOL_SIZE; PGBOUNCER_FOLDER is where its files are written.
set -eu
folder=${PGBOUNCER_FOLDER:-/run/pgbouncer}
umask 077
printf '"%s" "%s"\n' "$ROLE" "$(cat "$PASSWORD_FILE")" >"$folder/users.txt"
cat >"$folder/pgbouncer.ini" <<INI
[databases]
$DATABASE = host=${UPSTREAM%:*} port=${UPSTREAM##*:} dbname=$DATABASE

[pgbouncer]
listen_addr = ${LISTEN:-*}
listen_port = ${PORT:-6432}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = $folder/users.txt
pool_mode = transaction
default_pool_size = ${POOL_SIZE:-40}
max_client_conn = 1000
log_connections = 0
log_disconnections = 0
INI
exec pgbouncer "$folder/pgbouncer.ini"

#!/bin/sh
# PgBouncer in front of one database, in transaction mode. Variables: UPSTREAM (host:port), DATABASE,
# ROLE, PASSWORD_FILE, POOL_SIZE; PGBOUNCER_FOLDER is where its files are written.
set -eu
folder=${PGBOUNCER_FOLDER:-/run/pgbouncer}
umask 077
printf '"%s" "%s"\n' "$ROLE" "$(cat "$PASSWORD_FILE")" >"$folder/users.txt"
# Since 1.21, PgBouncer renames prepared statements, which halves the server's CPU time. Older versions
# refuse the setting.
minor=$(pgbouncer --version | sed -n 's/^PgBouncer 1\.\([0-9]*\).*/\1/p')
prepared=
[ "${minor:-0}" -lt 21 ] || prepared='max_prepared_statements = 200'
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
$prepared
log_connections = 0
log_disconnections = 0
INI
exec pgbouncer "$folder/pgbouncer.ini"

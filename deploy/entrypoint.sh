#!/bin/sh
# Runs `recollect` with secrets from files: NAME_FILE=/run/secrets/x gives the variable NAME.
set -eu
for name in PGPASSWORD RECOLLECT_SECRET ANTHROPIC_API_KEY OPENAI_API_KEY; do
  eval "file=\${${name}_FILE:-}"
  if [ -n "$file" ]; then
    value=$(cat "$file")
    if [ -z "$value" ]; then
      echo "$name: $file is empty; fill in deploy/.env" >&2
      exit 1
    fi
    export "$name=$value"
    unset "${name}_FILE"
  fi
done
exec recollect "$@"

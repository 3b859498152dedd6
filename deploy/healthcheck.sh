#!/bin/bash
# Exit 0 when the server in this container is ready. Plain bash: the image carries no HTTP client.
exec 3<>"/dev/tcp/127.0.0.1/${ATTND_PORT:-8080}" || exit 1
printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r -t 4 _ status _ <&3
[ "$status" = 200 ]

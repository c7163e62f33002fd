# The server of server.py for machines without Python. usage: sh server.sh MARK
send() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }

while IFS= read -r line; do
  id="$(printf '%s\n' "$line" | sed -n -e 's/.*"id":\(-\{0,1\}[0-9][0-9]*\).*/\1/p' -e 's/.*"id":\("[^"]*"\).*/\1/p')"
  case "$line" in
    *'"initialize"'*)
      send '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"builder","version":"1"}}' ;;
    *'"tools/list"'*)
      send '"result":{"tools":[{"name":"build","description":"Builds the project","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*)
      # A server in the background, in a session of its own, and the compiler.
      setsid sleep "$1" </dev/null >/dev/null &
      sleep "$1" </dev/null >/dev/null & ;;
    *'"ping"'*) send '"result":{}' ;;
    *) [ -z "$id" ] || send '"error":{"code":-32601,"message":"no such method"}' ;;
  esac
done

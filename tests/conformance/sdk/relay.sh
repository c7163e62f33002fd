#!/bin/sh
# A relay between an MCP client and a server that records the traffic.
#
# usage: sh relay.sh FOLDER COMMAND [ARGUMENT]...
#
# Runs the command and leaves in FOLDER: `in`, every byte the client sent; `out`, every byte the
# server sent; `pid`, the server's process id; `exit`, its exit status, once it has ended.
#
# It runs in a session of its own. A client signals a process, or its group, that has not ended two
# seconds after its input; on a busy machine that can meet the relay before the status is written.
if [ "$1" = --apart ]; then
    shift
else
    exec setsid --fork --wait sh "$0" --apart "$@"
fi
folder=$1
shift
mkdir -p "$folder"
tee "$folder/in" | {
    sh -c 'echo $$ >"$0/pid"; exec "$@"' "$folder" "$@"
    echo $? >"$folder/exit.new"
    mv "$folder/exit.new" "$folder/exit"
} | tee "$folder/out"

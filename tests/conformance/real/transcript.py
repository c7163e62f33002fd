"""A client of any revision, without an SDK: it makes requests, and prints every message that it got
as JSON: the answers by their requests, all others sorted."""

import json
import os
import subprocess
import sys
import threading

ABLE = {
    "extensions": {
        "io.modelcontextprotocol/skills": {},
        "io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]},
    },
    "experimental": {"x": {}},
}
INFO = {"name": "transcript", "version": "1", "title": "Transcript"}
META = "io.modelcontextprotocol/"


def hear(server):
    env = {**os.environ, **server["env"]}
    process = subprocess.Popen(
        server["command"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    watch = threading.Timer(100, process.kill)
    watch.start()
    is_modern = server["revision"] == "2026-07-28"
    others = []

    def send(message):
        process.stdin.write((json.dumps({"jsonrpc": "2.0", **message}) + "\n").encode())
        process.stdin.flush()

    def ask(number, method, params):
        if is_modern:
            names = {"protocolVersion": server["revision"], "clientCapabilities": ABLE}
            names["clientInfo"] = INFO
            params = {**params, "_meta": {META + name: value for name, value in names.items()}}
        send({"id": number, "method": method, "params": params})
        while line := process.stdout.readline():
            message = json.loads(line)
            if "method" not in message and message.get("id") == number:
                return message
            others.append(message)
        return "the server is gone"

    if is_modern:
        found = {"hello": ask("hello", "server/discover", {})}
    else:
        hello = {"protocolVersion": server["revision"], "capabilities": ABLE, "clientInfo": INFO}
        found = {"hello": ask("hello", "initialize", hello)}
        send({"method": "notifications/initialized"})
    for number, request in enumerate(server["requests"]):
        label = f"{number} {request['method']}"
        found[label] = ask(number, request["method"], request["params"])
    process.stdin.close()
    others.extend(json.loads(line) for line in process.stdout)
    process.wait()
    watch.cancel()
    # Log lines and changes come at the time of the server.
    found["others"] = sorted({json.dumps(it, sort_keys=True) for it in others})
    return found


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        setup = json.load(file)
    print(json.dumps({server["name"]: hear(server) for server in setup["servers"]}))


main()

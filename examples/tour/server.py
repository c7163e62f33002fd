"""A small MCP server on stdin and stdout, as many are: its tool runs programs and waits for them.

usage: python3 server.py MARK
"""

import json
import subprocess
import sys
import threading

MARK = sys.argv[1]
TOOL = {"name": "build", "description": "Builds the project", "inputSchema": {"type": "object"}}
INFO = {"name": "builder", "version": "1"}


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def build(id):
    # A tool of the project puts a server into the background, in a session of its own.
    subprocess.Popen(["sleep", MARK], start_new_session=True)
    # The compiler.
    subprocess.run(["sleep", MARK])
    send({"id": id, "result": {"content": [{"type": "text", "text": "built"}]}})


for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": INFO,
        }
        send({"id": id, "result": result})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": [TOOL]}})
    elif method == "tools/call":
        threading.Thread(target=build, args=(id,), daemon=True).start()
    elif method == "ping":
        send({"id": id, "result": {}})
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": f"no method {method}"}})

"""An agent of ACP v2: a turn with two terminals, each a process with a child in a session of its own.
It accepts the cancel of a terminal and ignores it."""

import json, subprocess, sys

mark = sys.argv[1]


def send(message):
    print(json.dumps(dict(message, jsonrpc="2.0")), flush=True)


def update(**members):
    send({"method": "session/update", "params": {"sessionId": "s", "update": members}})


for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        send({"id": id, "result": {"protocolVersion": 2, "info": {"name": "a", "version": "1"}, "capabilities": {}}})
    elif method == "session/new":
        send({"id": id, "result": {"sessionId": "s"}})
    elif method == "session/prompt":
        send({"id": id, "result": {"messageId": "m"}})
        update(sessionUpdate="state_update", state="running", background=[])
        for name in "one", "two":
            update(sessionUpdate="terminal_update", terminalId=name, command="sleep", capabilities={"cancel": {}})
            work = f"setsid sh -c 'sleep 1000; :' {mark}-{name} & sh -c 'sleep 1000; :' {mark}-{name}; :"
            subprocess.Popen(["sh", "-c", work, f"{mark}-{name}"])
        update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "begun"})
    elif method == "_x/echo" or method == "terminal/cancel":
        send({"id": id, "result": {}})

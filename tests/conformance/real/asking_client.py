"""A client of any revision, without an SDK: it calls the tools of a server that asks, answers the
questions, and prints what it saw as JSON."""

import json
import os
import subprocess
import sys
import threading

ANSWERS = {
    "elicitation/create": {"action": "accept", "content": {"value": "Ann"}},
    "sampling/createMessage": {
        "role": "assistant",
        "model": "none",
        "content": {"type": "text", "text": "hello"},
    },
    "roots/list": {"roots": [{"uri": "file:///src", "name": "src"}]},
}
ABLE = {"elicitation": {}, "sampling": {}, "roots": {}}
META = "io.modelcontextprotocol/"


class Host:
    """One server and the host in front of it."""

    def __init__(self, command, env, revision):
        self.revision = revision
        self.last = 0
        self.seen = []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **env}
        )
        self.watch = threading.Timer(100, self.process.kill)
        self.watch.start()

    def send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()

    def request(self, method, params):
        self.last += 1
        if self.revision == "2026-07-28":
            names = {"protocolVersion": self.revision, "clientCapabilities": ABLE}
            names["clientInfo"] = {"name": "host", "version": "1"}
            params = {**params, "_meta": {META + name: value for name, value in names.items()}}
        self.send({"id": self.last, "method": method, "params": params})
        while True:
            line = self.process.stdout.readline()
            if not line:
                return {"error": "the server is gone"}
            message = json.loads(line)
            if "method" not in message:
                if message.get("id") == self.last:
                    return message.get("result") or {"error": message["error"]["code"]}
            elif "id" in message:
                self.seen.append(message["method"])
                self.send({"id": message["id"], "result": ANSWERS[message["method"]]})
            elif message["method"] == "notifications/message":
                self.seen.append([message["method"], message["params"].get("data")])

    def greet(self):
        if self.revision == "2026-07-28":
            result = self.request("server/discover", {})
        else:
            params = {"protocolVersion": self.revision, "capabilities": ABLE}
            params["clientInfo"] = {"name": "host", "version": "1"}
            result = self.request("initialize", params)
            self.send({"method": "notifications/initialized"})
        return {name: result.get(name) for name in ("protocolVersion", "capabilities")}

    def call(self, tool):
        self.seen = []
        params = {"name": tool, "arguments": {}}
        result = self.request("tools/call", params)
        # In 2026-07-28 a server asks in its result, and the call is made again with the answers.
        if result.get("resultType") == "input_required":
            asked = {key: request["method"] for key, request in result["inputRequests"].items()}
            self.seen.extend(asked.values())
            answers = {key: ANSWERS[method] for key, method in asked.items()}
            params["inputResponses"] = answers
            if "requestState" in result:
                params["requestState"] = result["requestState"]
            result = self.request("tools/call", params)
        said = result.get("content") or result
        return {"result": said, "is_error": result.get("isError", False), "seen": self.seen}

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.watch.cancel()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        setup = json.load(file)
    found = {}
    for server in setup["servers"]:
        for revision in server["revisions"]:
            host = Host(server["command"], server["env"], revision)
            seen = found.setdefault(server["name"], {}).setdefault(revision, {})
            seen["greeting"] = host.greet()
            for tool in server["tools"]:
                seen[tool] = host.call(tool)
            host.close()
    print(json.dumps(found))


main()

"""An MCP client without a fault, except for those named on its command line.

    client.py [FAULT ...] -- SERVER ...

A process beside it ends the server's tree when the client is killed.
"""
import json, os, signal, subprocess, sys, threading, time

split = sys.argv.index("--")
FAULTS, SERVER = set(sys.argv[1:split]), sys.argv[split + 1 :]
# Ends a process and its children if its client ends without a word.
WATCHER = """
import os, subprocess, sys
if not sys.stdin.readline():
    for pid in subprocess.run(["pgrep", "-P", sys.argv[1]], capture_output=True).stdout.split() + [sys.argv[1]]:
        os.kill(int(pid), 9)
"""
answers, arrived = {}, threading.Condition()


def faulty(name):
    return "client-" + name in FAULTS


class Server:
    def __init__(self):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(SERVER, stdin=pipe, stdout=pipe)
        command = [sys.executable, "-c", WATCHER, str(self.process.pid)]
        self.watcher = None if faulty("killed-tree") else subprocess.Popen(command, stdin=pipe, start_new_session=True)
        threading.Thread(target=self.read, daemon=True).start()

    def write(self, text):
        try:
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass

    def send(self, method, params, id=None):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.write(json.dumps(message if id is None else dict(message, id=id)))

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" in message:
                if message["method"] == "ping" and not faulty("ping"):
                    self.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}))
                continue
            with arrived:
                if message["id"] in given_up and faulty("late-answer"):
                    self.leave(1)
                answers[message["id"]] = message
                arrived.notify_all()

    def answer(self, id, limit):
        with arrived:
            return arrived.wait_for(lambda: id in answers, limit) and answers[id]

    def leave(self, code, keeps_server=False, keeps_children=False):
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True)
        self.process.stdin.close()
        if not keeps_server:
            self.process.kill()
            self.process.wait()
        for pid in found.stdout.split() if not keeps_children else []:
            os.kill(int(pid), signal.SIGKILL)
        if self.watcher:
            self.watcher.communicate(b"bye\n")
        os._exit(code)


given_up = set()


def give_up(server, id, tool, sends, right):
    server.send("tools/call", {"name": tool, "arguments": {}}, id)
    server.answer(id, 0.6)
    given_up.add(id)
    if sends:
        server.send("notifications/cancelled", {"requestId": id if right else str(id), "reason": tool})
    time.sleep(0.3)


def main():
    server = Server()
    if faulty("stdin"):
        server.write("hello")
    if not faulty("handshake"):
        info = {"name": "scripted", "version": "1"}
        server.send("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}, 0)
        if not server.answer(0, 1.5):
            if faulty("initialize-cancel"):
                server.send("notifications/cancelled", {"requestId": 0})
                time.sleep(0.3)
            server.leave(1, faulty("hang-tree"), faulty("hang-tree"))
        server.send("notifications/initialized", {})
    server.send("tools/list", {}, 1)
    server.answer(1, 5)
    give_up(server, 2, "abort", not faulty("abort-cancel"), not faulty("abort-id"))
    give_up(server, 3, "timeout", not faulty("timeout-cancel"), not faulty("timeout-id"))
    server.send("tools/call", {"name": "echo", "arguments": {"text": "x"}}, 4)
    server.answer(4, 5)
    if faulty("cancel-answered"):
        server.send("notifications/cancelled", {"requestId": 4})
        time.sleep(0.3)
    server.leave(0, faulty("close-server"), faulty("close-tree"))


main()

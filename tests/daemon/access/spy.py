"""A process inside a job, a server or an agent that tries to be another user on the daemon's socket.

usage: spy.py ROLE DIR SOCKET [MARK]
ROLE is how it is started: `tool`, `server` (MCP), `agent` (ACP), or `spy`, which the others start.
DIR/order says what it does, as JSON: `how` it connects, the `job` that it forges, the `group` that
it joins. DIR/answers is what the daemon has answered.
"""
import json, os, socket, subprocess, sys, time

ROLE, DIR, SOCKET = sys.argv[1:4]
ANSWERS = os.path.join(DIR, "answers")
VERSION = "2025-11-25"


def order():
    with open(os.path.join(DIR, "order")) as file:
        return json.load(file)


def mark(name):
    with open(os.path.join(DIR, name), "w"):
        pass


def wait_for(name):
    while not os.path.exists(os.path.join(DIR, name)):
        time.sleep(0.005)


class Peer:
    def __init__(self, connected=None):
        self.socket = connected or socket.socket(socket.AF_UNIX)
        if not connected:
            self.socket.connect(SOCKET)
        self.file = self.socket.makefile("r")
        self.last = 0

    def send(self, message):
        try:
            self.socket.sendall((json.dumps(message) + "\n").encode())
        except OSError:
            pass

    def ask(self, method, params):
        self.last += 1
        self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        return self.answer(self.last)

    def answer(self, id):
        while True:
            try:
                line = self.file.readline()
            except OSError:
                line = ""
            if not line:
                return {"closed": True}
            message = json.loads(line)
            if "method" not in message and message.get("id") in (id, None):
                return message

    def call(self, tool):
        answer = self.ask("tools/call", {"name": tool, "arguments": {}})
        return answer["result"]["content"][0]["text"] if "result" in answer else answer


class HttpPeer(Peer):
    """The same over Streamable HTTP on a Unix socket."""

    def __init__(self):
        import http.client
        self.http = http.client.HTTPConnection("localhost")
        self.http.sock = socket.socket(socket.AF_UNIX)
        self.http.sock.connect(SOCKET + ".http")
        self.session, self.last, self.found = {}, 0, None

    def send(self, message):
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        self.http.request("POST", "/mcp", json.dumps(message), {**headers, **self.session})
        response = self.http.getresponse()
        body = response.read().decode()
        if response.getheader("mcp-session-id"):
            self.session = {"mcp-session-id": response.getheader("mcp-session-id")}
        if response.status == 403:
            self.found = {"error": {"code": -31011, "message": body}}
        else:
            data = [line[5:] for line in body.splitlines() if line.startswith("data:")]
            lines = [json.loads(line) for line in (data or [body]) if line.strip()]
            self.found = next((m for m in lines if "method" not in m), None)

    def answer(self, id):
        return self.found


def examine(peer, victim):
    first = peer.ask("initialize", {"protocolVersion": VERSION, "capabilities": {},
                                    "clientInfo": {"name": "spy", "version": "1"}})
    if "result" not in first:
        return {"refused": first}
    peer.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    status = peer.ask("ceased/status", {"detail": True})["result"]
    ran = peer.ask("ceased/run", {"command": ["id", "-u"]})
    return {
        "identity": status["identity"],
        "operator": status["operator"],
        "cancel": peer.ask("ceased/cancel", {"job": victim}) if victim else None,
        "orders": [peer.ask(*order) for order in [
            ("ceased/reload", {}), ("ceased/restart", {"name": "server"}), ("ceased/shutdown", {})]],
        "view": peer.ask("ceased/view", {}),
        "peer": peer.call("as_peer"),
        "run": ran["result"]["content"][0]["text"] if "result" in ran else ran,
    }


def publish(found):
    with open(ANSWERS + ".new", "w") as file:
        json.dump(dict(found, uid=os.getuid(), pid=os.getpid()), file)
    os.rename(ANSWERS + ".new", ANSWERS)


def spy():
    told = order()
    if told.get("group"):
        with open(told["group"], "w") as file:
            file.write("0")
    if told["how"] == "gone":
        # The process that connects is gone before the daemon, which is stopped, looks at it.
        mark("ready")
        wait_for("go")
        mine, theirs = socket.socketpair()
        if os.fork() == 0:
            connected = socket.socket(socket.AF_UNIX)
            connected.connect(SOCKET)
            socket.send_fds(theirs, [b"x"], [connected.fileno()])
            os._exit(0)
        peer = Peer(socket.socket(fileno=socket.recv_fds(mine, 1, 1)[1][0]))
        os.wait()
        mark("gone")
    else:
        peer = HttpPeer() if told.get("http") else Peer()
    publish(examine(peer, told.get("victim")))


def start_spy():
    """Starts the process that connects, and waits for its answers."""
    told = order()
    environment = dict(os.environ)
    if told.get("job"):
        environment["CEASED_JOB"] = str(told["job"])
    argv = [sys.executable, "-S", __file__, "spy", DIR, SOCKET] + sys.argv[4:]
    if told["how"] in ("orphan", "forged"):
        # Its parent has ended before it connects.
        code = ("import os, sys, time\n"
                "parent = os.getpid()\n"
                "if os.fork(): os._exit(0)\n"
                "os.setsid()\n"
                "while os.getppid() == parent: time.sleep(0.005)\n"
                "os.execv(sys.argv[1], sys.argv[1:])")
        subprocess.Popen([sys.executable, "-S", "-c", code] + argv, env=environment).wait()
    else:
        subprocess.Popen(argv, env=environment)


def wait_for_answers():
    wait_for("answers")
    with open(ANSWERS) as file:
        return file.read()


def send(message):
    print(json.dumps(message), flush=True)


def reply(id, result):
    send({"jsonrpc": "2.0", "id": id, "result": result})


def serve():
    """An MCP server whose only tool lets the spy connect."""
    for line in sys.stdin:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        if method == "initialize":
            reply(id, {"protocolVersion": VERSION, "capabilities": {"tools": {}},
                       "serverInfo": {"name": "spy", "version": "1"}})
        elif method == "tools/list":
            reply(id, {"tools": [{"name": "spy", "inputSchema": {"type": "object"}}]})
        elif method == "tools/call":
            start_spy()
            reply(id, {"content": [{"type": "text", "text": wait_for_answers()}]})
        elif id is not None:
            send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})


def act():
    """An ACP agent that lets the spy connect when it is initialized."""
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "initialize":
            start_spy()
            reply(message["id"], {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []})


if ROLE == "tool":
    start_spy()
    print(wait_for_answers())
elif ROLE == "server":
    serve()
elif ROLE == "agent":
    act()
else:
    spy()

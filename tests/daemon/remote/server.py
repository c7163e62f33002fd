# A scripted MCP server over HTTP. Arguments: its era (session, modern, sse), and options. Each request
# is written to standard output as a line of JSON, and so is the end of a stream by its client.
import json, select, socket, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

era, options = sys.argv[1], sys.argv[2:]
lock = threading.Lock()
sessions, cancelled, kept, posts = set(), {}, {}, {}
streams = []
count = [0]
META = "io.modelcontextprotocol/"


def note(**members):
    with lock:
        print(json.dumps(members), flush=True)


def event(id):
    with lock:
        return cancelled.setdefault(id, threading.Event())


def result(id, text):
    content = {"content": [{"type": "text", "text": text}]}
    if era == "modern":
        content["resultType"] = "complete"
    return {"jsonrpc": "2.0", "id": id, "result": content}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    def log_message(self, *_):
        pass

    def plain(self, status, body=None, headers={}):
        data = b"" if body is None else json.dumps(body).encode() if not isinstance(body, bytes) else body
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def begin_events(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send_event(self, message, id=None, kind=None, retry=None):
        text = ""
        if kind:
            text += "event: %s\n" % kind
        if id:
            text += "id: %s\n" % id
        if retry is not None:
            text += "retry: %d\n" % retry
        text += "data: %s\n\n" % (message if isinstance(message, str) else json.dumps(message))
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_events(self):
        self.wfile.write(b"0\r\n\r\n")

    def is_gone(self):
        if select.select([self.connection], [], [], 0)[0]:
            if hasattr(self.connection, "cipher"):
                # The client sends nothing during a call: the end of the connection alone.
                return True
            try:
                return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
            except OSError:
                return True
        return False

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def record(self, body=None):
        headers = {name.lower(): value for name, value in self.headers.items()}
        note(http=self.command, path=self.path, headers=headers, body=body, port=self.client_address[1])

    def do_DELETE(self):
        self.record()
        sessions.discard(self.headers.get("mcp-session-id"))
        self.plain(405 if "stays" in options else 200)

    def do_GET(self):
        self.record()
        last = self.headers.get("last-event-id")
        if era == "sse":
            self.begin_events()
            streams.append(self)
            self.send_event("/post?session=1", kind="endpoint")
            while not self.is_gone():
                time.sleep(0.01)
            return note(closed="listen")
        if last in kept:
            self.begin_events()
            self.send_event(kept.pop(last), id="end")
            return self.end_events()
        if "listens" not in options or era == "modern":
            return self.plain(405)
        self.begin_events()
        streams.append(self)
        while not self.is_gone():
            time.sleep(0.01)
        note(closed="listen")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        message = json.loads(body)
        self.record(message)
        if self.path == "/moved":
            return self.plain(307, headers={"location": "/mcp"})
        if self.path == "/away":
            return self.plain(307, headers={"location": "http://169.254.169.254/mcp"})
        if era == "sse" and not self.path.startswith("/post"):
            return self.plain(405)
        method, id = message.get("method"), message.get("id")
        session = self.headers.get("mcp-session-id")
        if "token" in options and self.headers.get("authorization") != "Bearer secret":
            return self.plain(401, {"error": "invalid_token"})
        if era == "session" and method != "initialize" and session not in sessions:
            if method == "server/discover":
                return self.plain(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Bad Request: no session"}})
            return self.plain(404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}})
        if method == "notifications/cancelled":
            event(message["params"]["requestId"]).set()
        if id is None or method is None:
            return self.plain(202)
        if era == "modern" and method == "initialize":
            return self.plain(400, {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no sessions"}})
        self.answer(method, id, message.get("params", {}))

    def answer(self, method, id, params):
        headers = {}
        tools = ["echo", "stream", "hold", "obey", "late", "resume", "drop", "forget", "say", "unfit"]
        hints = {"drop": {"idempotentHint": True}} if "idempotent" in options else {}
        repeated = {"echo": {"text": {"type": "string", "x-mcp-header": "Text"}, "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}},
                    "unfit": {"list": {"type": "array", "x-mcp-header": "List"}}}
        if method == "initialize":
            count[0] += 1
            session = "session-%d" % count[0]
            if era == "session":
                sessions.add(session)
                headers = {"mcp-session-id": session}
            version = "2024-11-05" if era == "sse" else "2025-06-18"
            done = {"protocolVersion": version, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "remote", "version": "1"}}
        elif method == "server/discover" and era == "modern":
            done = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}
        elif method == "tools/list":
            done = {"tools": [{"name": name, "inputSchema": {"type": "object", "properties": repeated.get(name, {})}, "annotations": hints.get(name, {})} for name in tools]}
            if era == "modern":
                done = {"resultType": "complete", **done}
        elif method == "tools/call":
            return self.call(id, params["name"], params.get("arguments") or {}, params.get("_meta", {}))
        else:
            return self.reply({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no " + method}})
        self.reply({"jsonrpc": "2.0", "id": id, "result": done}, headers)

    def reply(self, message, headers={}):
        if era == "sse":
            self.plain(202)
            return streams[-1].send_event(message)
        self.plain(200, message, headers)

    def call(self, id, tool, arguments, meta):
        if tool == "echo":
            return self.reply(result(id, arguments.get("text", "")))
        if tool == "forget":
            self.reply(result(id, "forgotten"))
            return sessions.clear()
        if tool == "say":
            streams[-1].send_event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            return self.reply(result(id, "said"))
        if tool == "drop":
            posts[tool] = posts.get(tool, 0) + 1
            if posts[tool] > 1 and "idempotent" in options:
                return self.reply(result(id, "second"))
            return self.cut()
        if era == "sse":
            return self.plain(202)
        self.begin_events()
        if tool == "resume":
            kept["e1"] = result(id, "resumed")
            self.send_event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}, id="e1", retry=10)
            return self.cut()
        if tool == "stream":
            token = meta.get("progressToken")
            if token is not None:
                self.send_event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
            self.send_event(result(id, "streamed"))
            return self.end_events()
        while not (event(id).is_set() and tool in ("obey", "late")):
            if self.is_gone():
                return note(closed=id)
            time.sleep(0.005)
        if tool == "late":
            self.send_event(result(id, "late"))
        self.end_events()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class UnixServer(Server):
    address_family = socket.AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", 0

    def get_request(self):
        connection, _ = self.socket.accept()
        return connection, ("unix", connection.fileno())


for option in options:
    if option.startswith("/"):
        server = UnixServer(option, Handler)
        note(listening=0)
        server.serve_forever()
server = Server(("127.0.0.1", 0), Handler)
for option in options:
    if option.startswith("tls:"):
        import ssl
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(option[4:])
        for clients in [it[8:] for it in options if it.startswith("clients:")]:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
note(listening=server.server_address[1])
server.serve_forever()

"""server.py over Streamable HTTP: 2025-11-25 with sessions and 2026-07-28.

    http_server.py PORT|SOCKET DIRECTORY [FAULT ...]

It speaks TLS with the certificate and the key in the file SERVER_CERTIFICATE.
"""
import json, os, queue, select, signal, socket, socketserver, sys, threading, time

place = sys.argv[1]
sys.argv[1:] = sys.argv[2:]
import server
from server import faulty, key

VERSION = "io.modelcontextprotocol/protocolVersion"
streams, sessions, leaked = {}, {}, []
routing = threading.Lock()


def route(message):
    """Puts a message into the stream of its request."""
    progress = message.get("method") == "notifications/progress"
    id = message["params"]["progressToken"] if progress else message.get("id")
    with routing:
        stream = streams.get(key(id))
    if stream is not None:
        stream.put(message)


server.send = route


class Handler(socketserver.StreamRequestHandler):
    """The module "http.server" takes longer to load than all others together."""

    def handle(self):
        self.is_last = False
        while not self.is_last:
            method, *_ = self.rfile.readline(65536).decode().split(" ")
            if not method:
                return
            self.headers = {}
            while line := self.rfile.readline(65536).strip().decode():
                name, _, value = line.partition(":")
                self.headers.setdefault(name.lower(), []).append(value.strip())
            {"GET": self.get, "POST": self.post, "DELETE": self.delete}[method]()

    def header(self, name):
        """The first header with a name."""
        return next(iter(self.headers.get(name, [])), None)

    def respond(self, status, headers):
        lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in headers.items())]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode())

    def plain(self, status, body=None, headers={}):
        text = b"" if body is None else json.dumps(body).encode()
        of_body = {} if body is None else {"Content-Type": "application/json"}
        allow = {"Allow": "POST"} if status == 405 else {}
        self.respond(status, {**of_body, **allow, **headers, "Content-Length": len(text)})
        self.wfile.write(text)

    def fail(self, status, code, message, id=None):
        self.plain(status, {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})

    def refuses(self):
        """Whether the head of a request is refused."""
        lengths = set(self.headers.get("content-length", []))
        if len(lengths) > 1 and not faulty("http-two-lengths"):
            self.is_last = True
            return self.fail(400, -32600, "two lengths") or True
        if self.header("origin") and not faulty("http-origin"):
            return self.fail(403, -32600, "a foreign origin") or True
        return False

    def lacks_session(self):
        session = self.header("mcp-session-id")
        if session is None:
            return self.fail(400, -32600, "no session") or True
        if session not in sessions and not (faulty("http-session-unknown") and session not in ended):
            return self.fail(404, -32600, "no such session") or True
        return False

    def get(self):
        is_fine = faulty("http-get")
        self.plain(200 if is_fine else 405)

    def delete(self):
        if self.refuses() or self.lacks_session():
            return
        session = self.header("mcp-session-id")
        if not faulty("http-session-delete"):
            ended.add(session)
            sessions.pop(session, None)
        if not faulty("http-session-work"):
            with server.lock:
                works = [work for work, _ in server.calls.values()]
                server.calls.clear()
            for work in works:
                work.stop()
        if faulty("http-session-freed"):
            leaked.append(os.open("/dev/null", os.O_RDONLY))
        self.plain(200)

    def post(self):
        body = self.rfile.read(int(self.header("content-length")))
        if self.refuses():
            return
        message = json.loads(body)
        method, id = message.get("method"), message.get("id")
        params = message.get("params") if isinstance(message.get("params"), dict) else {}
        version = self.header("mcp-protocol-version")
        is_modern = VERSION in (params.get("_meta") or {}) or version == "2026-07-28"
        if method == "initialize":
            return self.initialize(id, params)
        if version not in ("2025-11-25", "2026-07-28") and not faulty("http-version"):
            return self.fail(400, -32022, "unknown version", id)
        if is_modern and self.header("mcp-method") != method and not faulty("http-headers"):
            return self.fail(400, -32020, "another Mcp-Method", id)
        if not is_modern and self.lacks_session():
            return
        if "id" not in message:
            if method == "notifications/cancelled" and (not is_modern or faulty("http-posted-cancel")):
                self.cancel(message.get("params"))
            return self.plain(202, {} if faulty("http-notification") else None)
        if is_modern and method == "no/such/method":
            return self.fail(200 if faulty("http-unknown-method") else 404, -32601, "no such method", id)
        self.stream(id, method, params, is_modern)

    def cancel(self, params):
        server.cancel(params)
        id = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(id, (int, str)) and not isinstance(id, bool) and not faulty("http-cancel-end"):
            with routing:
                stream = streams.get(key(id))
            if stream is not None and key(id) in server.cancelled:
                # A wrong answer after the cancel has to come before the end.
                threading.Timer(0.3, stream.put, [None]).start()

    def initialize(self, id, params):
        session = server.new_id()
        sessions[session] = True
        result = {}
        server.answer, real = (lambda _, it: result.update(it)), server.answer
        try:
            with routing:
                server.greet(id, params)
        finally:
            server.answer = real
        self.plain(200, {"jsonrpc": "2.0", "id": id, "result": result}, {"Mcp-Session-Id": session})

    def chunk(self, text):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()

    def stream(self, id, method, params, is_modern):
        """Answers a request as a stream of events."""
        messages = queue.Queue()
        messages.session = self.header("mcp-session-id")
        with routing:
            # Not one of an earlier session, whose closed connection has not been seen yet.
            earlier = streams.get(key(id))
            is_duplicate = earlier is not None and earlier.session == messages.session
            if not is_duplicate:
                streams[key(id)] = messages
        if is_duplicate:
            if faulty("id-duplicate"):
                server.calls.pop(key(id), None)
            return self.fail(400, -32600, "the id is in flight", id)
        server.request(id, method, params)
        self.respond(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        self.is_last = True
        is_gone = False
        while faulty("flood"):
            self.chunk(b"data: " + json.dumps({"jsonrpc": "2.0", "method": "x" * 10000}).encode() + b"\n\n")
        while True:
            try:
                message = messages.get(timeout=0.1)
            except queue.Empty:
                message = {}
            if not is_gone and self.is_closed():
                is_gone = True
                if is_modern or faulty("http-disconnect"):
                    server.cancel({"requestId": id})
                    break
            if message is None:
                break
            if not message:
                if is_gone and key(id) not in server.calls:
                    break
                continue
            if not is_gone:
                try:
                    self.chunk(b"data: " + json.dumps(dict(message, jsonrpc="2.0")).encode() + b"\n\n")
                except OSError:
                    is_gone = True
            if "method" not in message and message.get("id") == id:
                break
        if not is_gone:
            while faulty("http-answer-end") and message is not None and not self.is_closed():
                time.sleep(0.05)
            try:
                self.chunk(b"")
            except OSError:
                pass
        with routing:
            if streams.get(key(id)) is messages:
                del streams[key(id)]

    def is_closed(self):
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))


class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 128
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, *_):
        pass

    def get_request(self):
        connection, address = super().get_request()
        if tls is not None:
            # The handshake takes place in the thread of the connection.
            connection = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address


ended = set()
signal.signal(signal.SIGTERM, signal.SIG_IGN if faulty("sigterm-exit") else lambda *_: server.leave("sigterm"))
server.load()
tls = None
if "SERVER_CERTIFICATE" in os.environ:
    import ssl

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(os.environ["SERVER_CERTIFICATE"])
address = ("127.0.0.1", int(place)) if place.isdigit() else place
if address == place:
    Server.address_family = socket.AF_UNIX
Server(address, Handler).serve_forever()

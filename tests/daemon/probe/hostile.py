"""A subject of probes that breaks the rules of its transport.

    hostile.py FAULT socket PATH
    hostile.py FAULT http PORT
    hostile.py FAULT client -- SERVER ...
"""
import json, os, socket, subprocess, sys, threading, time

FAULT, KIND = sys.argv[1:3]
NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}\n'
WIDE = b"[" + b"0," * 1_500_000 + b"0]"
DEEP = b"[" * 20_000
OBJECTS = b'{"":0}\n' * 8192
PIECE = b"x" * 65536


def forever(send, *pieces):
    while True:
        for piece in pieces:
            send(piece)


def sleep():
    time.sleep(600)


def lines(read, send):
    """The faults of a peer that speaks lines."""
    if FAULT == "flood":
        forever(send, NOTE * 500)
    if FAULT == "line":
        forever(send, PIECE)
    if FAULT == "objects":
        forever(send, OBJECTS)
    if FAULT == "wide":
        send(WIDE + b"\n")
    if FAULT == "deep":
        send(DEEP + b"\n")
    if FAULT == "utf8":
        send(b'{"a":"\xff\xfe\x80"}\n' * 10)
    if FAULT == "closes":
        if KIND != "client":
            read()
        return send(b'{"jsonrpc":"2.0","id":')
    if FAULT == "late":
        return late(read, send)
    sleep()


def late(read, send):
    """A server without a fault up to a call, which floods."""
    rest = b""
    while True:
        piece = read()
        if not piece:
            return None
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            message = json.loads(line)
            method, id = message.get("method"), message.get("id")
            if method == "tools/call":
                forever(send, NOTE * 500)
            if method == "initialize":
                info = {"name": "late", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            else:
                schema = {"type": "object", "properties": {"seconds": {"type": "integer"}}}
                result = {"tools": [{"name": "sleep", "inputSchema": schema}]} if method == "tools/list" else {}
            if id is not None:
                send(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n")


def slow(read, send):
    """Asks without an end, and reads each answer slowly."""

    def ask():
        for number in range(10**9):
            ids = range(number * 50, number * 50 + 50)
            send(b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"m"}\n' % id for id in ids))

    threading.Thread(target=ask, daemon=True).start()
    while read(2048):
        time.sleep(0.01)


def answers(read, send):
    """The faults of an HTTP server."""
    head = b"HTTP/1.1 200 OK\r\n"
    if FAULT != "deaf":
        read()
    if FAULT == "head":
        forever(send, *[head], *[b"x-%d: y\r\n" % number for number in range(100_000)])
    if FAULT == "interim":
        forever(send, (b"HTTP/1.1 100 Continue\r\nx: " + b"y" * 200 + b"\r\n\r\n") * 1000)
    if FAULT == "body":
        send(head + b"content-type: application/json\r\n\r\n")
        forever(send, PIECE)
    if FAULT == "comments":
        send(head + b"content-type: text/event-stream\r\n\r\n")
        forever(send, (b": " + b"x" * 200 + b"\n\n") * 1000)
    if FAULT == "event":
        send(head + b"content-type: text/event-stream\r\n\r\n")
        forever(send, b"data: " + PIECE + b"\n")
    if FAULT == "chunk":
        send(head + b"transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n")
        forever(send, PIECE)
    if FAULT == "chunks":
        send(head + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        forever(send, (b"20\r\n" + b"x" * 32 + b"\r\n") * 1000)
    if FAULT == "closes":
        return send(head + b"content-length: 100\r\n\r\n{")
    bodies = {"wide": WIDE, "deep": DEEP, "utf8": b'{"a":"\xff\xfe"}', "batch": b'[1,"x",null,[],true]', "empty": b"{}"}
    if FAULT in bodies:
        body = bodies[FAULT]
        return send(head + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    sleep()


def serve():
    is_http = KIND == "http"
    server = socket.socket(socket.AF_INET if is_http else socket.AF_UNIX)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if FAULT == "full":
        # It is full before a client finds it.
        server.bind(sys.argv[3] + ".filling")
        server.listen(0)
        filled = [socket.socket(server.family) for _ in range(8)]
        for one in filled:
            one.setblocking(False)
            one.connect_ex(sys.argv[3] + ".filling")
        os.rename(sys.argv[3] + ".filling", sys.argv[3])
        sleep()
    server.bind(("127.0.0.1", int(sys.argv[3])) if is_http else sys.argv[3])
    server.listen(64)

    def meet(stream):
        try:
            read = lambda size=65536: stream.recv(size)
            (answers if is_http else slow if FAULT == "slow" else lines)(read, stream.sendall)
        except OSError:
            pass
        stream.close()

    while True:
        threading.Thread(target=meet, args=(server.accept()[0],), daemon=True).start()


def client():
    words = sys.argv[sys.argv.index("--") + 1 :]
    out = sys.stdout.buffer
    if FAULT == "crowd":
        kept = []
        while True:
            kept.append(socket.socket(socket.AF_UNIX))
            kept[-1].connect(words[-1])
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if FAULT in ("stdout", "stdout-slowly"):
        while True:
            out.write(NOTE * (1 if FAULT == "stdout-slowly" else 500))
            out.flush()
            time.sleep(0.001 if FAULT == "stdout-slowly" else 0)

    def send(piece):
        server.stdin.write(piece)
        server.stdin.flush()

    if FAULT in ("calls", "deaf", "slowly"):
        padding = "x" * (100_000 if FAULT == "deaf" else 10)
        for id in range(10**9):
            params = {"name": "abort", "arguments": {}, "_meta": {"progressToken": padding}}
            send(json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode() + b"\n")
            cancel = {"requestId": id}
            send(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel}).encode() + b"\n")
            time.sleep(0.002 if FAULT == "slowly" else 0)
    lines(lambda: server.stdout.readline(), send)
    os._exit(3)


if KIND == "client":
    try:
        client()
    except BrokenPipeError:
        sleep()
else:
    serve()

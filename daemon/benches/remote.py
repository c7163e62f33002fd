"""Servers by URL: a small call over loopback HTTP beside one over stdio, memory of idle sessions, and
calls of a server beside slow and dead ones.

    python3 -S daemon/benches/remote.py target/release/ceased

The servers answer by the text of a request, without a parser: the least that one can cost. Calls over
HTTP and over stdio alternate in rounds, so that other load affects both. Give it priority on a machine
that does other work, with `chrt -f 3`.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

# More stuck calls than the places of a server, so that some of them wait.
CALLS, ROUNDS, SESSIONS, STUCK = 500, 8, 1000, 200
ID, METHOD = re.compile(rb'"id":([^,}]+)'), re.compile(rb'"method":"([^"]*)"')
BEGUN = b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"b","version":"1"}}'
TOOLS = b'{"tools":[{"name":"small","inputSchema":{"type":"object"}}]}'
DONE = b'{"content":[{"type":"text","text":"done"}],"isError":false}'


def answer(text):
    """The answer to a message; None for a notification."""
    method = METHOD.search(text).group(1)
    result = {b"initialize": BEGUN, b"tools/list": TOOLS, b"tools/call": DONE}.get(method, b"{}")
    id = None if method.startswith(b"notifications/") else ID.search(text)
    return id and b'{"jsonrpc":"2.0","id":' + id.group(1) + b',"result":' + result + b"}"


def serve_stdio():
    for line in sys.stdin.buffer:
        told = answer(line)
        if told:
            sys.stdout.buffer.write(told + b"\n")
            sys.stdout.buffer.flush()


def exchange(connection, is_stuck):
    held = b""
    while True:
        head, found, rest = held.partition(b"\r\n\r\n")
        length = int((re.search(rb"content-length: (\d+)", head) or [0, 0])[1]) if found else 0
        if not found or len(rest) < length:
            piece = connection.recv(65536)
            if not piece:
                return
            held += piece
            continue
        body, held = rest[:length], rest[length:]
        if is_stuck and b"tools/call" in body:
            continue
        told = answer(body) if head.startswith(b"POST") else None
        status = b"200 OK" if told else b"202 Accepted" if head.startswith(b"POST") else b"405 No"
        more = b"mcp-session-id: s%d\r\n" % id(connection) if b'"initialize"' in body else b""
        told = told or b""
        lines = b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\n" + more
        connection.sendall(lines + b"content-length: %d\r\n\r\n" % len(told) + told)


def serve_http(is_stuck=False):
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)

    def accept():
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=exchange, args=(connection, is_stuck), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    time.sleep(3600)


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.lines, self.next = self.socket.makefile("rb"), 0
        client = {"name": "b", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self.socket.sendall(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def send(self, method, params):
        self.next += 1
        message = {"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def ask(self, method, params):
        self.send(method, params)
        mark = b'"id":%d,' % self.next
        while True:
            line = self.lines.readline()
            if mark in line:
                return line

    def call(self, tool):
        start = time.perf_counter()
        told = self.ask("tools/call", {"name": tool, "arguments": {}})
        assert b"done" in told, told
        return time.perf_counter() - start


def quantile(times, part):
    return sorted(times)[int(len(times) * part)] * 1e6


def start(binary, folder, servers):
    path = f"{folder}/s.sock"
    with open(f"{folder}/config.toml", "w") as file:
        file.write(f'[daemon]\nstate_dir = "{folder}/state"\n[[listen]]\ntransport = "unix"\npath = "{path}"\n')
        file.write("[limits]\nconnections = 4000\nconnections_per_identity = 4000\n" + servers)
    os.chmod(folder, 0o700)
    daemon = subprocess.Popen([binary, "serve", "--config", f"{folder}/config.toml"], stderr=open(f"{folder}/log", "w"))
    while True:
        try:
            return daemon, path, Client(path)
        except OSError:
            assert daemon.poll() is None, open(f"{folder}/log").read()
            time.sleep(0.05)


def entry(name, more):
    return f'[[server]]\nname = "{name}"\nprefix = "{name}_"\n{more}\n'


def memory(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss_Anon"))


def main():
    binary = sys.argv[1]
    http = [subprocess.Popen([sys.executable, "-S", __file__, *it], stdout=subprocess.PIPE) for it in (["http"], ["stuck"])]
    far, stuck = [int(it.stdout.readline()) for it in http]
    folders = [tempfile.mkdtemp() for _ in range(2)]
    url = lambda port: f'url = "http://127.0.0.1:{port}/mcp"'
    servers = entry("near", f"command = {json.dumps([sys.executable, '-S', os.path.abspath(__file__), 'stdio'])}")
    servers += entry("far", url(far)) + entry("stuck", url(stuck) + "\nmax_calls = 32") + entry("dead", url(1))
    daemon, path, client = start(binary, folders[0], servers)
    children = http + [daemon]
    try:
        for name in ("near_small", "far_small"):
            while b"done" not in client.ask("tools/call", {"name": name, "arguments": {}}):
                time.sleep(0.1)
        times = {"near": [], "far": []}
        for _ in range(ROUNDS):
            for name in times:
                times[name] += [client.call(f"{name}_small") for _ in range(CALLS)]
        near, distant = quantile(times["near"], 0.5), quantile(times["far"], 0.5)
        print(f"small call: p50 {near:.0f} us over stdio, {distant:.0f} us over HTTP, ratio {distant / near:.2f}")
        before = {name: quantile(times[name], 0.99) for name in times}
        other = Client(path)
        for number in range(STUCK):
            other.send("tools/call", {"name": "stuck_small", "arguments": {}})
        done = threading.Event()

        def knock():
            third = Client(path)
            while not done.is_set():
                third.ask("tools/call", {"name": "dead_small", "arguments": {}})

        thread = threading.Thread(target=knock, daemon=True)
        thread.start()
        beside = {name: [client.call(f"{name}_small") for _ in range(CALLS * 4)] for name in times}
        done.set()
        for name in times:
            after = quantile(beside[name], 0.99)
            print(f"{name}: p99 {before[name]:.0f} us alone, {after:.0f} us beside {STUCK} calls without an answer and a dead server")
        daemon, path, client = start(binary, folders[1], entry("far", url(far) + '\nshare = "connection"\nidle_exit = "1h"'))
        children.append(daemon)
        clients = [Client(path) for _ in range(SESSIONS)]
        for one in clients:
            one.ask("tools/list", {})
        time.sleep(5)
        idle = memory(daemon.pid)
        for one in clients:
            one.call("far_small")
        time.sleep(6)
        used = memory(daemon.pid)
        print(f"{SESSIONS} idle sessions of servers by URL: {(used - idle) / SESSIONS:.2f} KiB each")
    finally:
        for child in children:
            child.kill()


match sys.argv[1]:
    case "stdio":
        serve_stdio()
    case "http":
        serve_http()
    case "stuck":
        serve_http(True)
    case _:
        main()

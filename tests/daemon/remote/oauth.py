# An MCP server over HTTP that wants tokens, and its authorization server, on one port. Options: expires:SECONDS,
# denies, wrong-issuer, no-registration. Each request is written to standard output as a line of JSON.
# POST /control changes it: {"expire": true} ends all access tokens, {"end": true} all refresh tokens.
import base64, hashlib, json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit

options = sys.argv[1:]
lifetime = next((int(it[8:]) for it in options if it.startswith("expires:")), 3600)
lock = threading.Lock()
codes, access, refresh, clients = {}, {}, {}, {"program": "secret"}
count = [0]


print_lock = threading.Lock()


def note(**members):
    with print_lock:
        print(json.dumps(members), flush=True)


def number():
    count[0] += 1
    return count[0]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def base(self):
        return "http://127.0.0.1:%d" % self.server.server_address[1]

    def answer(self, status, body=None, headers={}):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        note(http="GET", path=url.path, query=query)
        base = self.base()
        if url.path == "/.well-known/oauth-protected-resource/mcp":
            return self.answer(200, {"resource": base + "/mcp", "authorization_servers": [base + "/tenant"], "scopes_supported": ["use"]})
        if url.path == "/.well-known/oauth-authorization-server/tenant":
            found = {"issuer": base + "/tenant", "authorization_endpoint": base + "/authorize", "token_endpoint": base + "/token",
                     "revocation_endpoint": base + "/revoke", "code_challenge_methods_supported": ["S256"],
                     "authorization_response_iss_parameter_supported": True}
            if "no-registration" not in options:
                found["registration_endpoint"] = base + "/register"
            return self.answer(200, found)
        if url.path == "/authorize":
            code = "code-%d" % number()
            codes[code] = query
            back = {"state": query["state"], "iss": base + ("/other" if "wrong-issuer" in options else "/tenant")}
            back.update({"error": "access_denied", "error_description": "no"} if "denies" in options else {"code": code})
            return self.answer(302, headers={"location": query["redirect_uri"] + "?" + urlencode(back)})
        self.answer(404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        form = dict(parse_qsl(body))
        if self.path == "/mcp":
            return self.mcp(json.loads(body))
        headers = {name.lower(): value for name, value in self.headers.items()}
        note(http="POST", path=self.path, form=form, headers=headers)
        with lock:
            if self.path == "/control":
                order = json.loads(body)
                if order.get("expire"):
                    access.clear()
                if order.get("end"):
                    refresh.clear()
                return self.answer(200)
            if self.path == "/register":
                client = "client-%d" % number()
                clients[client] = None
                return self.answer(201, {"client_id": client})
            if self.path == "/revoke":
                refresh.pop(form["token"], None)
                return self.answer(200)
            if self.path == "/token":
                return self.token(form)
        self.answer(404)

    def token(self, form):
        refused = lambda why: self.answer(400, {"error": why, "error_description": "as the test wants it"})
        if form.get("resource") != self.base() + "/mcp":
            return refused("invalid_target")
        if form["grant_type"] == "client_credentials":
            told = base64.b64decode(self.headers.get("authorization", "Basic ").split()[1]).decode()
            if told != "program:secret":
                return refused("invalid_client")
            return self.grant("program", False)
        if form["grant_type"] == "refresh_token":
            who = refresh.pop(form["refresh_token"], None)
            return self.grant(who) if who else refused("invalid_grant")
        asked = codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        good = asked and asked["code_challenge"] == challenge and asked["client_id"] == form["client_id"]
        if not good or asked["redirect_uri"] != form["redirect_uri"] or asked["resource"] != form["resource"]:
            return refused("invalid_grant")
        self.grant("person-%d" % number())

    def grant(self, who, renewable=True):
        n = number()
        access["access-%d" % n] = who
        granted = {"access_token": "access-%d" % n, "token_type": "Bearer", "expires_in": lifetime, "scope": "use"}
        if renewable:
            refresh["refresh-%d" % n] = who
            granted["refresh_token"] = "refresh-%d" % n
        self.answer(200, granted)

    def mcp(self, message):
        method, id = message.get("method"), message.get("id")
        told = self.headers.get("authorization", "")
        who = access.get(told.removeprefix("Bearer "))
        note(http="POST", path="/mcp", method=method, token=told, good=who is not None)
        if who is None:
            place = self.base() + "/.well-known/oauth-protected-resource/mcp"
            return self.answer(401, {"error": "invalid_token"}, {"www-authenticate": 'Bearer resource_metadata="%s", scope="use"' % place})
        if id is None:
            return self.answer(202)
        results = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "guarded", "version": "1"}},
            "tools/list": {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": who}]},
        }
        if method not in results:
            return self.answer(200, {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no " + method}})
        self.answer(200, {"jsonrpc": "2.0", "id": id, "result": results[method]})

    def do_DELETE(self):
        self.answer(200)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


server = Server(("127.0.0.1", 0), Handler)
note(listening=server.server_address[1])
server.serve_forever()

"""An ACP agent without a fault, except for those named on its command line. It speaks versions 1 and 2.

A turn starts a process and streams words for a minute; a prompt that begins with `ask` asks for
permission first. In version 2 it has a tool call and a terminal that can be cancelled; a prompt that
begins with `background` leaves a process in the background.
"""
import json, os, select, signal, subprocess, sys, threading, time

FAULTS = set(sys.argv[1:])
lock = threading.RLock()
version, sessions, turns, live, questions = 1, 0, {}, {}, {}
answered, over, doubled, pending, latched = [], set(), set(), {}, False
piece_count = 0
# Tool calls and terminals that can be cancelled; processes in the background, by session.
offered, background = {}, {}


def faulty(name):
    return "agent-" + name in FAULTS


def leave(cause):
    if not faulty(cause + "-tree"):
        for turn in list(live.values()):
            turn.end_child()
        for work in background.values():
            work.kill()
    os._exit(0)


def send(message):
    with lock:
        try:
            sys.stdout.write(json.dumps(dict(message, jsonrpc="2.0")) + "\n")
            sys.stdout.flush()
        except OSError:
            if not faulty("killed-exit"):
                leave("killed")


def answer(id, result):
    send({"id": id, "result": result})


def refuse(id, code, message):
    send({"id": id, "error": {"code": code, "message": message}})


def update(session, update):
    send({"method": "session/update", "params": {"sessionId": session, "update": update}})


def state(session, state, **more):
    # A piece has members that change.
    listed = [{"type": "terminal", "terminalId": f"b{session}", "_meta": {"at": time.monotonic()}}] if session in background else []
    update(session, dict({"sessionUpdate": "state_update", "state": state, "background": listed}, **more))


def offer(session, number):
    for kind, member in ("tool_call", "toolCallId"), ("terminal", "terminalId"):
        offered[kind, f"{kind}-{number}"] = session
        told = {"sessionUpdate": f"{kind}_update", member: f"{kind}-{number}", "capabilities": {"cancel": {}}}
        update(session, told)


def cancel_piece(id, kind, member, params):
    piece = (kind, params[member])
    if piece not in offered and not faulty("v2-cancel-no-piece"):
        return refuse(id, -32602, "nothing of this id runs")
    if kind == "terminal" and faulty("v2-terminal-cancel"):
        return refuse(id, -32603, "not now")
    answer(id, {})
    if kind == "tool_call" and faulty("v2-tool-call-cancel"):
        return
    end = {"status": "cancelled"} if kind == "tool_call" else {"exitStatus": {"signal": "SIGTERM"}}
    update(params["sessionId"], dict({"sessionUpdate": f"{kind}_update", member: params[member]}, **end))
    offered.pop(piece, None)


def close_session(id, params):
    work = background.pop(params["sessionId"], None)
    if work and not faulty("v2-background-closed"):
        work.kill()
        work.wait()
    answer(id, {})


class Turn:
    def __init__(self, session, id, prompt):
        self.session, self.id, self.prompt = session, id, prompt
        self.stopped, self.reason, self.error = threading.Event(), "cancelled", None
        self.how, self.piece = set(), piece_count
        self.child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        live[id_of(id)] = self
        threading.Thread(target=self.run, daemon=True).start()

    def end_child(self):
        self.child.kill()
        self.child.wait()

    def say(self):
        content = {"type": "text", "text": "word "}
        update(self.session, {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": content})

    def run(self):
        if version == 2:
            answer(self.id, {"messageId": "m1"})
            state(self.session, "running")
            offer(self.session, id_of(self.id))
            if self.prompt.startswith("background"):
                background[self.session] = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
                return self.finish("end_turn")
        if self.prompt.startswith("ask"):
            question = f"question-{id_of(self.id)}"
            questions[question] = threading.Event()
            tool = {"toolCallId": "t", "title": "work"}
            options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
            params = {"sessionId": self.session, "toolCall": tool, "options": options}
            send({"id": question, "method": "session/request_permission", "params": params})
            questions[question].wait()
            if faulty("question"):
                self.stopped.clear()
        end = time.time() + 60
        while not self.stopped.wait(0.05) and time.time() < end:
            self.say()
        # A second cancel of the same write arrives meanwhile.
        time.sleep(0.05)
        self.finish("end_turn" if not self.stopped.is_set() else self.reason)

    def finish(self, reason):
        if not faulty("work-processes") or self.prompt.startswith("background"):
            self.end_child()
        with lock:
            live.pop(id_of(self.id), None)
            turns.pop(self.session, None)
        if version == 2:
            reason = "end_turn" if faulty("v2-turn-cancel") else reason
            if faulty("v2-background-spared") and reason != "end_turn" and self.session in background:
                background.pop(self.session).kill()
            state(self.session, "idle", stopReason=reason)
            return
        if faulty("id-duplicate") and id_of(self.id) in doubled:
            return
        if self.error:
            refuse(self.id, self.error, "cancelled")
        else:
            answer(self.id, {"stopReason": reason})
        if faulty("turn-one-answer") and self.how == {"turn"}:
            answer(self.id, {"stopReason": reason})
        if faulty("turn-late-updates"):
            time.sleep(0.1)
            self.say()

    def stop(self, how):
        self.how.add(how)
        is_early = self.piece == piece_count
        is_plain = self.how == {"turn"} and not is_early and not self.prompt.startswith("ask")
        if faulty("cancel-early") and is_early:
            return
        if faulty("turn-cancel") and is_plain and version == 1 and not doubled:
            self.reason = "refusal"
        if how != "turn":
            self.error = -32603 if faulty("request-cancel") and self.how == {"request"} else -32800
        if faulty("cancel-both") and len(self.how) == 2:
            refuse(self.id, -32800, "cancelled")
        self.stopped.set()


def id_of(id):
    return json.dumps(id)


def initialize(id, params):
    global version
    asked = params["protocolVersion"]
    version = asked if faulty("version") else min(max(asked, 1), 2)
    info = {"name": "scripted", "version": "1"}
    result = {"protocolVersion": version, "authMethods": []}
    result.update({"info": info, "capabilities": {}} if version == 2 else {"agentInfo": info, "agentCapabilities": {}})
    if faulty("initialize-cancel"):
        # A cancel that follows at once has arrived by then.
        pending[id_of(id)] = threading.Timer(0.2, lambda: pending.pop(id_of(id)) and answer(id, result))
        pending[id_of(id)].start()
        return
    answer(id, result)


def new_session(id, params):
    global sessions
    sessions += 1
    answer(id, {"sessionId": f"s{sessions}"})


def prompt(id, params):
    global latched
    session, text = params["sessionId"], params["prompt"][0]["text"]
    if session in turns:
        return refuse(id, -32602, "a turn runs")
    if faulty("next-turn") and session in over:
        return refuse(id, -32603, "the session is broken")
    over.add(session)
    turns[session] = turn = Turn(session, id, text)
    if latched and faulty("cancel-idle"):
        turn.stop("turn")
    latched = False


def cancel_session(params):
    global latched
    named = params["sessionId"]
    known = [turns.get(named)] if not faulty("other-session") else list(turns.values())
    if named == "no-such-session" and faulty("cancel-no-session"):
        refuse(None, -32602, "unknown session")
    if not any(known):
        latched = True
    for turn in known:
        if turn:
            turn.stop("turn")


def cancel_request(method, params):
    if not isinstance(params, dict):
        params = {}
    if method == "$/cancelRequest" and faulty("cancel-spellings"):
        return refuse(None, -32601, "unknown method")
    id = params.get("requestId", params.get("id"))
    is_id = isinstance(id, (int, str)) and not isinstance(id, bool)
    if not is_id:
        if faulty("cancel-malformed"):
            refuse(None, -32602, "malformed")
        return
    if id_of(id) in pending:
        pending.pop(id_of(id)).cancel()
        refuse(id, -32800, "cancelled")
    elif id_of(id) in live:
        live[id_of(id)].stop("request" if method == "$/cancel_request" else "draft")
    elif id in answered:
        if faulty("cancel-answered"):
            refuse(id, -32800, "cancelled")
    elif faulty("cancel-unknown"):
        refuse(None, -32602, "unknown request")


def request(id, method, params):
    if version == 2 and id is None and not faulty("v2-id-null"):
        return refuse(id, -32600, "the id is null")
    if id_of(id) in live:
        doubled.add(id_of(id))
        if faulty("id-duplicate"):
            return refuse(id, -32601, "unknown method")
        return refuse(id, -32600, "the id is in use")
    if method == "initialize":
        initialize(id, params)
    elif method == "session/new":
        new_session(id, params)
    elif method == "session/prompt":
        prompt(id, params)
    elif version == 2 and method in ("tool_call/cancel", "terminal/cancel"):
        kind = method.split("/")[0]
        cancel_piece(id, kind, "toolCallId" if kind == "tool_call" else "terminalId", params)
    elif version == 2 and method == "session/close":
        close_session(id, params)
    else:
        shown = int(id) if faulty("id-forms") and id == "1" else id
        refuse(shown, -32603 if faulty("unknown-method") else -32601, "unknown method")
    answered.append(id)


def take(line):
    try:
        message = json.loads(line)
    except ValueError:
        if faulty("parse-error"):
            leave("eof")
        return refuse(None, -32700, "no JSON")
    method, params = message.get("method"), message.get("params")
    if method is None:
        if message.get("id") in questions:
            questions[message["id"]].set()
    elif "id" in message:
        request(message["id"], method, params)
    elif method == "session/cancel":
        cancel_session(params)
    elif method in ("$/cancel_request", "$/cancelRequest"):
        cancel_request(method, params)


def terminated(*_):
    if not faulty("sigterm-exit"):
        leave("sigterm")


def broken():
    """Whether standard output has no reader."""
    time.sleep(0.1)
    poll = select.poll()
    poll.register(1, 0)
    return bool(poll.poll(0))


def main():
    global piece_count
    signal.signal(signal.SIGTERM, terminated)
    if faulty("handshake"):
        sys.exit(0)
    if faulty("stdout"):
        print("Welcome", flush=True)
    rest = b""
    while True:
        piece = os.read(0, 65536)
        if not piece:
            break
        piece_count += 1
        *lines, rest = (rest + piece).split(b"\n")
        for line in filter(None, lines):
            with lock:
                take(line)
    cause = "killed" if broken() else "eof"
    while faulty(cause + "-exit") and not (cause == "eof" and broken()):
        time.sleep(0.1)
    leave(cause)


main()

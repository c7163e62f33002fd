import json, os, subprocess, sys, threading, time
folder, declares = sys.argv[1], sys.argv[2]
with open(os.path.join(folder, "pids"), "a") as pids:
    print(os.getpid(), file=pids)
lock, answers, asked = threading.Lock(), {}, [0]
cancelled_sessions, cancelled_requests, open_prompts = set(), set(), {}
latched = [False]
modes = {}
def send(message):
    with lock:
        print(json.dumps(message, ensure_ascii=False, separators=(",", ":")), flush=True)
def update(session, text):
    content = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": content}})
def answer(id, reason):
    open_prompts.pop(json.dumps(id), None)
    send({"jsonrpc": "2.0", "id": id, "result": {"stopReason": reason}})
def ask(session):
    id = asked[0]
    asked[0] += 1
    answers[id] = threading.Event()
    send({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": {"sessionId": session}})
    answers[id].wait()
def prompt(id, session, text):
    word, _, rest = text.partition(" ")
    if word in ("obey", "only_request", "only_session"):
        count = 0
        while True:
            count += 1
            update(session, str(count))
            if word != "only_request" and session in cancelled_sessions:
                break
            if word != "only_session" and json.dumps(id) in cancelled_requests:
                break
            time.sleep(0.02)
        return answer(id, "cancelled")
    if word == "stray":
        subprocess.Popen(["setsid", "sleep", rest]).wait()
        return answer(id, "end_turn")
    if word == "ask_stray":
        subprocess.Popen(["setsid", "sleep", rest])
        ask(session)
    if word == "late":
        update(session, "late")
        open_prompts[json.dumps(id)] = id
        return
    if word == "die":
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)
    if word == "ask":
        ask(session)
    if word == "busy":
        end = time.time() + float(rest)
        while time.time() < end:
            pass
    if word == "talk":
        end = time.time() + float(rest)
        while time.time() < end:
            update(session, "talk")
            time.sleep(0.05)
    if word == "flood":
        open(os.path.join(folder, "flood"), "w").close()
        for number in range(int(rest)):
            update(session, "x" * 1000)
    if word == "huge":
        update(session, "x" * int(rest))
        return send({"result": {"stopReason": "end_turn", "_meta": {"x": "x" * int(rest)}}, "jsonrpc": "2.0", "id": id})
    if word == "latched":
        for _ in range(3):
            if latched[0]:
                return answer(id, "cancelled")
            time.sleep(0.005)
    if word == "mode":
        update(session, modes.get(session, "default"))
    if word == "words":
        update(session, text)
    answer(id, "end_turn")
sessions = 0
for line in sys.stdin:
    message = json.loads(line)
    if isinstance(message, list):
        send({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no batches"}})
        continue
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        able = {"loadSession": declares == "load", "sessionCapabilities": {"resume": {}} if declares == "resume" else {}}
        send({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": 1, "agentCapabilities": able, "_meta": {"x": 1}}})
    elif method == "session/new":
        sessions += 1
        send({"jsonrpc": "2.0", "id": id, "result": {"sessionId": "s%d" % sessions}})
    elif method in ("session/resume", "session/load"):
        assert params["cwd"] and params["sessionId"], line
        if method == "session/load":
            update(params["sessionId"], "history")
        send({"jsonrpc": "2.0", "id": id, "result": {}})
    elif method == "session/set_mode":
        modes[params["sessionId"]] = params["modeId"]
        send({"jsonrpc": "2.0", "id": id, "result": {}})
    elif method == "session/prompt":
        cancelled_sessions.discard(params["sessionId"])
        text = params["prompt"][0]["text"]
        threading.Thread(target=prompt, args=(id, params["sessionId"], text), daemon=True).start()
    elif method == "session/cancel":
        latched[0] = True
        cancelled_sessions.add(params["sessionId"])
    elif method == "$/cancel_request":
        latched[0] = True
        cancelled_requests.add(json.dumps(params["requestId"]))
    elif method == "_x/echo":
        send({"jsonrpc": "2.0", "id": id, "result": params})
    elif method == "_x/never":
        pass
    elif method is None and id in answers:
        answers[id].set()
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})
# Late answers, and a last word that is no message.
for id in list(open_prompts.values()):
    answer(id, "end_turn")
time.sleep(0.2)

"""An MCP server without a fault, except for those named on its command line.

    server.py DIRECTORY [FAULT ...]

DIRECTORY keeps its tasks, and the file that its tool writes.
"""
import gc, json, os, select, signal, sys, threading, time

# A probe starts a hundred of these: without the collector and the module "subprocess" in two thirds
# of the time.
gc.disable()
DIRECTORY, FAULTS = sys.argv[1], set(sys.argv[2:])
EXTENSION = "io.modelcontextprotocol/tasks"
# Part of a CPU that a computation uses: twice what the probe takes for work.
SHARE = 0.2
write_lock, lock = threading.Lock(), threading.RLock()
calls, children, tasks = {}, set(), {}
seen, cancelled, lists = set(), set(), [0]


def faulty(name):
    return name in FAULTS


def leave(cause):
    if not faulty(cause + "-tree"):
        for child in list(children):
            child.kill()
    os._exit(0)


def send(message):
    with write_lock:
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


def new_id():
    """A random UUID: the module for them takes as long to load as the others together."""
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def key(id):
    return (type(id).__name__, id)


def named(id):
    """The key of the call that a cancel names."""
    if faulty("id-types"):
        return next((it for it in calls if str(it[1]) == str(id)), key(id))
    return key(id)


class Sleeper:
    """A process that sleeps."""

    def __init__(self):
        null = [(os.POSIX_SPAWN_OPEN, descriptor, "/dev/null", os.O_RDWR, 0) for descriptor in (0, 1)]
        self.pid = os.posix_spawnp("sleep", ["sleep", "1000"], os.environ, file_actions=null)
        # The handler of a signal may interrupt its holder.
        self.mutex, self.is_waited_for = threading.RLock(), False

    def kill(self):
        with self.mutex:
            if not self.is_waited_for:
                os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        with self.mutex:
            if not self.is_waited_for:
                os.waitpid(self.pid, 0)
            self.is_waited_for = True


class Work:
    """The work of a call: a process, a computation, a file that grows."""

    count = 0

    def __init__(self, arguments, token=None, leak=""):
        self.stopped, self.token, self.leak = threading.Event(), token, leak
        self.seconds = arguments.get("seconds", 1)
        # A thousand calls that go on would hide everything else.
        Work.count += 1
        self.may_leak = leak == "" and Work.count <= 2
        # Those of a storm only wait.
        self.child = Sleeper() if Work.count <= 20 else None
        if self.child:
            children.add(self.child)
        if faulty("storm"):
            self.file = os.open("/dev/null", os.O_RDONLY)
        # Other faults have no need of the CPU, which many checks share.
        parts = [self.write, self.report] + ([self.compute] if faulty("work-cpu") or not FAULTS else [])
        for part in parts if Work.count <= 2 else []:
            threading.Thread(target=part, daemon=True).start()

    def goes_on(self, fault):
        return not self.stopped.is_set() or (faulty(fault) and self.may_leak)

    def compute(self):
        """Uses its share of a CPU on a busy machine, too, where it has to be seen, and no more."""
        # Checks that do not look at the CPU have ended their calls then.
        self.stopped.wait(1.2)
        begun = time.monotonic()
        while self.goes_on("work-cpu") and time.monotonic() - begun < 70:
            if time.thread_time() < SHARE * (time.monotonic() - begun):
                sum(range(20000))
            else:
                time.sleep(0.005)

    def write(self):
        with open(f"{DIRECTORY}/out-{os.getpid()}", "a") as file:
            while self.goes_on("work-writes"):
                file.write("x" * 50)
                file.flush()
                time.sleep(0.02)

    def report(self):
        count = 0
        while self.token is not None and self.goes_on("cancel-no-progress"):
            count += 1
            send({"method": "notifications/progress", "params": {"progressToken": self.token, "progress": count}})
            time.sleep(0.05)

    def wait(self):
        return not self.stopped.wait(self.seconds)

    def stop(self):
        self.stopped.set()
        if not (self.leak and faulty(self.leak)) and not (self.leak == "" and faulty("work-processes")):
            self.end_child()

    def end_child(self):
        if self.child:
            self.child.kill()
            self.child.wait()
            children.discard(self.child)


CONTENT = {"content": [{"type": "text", "text": "done"}]}


def call(id, work, started):
    done = work.wait()
    with lock:
        mine = calls.get(key(id)) is started
        if mine:
            del calls[key(id)]
    if done:
        work.stopped.set()
        work.end_child()
        if mine or not faulty("id-duplicate"):
            answer(id, CONTENT)
    elif faulty("cancel-no-answer"):
        refuse(id, 0, "cancelled")


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Task:
    def __init__(self, arguments, request):
        self.id, self.status, self.at = new_id(), "working", now()
        self.request, self.waiters = request, []
        self.save()
        self.work = Work(arguments, leak="task-cancel-work")
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        if self.work.wait():
            self.work.stopped.set()
            self.work.end_child()
            self.finish("completed")

    def save(self):
        if not faulty("task-restart"):
            path = f"{DIRECTORY}/{self.id}"
            with open(path + ".new", "w") as file:
                json.dump({"id": self.id, "status": self.status, "at": self.at}, file)
            os.rename(path + ".new", path + ".task")

    def finish(self, status):
        with lock:
            if self.status != "working":
                return
            self.status = status
            self.save()
            waiters, self.waiters = self.waiters, []
        for waiter in waiters[: 1 if faulty("task-waiters") else None]:
            self.result(waiter)

    def cancel(self):
        self.finish("cancelled")
        self.work.stop()
        if faulty("task-cancel"):
            self.status = "completed"

    def result(self, id):
        if self.status == "cancelled":
            if not faulty("task-cancel-result"):
                refuse(id, -31001, "cancelled")
        elif self.status == "failed":
            refuse(id, -32603, "failed")
        else:
            answer(id, dict(CONTENT, _meta={"io.modelcontextprotocol/related-task": {"taskId": self.id}}))

    def shown(self):
        ttl = -1 if faulty("task-ttl") else 60000
        return {"taskId": self.id, "status": self.status, "createdAt": self.at, "lastUpdatedAt": self.at, "ttl": ttl}


def load():
    for name in os.listdir(DIRECTORY):
        if name.endswith(".task"):
            kept, task = json.load(open(f"{DIRECTORY}/{name}")), Task.__new__(Task)
            task.id, task.at, task.request, task.waiters = kept["id"], kept["at"], None, []
            task.status = "failed" if kept["status"] == "working" else kept["status"]
            tasks[task.id] = task


def page(id, params):
    every, size, cursor = sorted(tasks), 2, params.get("cursor")
    if cursor is not None and not (isinstance(cursor, str) and cursor.isdigit()):
        if not faulty("task-cursor"):
            return refuse(id, -32602, "unknown cursor")
        cursor = None
    at = int(cursor or 0)
    shown = every[max(at - 1, 0) if faulty("task-pages") else at : at + size]
    more = {"nextCursor": str(at + size)} if at + size < len(every) else {}
    answer(id, {"tasks": [tasks[it].shown() for it in shown], **more})


def session_task(id, method, params):
    task = tasks.get(params.get("taskId"))
    if method == "tasks/list":
        return page(id, params)
    if task is None:
        return refuse(id, -32603 if faulty("task-foreign") else -32602, "unknown task")
    if method == "tasks/get":
        return answer(id, task.shown())
    if method == "tasks/cancel":
        if task.status != "working" and not faulty("task-terminal"):
            return refuse(id, -32602, "it is " + task.status)
        before = dict(task.shown(), status="cancelled")
        task.cancel()
        return answer(id, before)
    with lock:
        if task.status == "working":
            return task.waiters.append(id)
    task.result(id)


def modern(id, method, params):
    declared = EXTENSION in params["_meta"].get("io.modelcontextprotocol/clientCapabilities", {}).get("extensions", {})
    if method == "server/discover":
        return answer(id, {"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                           "capabilities": {"tools": {}, "extensions": {EXTENSION: {}}}})
    if method == "tools/list":
        return answer(id, {"resultType": "complete", "tools": TOOLS, "ttlMs": 0, "cacheScope": "private"})
    if method == "tools/call" and not declared:
        return plain_call(id, params)
    if method == "tools/call":
        task = Task(params["arguments"], id)
        tasks[task.id] = task
        return answer(id, {"resultType": "task", "taskId": task.id, "status": "working", "createdAt": task.at,
                           "lastUpdatedAt": task.at, "ttlMs": 60000})
    if method in ("tasks/get", "tasks/cancel"):
        if not declared and not faulty("extension-undeclared"):
            return refuse(id, -32021, "declare the extension")
        task = tasks.get(params["taskId"])
        if task is None:
            return refuse(id, -32603 if faulty("extension-foreign") else -32602, "unknown task")
        if method == "tasks/cancel":
            if task.status != "working" and faulty("extension-cancel"):
                return refuse(id, -32602, "it is " + task.status)
            task.finish("cancelled")
            task.work.stop()
            return answer(id, {"resultType": "complete"})
        result = {"result": CONTENT} if task.status == "completed" and not faulty("extension-lifecycle") else {}
        return answer(id, {"resultType": "complete", "taskId": task.id, "status": task.status, "createdAt": task.at,
                           "lastUpdatedAt": task.at, "ttlMs": 60000, **result})
    refuse(id, -32601, "no such method")


SCHEMA = {"type": "object", "properties": {"seconds": {"type": "integer"}}, "required": ["seconds"]}
TOOLS = [
    {"name": "sleep", "inputSchema": SCHEMA, "execution": {"taskSupport": "optional"}},
    {"name": "stubborn", "inputSchema": SCHEMA},
]


def plain_call(id, params):
    if "task" in params:
        task = Task(params["arguments"], id)
        tasks[task.id] = task
        shown = task.shown()
        if faulty("task-lifecycle"):
            shown["status"] = "submitted"
        return answer(id, {"task": shown})
    leak = "work-stubborn" if params["name"] == "stubborn" else ""
    work = Work(params["arguments"], (params.get("_meta") or {}).get("progressToken"), leak)
    started = (work, time.time())
    with lock:
        calls[key(id)] = started
    threading.Thread(target=call, args=(id, work, started), daemon=True).start()


def cancel(params):
    id = params.get("requestId") if isinstance(params, dict) else None
    malformed = isinstance(id, bool) or not isinstance(id, (int, str)) or not isinstance(params.get("reason", ""), str)
    if malformed:
        return refuse(None, -32602, "what?") if faulty("cancel-malformed") else None
    with lock:
        started = calls.get(named(id))
        if started is not None:
            work, at = started
            if faulty("cancel-early") and work.seconds <= 1 and time.time() - at < 0.1:
                return None
            calls.pop(named(id))
            cancelled.add(key(id))
            return work.stop()
    for task in list(tasks.values()):
        if id in task.waiters:
            task.waiters.remove(id)
            if faulty("task-waiter-cancel"):
                task.cancel()
            return None
        if task.request == id and faulty("task-notification"):
            return task.cancel()
    if key(id) in seen:
        return refuse(id, -32602, "it is answered") if faulty("cancel-answered") else None
    return refuse(id, -32602, "unknown") if faulty("cancel-unknown") else None


def greet(id, params):
    answer(id, {"protocolVersion": "2025-11-25", "serverInfo": {"name": "planted", "version": "1"},
                "capabilities": {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}})


def request(id, method, params):
    if isinstance(params, dict) and "io.modelcontextprotocol/protocolVersion" in (params.get("_meta") or {}):
        return modern(id, method, params)
    if faulty("id-reused") and key(id) in cancelled:
        return
    seen.add(key(id))
    if method == "initialize":
        if not faulty("handshake"):
            greet(id, params)
    elif method == "ping":
        if not (faulty("ping-during-call") and calls):
            answer(None if faulty("id-forms") and id == "" else id, {})
        if faulty("id-duplicate"):
            calls.pop(key(id), None)
    elif method == "tools/list":
        lists[0] += 1
        if not (faulty("no-reader") and lists[0] > 100):
            answer(id, {"tools": TOOLS})
    elif method == "tools/call":
        plain_call(id, params)
    elif method.startswith("tasks/"):
        session_task(id, method, params)
    else:
        refuse(id, -32601, "no such method")


def broken():
    """Whether standard output has no reader."""
    time.sleep(0.1)
    poll = select.poll()
    poll.register(1, 0)
    return bool(poll.poll(0))


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN if faulty("sigterm-exit") else lambda *_: leave("sigterm"))
    load()
    if faulty("stdout"):
        print("ready", flush=True)
    rest = b""
    while True:
        piece = os.read(0, 65536)
        if not piece:
            break
        if faulty("initialize-cancel") and b'"initialize"' in piece and b"cancelled" in piece:
            continue
        *lines, rest = (rest + piece).split(b"\n")
        if faulty("cancel-behind-input") and len(rest) > 500000:
            os._exit(1)
        for line in filter(None, lines):
            message = json.loads(line)
            method, id = message.get("method"), message.get("id")
            if method == "notifications/cancelled":
                cancel(message.get("params"))
            elif method is not None and "id" in message:
                request(id, method, message.get("params") or {})
    cause = "killed" if broken() else "eof"
    while faulty(cause + "-exit") and not (cause == "eof" and broken()):
        time.sleep(0.1)
    leave(cause)


if __name__ == "__main__":
    main()

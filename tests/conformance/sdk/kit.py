"""Shared parts of the Python script: the runner of checks, clients with a relay in front of their
server, and searches for processes."""

import asyncio
import itertools
import json
import os
import sys
import time
import traceback
from contextlib import AsyncExitStack
from pathlib import Path

from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client

# Parameters from the test: see `Setup` in sdk.rs.
SETUP = json.loads(Path(sys.argv[1]).read_text())

# Longest wait for an expected event, in seconds.
PATIENCE = 20
# Longest time between stopping a tool and its last process being gone, in seconds.
GONE_WITHIN = 10
# Longest time between the end of a server's input and the end of the server, in seconds.
EXIT_WITHIN = 3
# Longest duration of one check, in seconds.
CHECK_WITHIN = 60


def check(condition, *what):
    """An assertion that no interpreter flag disables."""
    if not condition:
        raise AssertionError(*what)


def same(found, wanted):
    check(found == wanted, f"found {found!r}, wanted {wanted!r}")


async def until(what, probe, within=PATIENCE):
    """Waits until `probe` returns a true value, and returns that value."""
    end = time.monotonic() + within
    while not (found := probe()):
        check(time.monotonic() < end, f"{what}: not within {within} s")
        await asyncio.sleep(0.02)
    return found


async def refusal(awaitable, code):
    """The error an awaitable raises, which must have this code."""
    try:
        value = await awaitable
    except McpError as error:
        same(error.error.code, code)
        return error.error
    raise AssertionError(f"not refused with {code}: {value!r}")


_marks = itertools.count(1)


def fresh_mark(what):
    """A text that no other process of this machine carries."""
    return f"{SETUP['mark']}-{what}{next(_marks)}-end"


def processes(mark):
    """The processes with `mark` in their command line or environment. A zombie has neither."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            line = Path("/proc", entry, "cmdline").read_bytes()
            environment = Path("/proc", entry, "environ").read_bytes()
        except OSError:
            continue  # The process has just ended, or belongs to another user.
        if mark.encode() in line or mark.encode() in environment:
            found[int(entry)] = line.replace(b"\0", b" ").decode(errors="replace")
    return found


def _session_of(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


async def tree_is_up(mark):
    """Waits until the whole tree of a `tree` call runs, with its grandchild in its own session."""

    def is_up():
        grandchild = processes(f"{mark}-grandchild")
        return processes(f"{mark}-child") and any(_session_of(pid) == pid for pid in grandchild)

    await until(f"the tree {mark} is up", is_up)


async def is_gone(mark):
    """Waits until no process carries the mark; returns how long that took, in ms."""
    start = time.monotonic()
    while left := processes(mark):
        check(time.monotonic() - start < GONE_WITHIN, f"still there: {left}")
        await asyncio.sleep(0.02)
    return round((time.monotonic() - start) * 1000)


class Connection:
    """A client with its own server."""

    def __init__(self, name):
        self.folder = Path(SETUP["record"], name)
        self.notifications = []
        self.errors = []
        self.stack = AsyncExitStack()

    async def _heard(self, message):
        if isinstance(message, Exception):
            self.errors.append(repr(message))
        elif isinstance(message, types.ServerNotification):
            self.notifications.append(message.root)
        else:
            self.errors.append(f"an unexpected request: {message!r}")

    async def open(self):
        server = StdioServerParameters(
            command="sh",
            args=[SETUP["relay"], str(self.folder), *SETUP["server"]],
            env=SETUP["env"],
        )
        read, write = await self.stack.enter_async_context(stdio_client(server))
        session = ClientSession(read, write, message_handler=self._heard)
        self.session = await self.stack.enter_async_context(session)
        self.initialized = await self.session.initialize()
        return self

    def of_type(self, kind):
        """The notifications of one type so far."""
        return [found for found in self.notifications if isinstance(found, kind)]

    def sent(self):
        """Messages that the client has sent so far, parsed."""
        lines = (self.folder / "in").read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]

    async def cancel(self, mark, reason):
        """Cancels the call with this mark. In this SDK neither the cancel of a waiting coroutine
        nor a time-out notifies the server, so the check sends the notification."""
        calls = [m for m in self.sent() if (m.get("params") or {}).get("arguments") == {"mark": mark}]
        same(len(calls), 1)
        params = types.CancelledNotificationParams(requestId=calls[0]["id"], reason=reason)
        cancelled = types.CancelledNotification(params=params)
        await self.session.send_notification(types.ClientNotification(cancelled))

    async def close(self):
        """Closes as the SDK does and waits for the server's end; returns how long, in ms."""
        start = time.monotonic()
        await self.stack.aclose()
        end = self.folder / "exit"
        await until("the server ends", end.exists, EXIT_WITHIN)
        took = time.monotonic() - start
        check(took <= EXIT_WITHIN, f"the server ended after {took} s")
        same(end.read_text().strip(), "0")
        return round(took * 1000)


async def run(checks):
    """Runs every check, also after failures, and prints each result."""
    done, failures = [], 0
    for name, body in checks:
        start = time.monotonic()
        try:
            async with asyncio.timeout(CHECK_WITHIN):
                note = await body()
            took = round((time.monotonic() - start) * 1000)
            print(f"ok   {name} ({took} ms{'; ' + note if note else ''})", flush=True)
            done.append(name)
        except Exception:
            failures += 1
            print(f"FAIL {name}: {traceback.format_exc()}", flush=True)
    print(json.dumps({"done": done, "failures": failures}), flush=True)
    # Not `sys.exit`, which would wait for leftovers of a failed check.
    os._exit(0 if failures == 0 else 1)

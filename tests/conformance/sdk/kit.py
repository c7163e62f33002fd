"""Clients with a relay in front of their server, and their refusals; the rest is in common.py."""

import json
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

from common import SETUP, check, fresh_mark, is_gone, processes, run, same, until
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client

# Longest time between the end of a server's input and the end of the server, in seconds; generous
# for a busy machine.
EXIT_WITHIN = 10


async def refusal(awaitable, code):
    """The error an awaitable raises, which must have this code."""
    try:
        value = await awaitable
    except McpError as error:
        same(error.error.code, code)
        return error.error
    raise AssertionError(f"not refused with {code}: {value!r}")


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

"""Parts of the Python scripts that need no client: the runner of checks, and searches for processes."""

import asyncio
import itertools
import json
import os
import sys
import time
import traceback
from pathlib import Path

# Parameters from the test: see `Setup` in sdk.rs.
SETUP = json.loads(Path(sys.argv[1]).read_text())

# Longest wait for an expected event, in seconds.
PATIENCE = 20
# Longest time between stopping a tool and its last process being gone, in seconds.
GONE_WITHIN = 10
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


_marks = itertools.count(1)


def fresh_mark(what):
    """A text that no other process of this machine carries."""
    return f"{SETUP['mark']}-{what}{next(_marks)}-end"


def fresh_time():
    """A time to sleep that no other process of this machine has."""
    return f"98764.{os.getpid()}{next(_marks):03}"


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


async def is_gone(mark):
    """Waits until no process carries the mark; returns how long that took, in ms."""
    start = time.monotonic()
    while left := processes(mark):
        check(time.monotonic() - start < GONE_WITHIN, f"still there: {left}")
        await asyncio.sleep(0.02)
    return round((time.monotonic() - start) * 1000)


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

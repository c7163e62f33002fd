// Shared parts of the TypeScript scripts: the runner of checks, clients with a relay in front of
// their server, and searches for processes.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

/** Parameters from the test: see `Setup` in sdk.rs. */
export const setup = JSON.parse(readFileSync(process.argv[2], 'utf8'));

/** Longest wait for an expected event, in ms. */
const PATIENCE = 20_000;
/** Longest time between stopping a tool and its last process being gone, in ms. */
const GONE_WITHIN = 10_000;
/**
 * Longest time between the end of a server's input and the end of the server, in ms; generous for a
 * busy machine.
 */
const EXIT_WITHIN = 10_000;
/** Longest duration of one check, in ms. */
const CHECK_WITHIN = 60_000;

/** Waits until `probe` returns a true value, and returns that value. */
export async function until(what, probe, within = PATIENCE) {
    const end = Date.now() + within;
    for (;;) {
        const found = await probe();
        if (found) return found;
        assert.ok(Date.now() < end, `${what}: not within ${within} ms`);
        await sleep(20);
    }
}

/** A rejected promise's error, which must have this code. */
export async function refusal(promise, code) {
    let value;
    try {
        value = await promise;
    } catch (error) {
        assert.equal(error.code, code, `wrong error: ${error}`);
        return error;
    }
    assert.fail(`not refused with ${code}: ${JSON.stringify(value)}`);
}

let marks = 0;
/** A text that no other process of this machine carries. */
export function freshMark(what) {
    marks += 1;
    return `${setup.mark}-${what}${marks}-end`;
}

/** The processes with `mark` in their command line or environment. A zombie has neither. */
export function processes(mark) {
    const found = [];
    for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
        try {
            const line = readFileSync(`/proc/${pid}/cmdline`, 'latin1');
            const environment = readFileSync(`/proc/${pid}/environ`, 'latin1');
            if (line.includes(mark) || environment.includes(mark)) {
                found.push({ pid: Number(pid), line: line.replaceAll('\0', ' ') });
            }
        } catch {
            // The process has just ended, or belongs to another user.
        }
    }
    return found;
}

/** Session of a process; undefined if the process has ended. */
function sessionOf(pid) {
    try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
        return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[3]);
    } catch {
        return undefined;
    }
}

/** Waits until the whole tree of a `tree` call runs, with its grandchild in its own session. */
export async function treeIsUp(mark) {
    await until(`the tree ${mark} is up`, () => {
        const grandchild = processes(`${mark}-grandchild`);
        return (
            processes(`${mark}-child`).length > 0 &&
            grandchild.some(({ pid }) => sessionOf(pid) === pid)
        );
    });
}

/** Waits until no process carries the mark; returns how long that took, in ms. */
export async function isGone(mark) {
    const start = Date.now();
    let left = [];
    try {
        await until(mark, () => (left = processes(mark)).length === 0, GONE_WITHIN);
    } catch {
        assert.fail(`still there after ${GONE_WITHIN} ms: ${JSON.stringify(left)}`);
    }
    return Date.now() - start;
}

/** A client with its own server. */
export class Connection {
    progress = [];
    statuses = [];
    toolLists = [];
    errors = [];

    constructor(name) {
        this.folder = join(setup.record, name);
        this.transport = new StdioClientTransport({
            command: 'sh',
            args: [setup.relay, this.folder, ...setup.server],
            env: setup.env,
            stderr: 'inherit',
        });
        this.transport.setProtocolVersion = version => (this.revision = version);
        this.client = new Client(
            { name: 'ceased-sdk-tests', version: '1.0.0' },
            {
                capabilities: {},
                listChanged: { tools: { onChanged: (_, tools) => this.toolLists.push(tools) } },
            },
        );
        this.client.onerror = error => this.errors.push(String(error));
    }

    async open() {
        await this.client.connect(this.transport);
        return this;
    }

    /** Messages that the client has sent so far, parsed. */
    sent() {
        const lines = readFileSync(join(this.folder, 'in'), 'utf8').split('\n');
        return lines.slice(0, -1).map(line => JSON.parse(line));
    }

    /** Closes as the SDK does and waits for the server's end; returns how long it took, in ms. */
    async close() {
        const start = Date.now();
        await this.client.close();
        const exit = join(this.folder, 'exit');
        await until('the server ends', () => existsSync(exit), EXIT_WITHIN);
        const took = Date.now() - start;
        assert.ok(took <= EXIT_WITHIN, `the server ended after ${took} ms`);
        assert.equal(readFileSync(exit, 'utf8').trim(), '0', 'exit status of the server');
        return took;
    }
}

/** Runs every check, also after failures, and prints each result. */
export async function run(checks) {
    const done = [];
    let failures = 0;
    // Leftovers of a failed check may fail too, and must not end the other checks.
    process.on('unhandledRejection', error => {
        failures += 1;
        console.log(`FAIL outside of a check: ${error?.stack ?? error}`);
    });
    for (const [name, check] of checks) {
        const start = Date.now();
        const late = new AbortController();
        try {
            const overdue = sleep(CHECK_WITHIN, undefined, { signal: late.signal }).then(() =>
                assert.fail(`not done within ${CHECK_WITHIN} ms`),
            );
            const note = await Promise.race([check(), overdue]);
            console.log(`ok   ${name} (${Date.now() - start} ms${note ? `; ${note}` : ''})`);
            done.push(name);
        } catch (error) {
            failures += 1;
            console.log(`FAIL ${name}: ${error.stack ?? error}`);
        } finally {
            late.abort();
        }
    }
    console.log(JSON.stringify({ done, failures }));
    process.exit(failures === 0 ? 0 : 1);
}

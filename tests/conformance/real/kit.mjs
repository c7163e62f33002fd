// Connections to real MCP servers, and searches for their processes.

import { readFileSync, readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import {
    CreateMessageRequestSchema,
    ElicitRequestSchema,
    ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

/** Parameters from the test: see `Setup` in real.rs. */
export const setup = JSON.parse(readFileSync(process.argv[2], 'utf8'));

/** A client of one server; `capabilities` are those it declares. */
export function open(server, capabilities = {}) {
    const [command, ...args] = server.command;
    const transport = new StdioClientTransport({
        command,
        args,
        env: { PATH: process.env.PATH, ...server.env },
        cwd: setup.folder,
        stderr: 'inherit',
    });
    const client = new Client({ name: 'ceased-real-servers', version: '1' }, { capabilities });
    // Requests of servers, where a server may make them.
    if (capabilities.sampling) {
        client.setRequestHandler(CreateMessageRequestSchema, async ({ params }) => ({
            model: 'tester',
            role: 'assistant',
            content: { type: 'text', text: `to ${JSON.stringify(params.messages)}` },
        }));
    }
    if (capabilities.elicitation) {
        client.setRequestHandler(ElicitRequestSchema, async () => ({ action: 'decline' }));
    }
    if (capabilities.roots) {
        client.setRequestHandler(ListRootsRequestSchema, async () => ({
            roots: [{ uri: `file://${setup.folder}`, name: 'folder' }],
        }));
    }
    return { client, transport };
}

/** Waits until `probe` returns a true value, and returns that value. */
export async function until(what, probe, within = 30_000) {
    const end = Date.now() + within;
    for (;;) {
        const found = await probe();
        if (found) return found;
        if (Date.now() > end) throw new Error(`${what}: not within ${within} ms`);
        await sleep(20);
    }
}

/** Processes with `mark` in their environment or command line, this one and its parents excluded. */
export function processes(mark) {
    const found = [];
    for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
        if (Number(pid) === process.pid || Number(pid) === process.ppid) continue;
        try {
            const line = readFileSync(`/proc/${pid}/cmdline`, 'latin1');
            const environment = readFileSync(`/proc/${pid}/environ`, 'latin1');
            if (line.includes(mark) || environment.includes(mark)) {
                found.push(`${pid} ${line.replaceAll('\0', ' ')}`);
            }
        } catch {
            // The process has just ended, or belongs to another user.
        }
    }
    return found;
}

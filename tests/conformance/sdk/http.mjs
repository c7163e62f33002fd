// The official TypeScript clients, unmodified, drive ceased over Streamable HTTP: the one with
// sessions, and the one of 2026-07-28.
//
// usage: node http.mjs SETUP   (see `Setup` in sdk/http.rs)

import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
    Client as ModernClient,
    StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { processes, run, setup, until } from './kit.mjs';

const clientInfo = { name: 'ceased-sdk-tests', version: '1.0.0' };
const url = new URL(setup.url);
const errors = [];

const transport = new StreamableHTTPClientTransport(url);
const client = new Client(clientInfo, { capabilities: {} });
client.onerror = error => errors.push(String(error));
const modern = new ModernClient(clientInfo, {
    capabilities: {},
    versionNegotiation: { mode: { pin: '2026-07-28' } },
});
modern.onerror = error => errors.push(String(error));

const text = result => result.content.map(part => part.text).join('');
const up = mark => until('the family runs', () => processes(mark).length >= 6);
const gone = mark => until('the family is gone', () => processes(mark).length === 0);

let marks = 0;
/** A time to sleep that no other process of this machine has. */
const freshMark = () => `98765.${process.pid}${String(++marks).padStart(3, '0')}`;

/** Calls of both clients by one signature. */
const callers = {
    session: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
    modern: (name, args, options) => modern.callTool({ name, arguments: args }, options),
};

async function connect() {
    await client.connect(transport);
    assert.match(transport.sessionId, /^[0-9a-f]{32}$/);
    assert.equal(client.getServerVersion().name, 'ceased');
}

async function modernConnect() {
    await modern.connect(new ModernTransport(url));
    assert.equal(modern.getProtocolEra(), 'modern');
}

const echo = call => async () => {
    const said = 'ünï \u{1F600} "quoted"\\\n\t\u2028 done';
    assert.equal(text(await call('echo', { text: said })), said);
};

const progress = call => async () => {
    const seen = [];
    await call('count', { n: 5 }, { onprogress: step => seen.push(step.progress) });
    assert.ok(seen.length >= 1 && seen.every((value, at) => at === 0 || value > seen[at - 1]), `${seen}`);
};

const parallel = call => async () => {
    const calls = Array.from({ length: 20 }, (_, n) => call('echo', { text: `${n}` }));
    const said = (await Promise.all(calls)).map(text);
    assert.deepEqual(said, said.map((_, n) => `${n}`));
};

const abort = call => async () => {
    const mark = freshMark();
    const controller = new AbortController();
    const options = { signal: controller.signal, onprogress: () => {} };
    const waiting = call('family', { t: mark }, options).then(() => assert.fail('answered'), error => error);
    await up(mark);
    controller.abort('enough');
    await waiting;
    await gone(mark);
};

const timeout = call => async () => {
    const mark = freshMark();
    const waiting = call('family', { t: mark }, { timeout: 2_000 });
    await assert.rejects(waiting);
    await gone(mark);
};

async function terminate() {
    const mark = freshMark();
    const waiting = callers.session('family', { t: mark }, {}).catch(error => error);
    await up(mark);
    await transport.terminateSession();
    await gone(mark);
    await client.close();
    await waiting;
}

async function modernClose() {
    const mark = freshMark();
    const waiting = callers.modern('family', { t: mark }, {}).catch(error => error);
    await up(mark);
    await modern.close();
    await gone(mark);
    await waiting;
}

await run([
    ['connect', connect],
    ['echo', echo(callers.session)],
    ['progress', progress(callers.session)],
    ['parallel', parallel(callers.session)],
    ['abort', abort(callers.session)],
    ['timeout', timeout(callers.session)],
    ['terminate', terminate],
    ['modern_connect', modernConnect],
    ['modern_echo', echo(callers.modern)],
    ['modern_progress', progress(callers.modern)],
    ['modern_parallel', parallel(callers.modern)],
    ['modern_abort', abort(callers.modern)],
    ['modern_timeout', timeout(callers.modern)],
    ['modern_close', modernClose],
]);

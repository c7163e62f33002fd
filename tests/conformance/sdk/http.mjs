// The official TypeScript clients, unmodified, drive ceased over Streamable HTTP: the one with
// sessions, and the one of 2026-07-28.
//
// usage: node http.mjs SETUP   (see `Setup` in sdk/http.rs)

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
    Client as ModernClient,
    StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client';
import { createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { Cutter } from './cutter.mjs';
import { processes, run, setup, until } from './kit.mjs';

const REVISION = '2026-07-28';
const clientInfo = { name: 'ceased-sdk-tests', version: '1.0.0' };
const capabilities = { elicitation: { form: {} } };
const url = new URL(setup.url);
const cutter = new Cutter();
const through = new URL(url);
through.port = await cutter.start(url.hostname, url.port);

const transport = new StreamableHTTPClientTransport(through);
const client = new Client(clientInfo, { capabilities });
const modern = new ModernClient(clientInfo, {
    capabilities,
    versionNegotiation: { mode: { pin: REVISION } },
});

/** Questions to the user, and the user's next answer. */
const questions = [];
let says = { action: 'accept', content: {} };
const asked = ({ params }) => {
    questions.push(params.message);
    return says;
};
client.setRequestHandler(ElicitRequestSchema, asked);
modern.setRequestHandler('elicitation/create', asked);

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
    await modern.connect(new ModernTransport(through));
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

// HTTP-07: a call goes on without its connection, and its answer is read by Last-Event-ID.
async function reconnect() {
    const file = join(setup.folder, 'typescript-gate');
    const seen = [];
    const options = { onprogress: step => seen.push(step.progress) };
    const running = callers.session('gate', { file }, options);
    await until('the call runs', () => seen.includes(1));
    assert.ok(cutter.cut() >= 1);
    writeFileSync(file, '');
    assert.equal(text(await running), 'through\n');
    assert.deepEqual(seen, [1, 2]);
    assert.match(cutter.sent, /last-event-id:/i);
}

// CNF-01, MOD-07: a request of the server in a session, else an answer that needs input.
const elicitation = call => async () => {
    questions.length = 0;
    says = { action: 'accept', content: {} };
    assert.equal(text(await call('asks', { what: 'one' })), 'one\n');
    says = { action: 'decline' };
    assert.equal((await call('asks', { what: 'two' })).isError, true);
    assert.deepEqual(questions, ['Really one?', 'Really two?']);
};

async function task() {
    const file = join(setup.folder, 'typescript-task-gate');
    const params = { name: 'gate', arguments: { file } };
    const types = [];
    const options = { task: { ttl: 60_000 } };
    for await (const message of client.experimental.tasks.callToolStream(params, undefined, options)) {
        types.push(message.type);
        if (message.type === 'taskCreated') {
            const { taskId } = message.task;
            assert.equal((await client.experimental.tasks.getTask(taskId)).status, 'working');
            writeFileSync(file, '');
        }
        if (message.type === 'result') assert.equal(text(message.result), 'through\n');
    }
    assert.equal(types[0], 'taskCreated');
    assert.equal(types.at(-1), 'result');
}

async function taskCancel() {
    const mark = freshMark();
    const { tasks } = client.experimental;
    const stream = tasks.callToolStream({ name: 'family', arguments: { t: mark } }, undefined, { task: {} });
    const created = (await stream.next()).value;
    assert.equal(created.type, 'taskCreated');
    await up(mark);
    assert.equal((await tasks.cancelTask(created.task.taskId)).status, 'cancelled');
    await gone(mark);
    await assert.rejects(tasks.getTaskResult(created.task.taskId, CallToolResultSchema));
}

/** The companion for tasks, with requests by POST: the SDK's client has none of their methods. */
let asks = 0;
const modernTasks = () =>
    createTaskSessionFromClient(modern, {
        endpointId: 'ceased',
        rawDispatch: async ({ method, params }) => {
            const named = params.name ?? params.taskId;
            const response = await fetch(url, {
                method: 'POST',
                headers: {
                    'content-type': 'application/json',
                    accept: 'application/json, text/event-stream',
                    'mcp-protocol-version': REVISION,
                    'mcp-method': method,
                    ...(named === undefined ? {} : { 'mcp-name': named }),
                },
                body: JSON.stringify({ jsonrpc: '2.0', id: `task-${++asks}`, method, params }),
            });
            const { result, error } = await response.json();
            return error === undefined ? { kind: 'result', result } : { kind: 'error', error };
        },
        v2RequestFraming: { protocolVersion: REVISION, clientInfo, clientCapabilities: capabilities },
        onInputRequest: async ({ params }) => asked({ params }),
    });

// EXT-01 to EXT-05
async function modernTask() {
    const tasks = modernTasks();
    const file = join(setup.folder, 'typescript-modern-gate');
    const execution = await tasks.callTool('gate', { file });
    assert.equal(execution.kind, 'task');
    writeFileSync(file, '');
    const { outcome } = await execution.settle();
    assert.equal(text(outcome.result), 'through\n');
    questions.length = 0;
    says = { action: 'accept', content: {} };
    const asking = await tasks.callTool('asks', { what: 'three' });
    assert.equal(text((await asking.settle()).outcome.result), 'three\n');
    assert.deepEqual(questions, ['Really three?']);
    await tasks.close();
}

async function modernTaskCancel() {
    const tasks = modernTasks();
    const mark = freshMark();
    const execution = await tasks.callTool('family', { t: mark });
    await up(mark);
    const outcome = execution.result();
    await execution.cancel();
    assert.equal((await outcome).status, 'cancelled');
    await gone(mark);
    await tasks.close();
}

// MOD-06: the end of the connection is the cancel, and the next request has a new connection.
async function modernCut() {
    const mark = freshMark();
    const seen = [];
    const options = { onprogress: step => seen.push(step) };
    const waiting = callers.modern('family', { t: mark }, options).then(() => assert.fail('answered'), error => error);
    await up(mark);
    assert.ok(cutter.cut() >= 1);
    await gone(mark);
    await echo(callers.modern)();
    await modern.close();
    await waiting;
    await modern.connect(new ModernTransport(through));
}

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
    cutter.close();
}

await run([
    ['connect', connect],
    ['echo', echo(callers.session)],
    ['progress', progress(callers.session)],
    ['parallel', parallel(callers.session)],
    ['abort', abort(callers.session)],
    ['timeout', timeout(callers.session)],
    ['reconnect', reconnect],
    ['elicitation', elicitation(callers.session)],
    ['task', task],
    ['task_cancel', taskCancel],
    ['terminate', terminate],
    ['modern_connect', modernConnect],
    ['modern_echo', echo(callers.modern)],
    ['modern_progress', progress(callers.modern)],
    ['modern_parallel', parallel(callers.modern)],
    ['modern_abort', abort(callers.modern)],
    ['modern_timeout', timeout(callers.modern)],
    ['modern_elicitation', elicitation(callers.modern)],
    ['modern_task', modernTask],
    ['modern_task_cancel', modernTaskCancel],
    ['modern_cut', modernCut],
    ['modern_close', modernClose],
]);

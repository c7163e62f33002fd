// The official TypeScript client of 2026-07-28 and its companion for the tasks extension,
// unmodified, drive ceased.
//
// usage: node modern.mjs SETUP   (see `Setup` in sdk.rs)

import assert from 'node:assert/strict';
import { copyFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';
import { freshMark, isGone, refusal, run, setup, treeIsUp, until } from './kit.mjs';

const REVISION = '2026-07-28';
const INVALID_PARAMS = -32602;
const METHOD_NOT_FOUND = -32601;
const MISSING_CAPABILITY = -32021;

const folder = join(setup.record, 'modern');
const clientInfo = { name: 'ceased-sdk-tests', version: '1.0.0' };
const capabilities = { elicitation: { form: {} } };

/**
 * The SDK starts a subclass only once, without a second start to probe the server's revision. This
 * one also sends requests of the tasks extension, which the SDK's client lacks; their ids are
 * strings, those of the client numbers.
 */
class Transport extends StdioClientTransport {
    #waiting = new Map();
    #next = 1;
    /** Notifications received for subscriptions to tasks. */
    told = [];

    constructor(parameters) {
        super(parameters);
        let handOn;
        // Wraps every listener that the client sets, so that it gets only the client's own messages.
        Object.defineProperty(this, 'onmessage', {
            get: () => handOn && ((message, extra) => this.#hear(message, extra, handOn)),
            set: listener => (handOn = listener),
        });
    }

    #hear(message, extra, handOn) {
        const waiting = this.#waiting.get(message.id);
        if (message.method === 'notifications/tasks') {
            this.told.push(message);
        } else if (waiting === undefined || message.method !== undefined) {
            handOn(message, extra);
        } else {
            this.#waiting.delete(message.id);
            waiting(message);
        }
    }

    /** Sends a request unchanged and returns its answer, a result or an error. */
    async ask({ method, params }) {
        const id = `task-${this.#next++}`;
        const answer = new Promise(resolve => this.#waiting.set(id, resolve));
        await this.send({ jsonrpc: '2.0', id, method, params });
        const { result, error } = await answer;
        return error === undefined ? { kind: 'result', result } : { kind: 'error', error };
    }
}

const transport = new Transport({
    command: 'sh',
    args: [setup.relay, folder, ...setup.server],
    env: setup.env,
    stderr: 'inherit',
});
const client = new Client(clientInfo, {
    capabilities,
    versionNegotiation: { mode: { pin: REVISION } },
});
const errors = [];
client.onerror = error => errors.push(String(error));

/** Question to the user, and the user's next answer. */
const questions = [];
let says = { action: 'accept', content: {} };
client.setRequestHandler('elicitation/create', ({ params }) => {
    questions.push(params.message);
    return says;
});

const text = result => result.content.map(part => part.text).join('');
const call = (name, args, options) => client.callTool({ name, arguments: args }, options);
const sent = () => {
    const lines = readFileSync(join(folder, 'in'), 'utf8').split('\n');
    return lines.slice(0, -1).map(line => JSON.parse(line));
};
let tasks;

// MOD-01, MOD-02
async function connect() {
    await client.connect(transport);
    assert.equal(client.getProtocolEra(), 'modern');
    assert.equal(client.getServerVersion().name, 'ceased');
    assert.deepEqual(client.getServerCapabilities().tools, { listChanged: true });
    tasks = createTaskSessionFromClient(client, {
        endpointId: 'ceased',
        rawDispatch: request => transport.ask(request),
        v2RequestFraming: { protocolVersion: REVISION, clientInfo, clientCapabilities: capabilities },
        onInputRequest: async ({ kind, params }) => {
            assert.equal(kind, 'elicitation');
            questions.push(params.message);
            return says;
        },
    });
    assert.equal(tasks.capabilities.execution, true);
    assert.equal(tasks.capabilities.cancellation, true);
    assert.ok(sent().every(({ method }) => method !== 'initialize'));
}

async function listTools() {
    const { tools } = await client.listTools();
    const names = tools.map(tool => tool.name);
    assert.ok(['echo', 'steps', 'tree', 'asks'].every(name => names.includes(name)), `${names}`);
}

async function echo() {
    const said = 'ünï \u{1F600} "quoted"\\\n\t\u2028 done';
    const result = await call('echo', { text: said });
    assert.ok(!result.isError);
    assert.equal(text(result), said);
}

async function progress() {
    const seen = [];
    const result = await call('steps', {}, { onprogress: step => seen.push(step) });
    assert.equal(text(result), 'done\n');
    assert.deepEqual(
        seen,
        [1, 2, 3, 4, 5].map(n => ({ progress: n, total: 5, message: `step ${n}` })),
    );
}

// PRG-01, PRG-02: a client that waits less long than the tool is silent gets its answer.
async function silentTool() {
    const seen = [];
    const options = { onprogress: step => seen.push(step), resetTimeoutOnProgress: true, timeout: 3_000 };
    const result = await call('silent', {}, options);
    assert.equal(text(result), 'working\ndone\n');
    assert.ok(seen.length >= 4, `${seen.length} heartbeats`);
    const values = seen.map(({ progress }) => progress);
    assert.ok(values.every((value, at) => at === 0 || value > values[at - 1]), `${values}`);
    // The first heartbeat can come before the first line, and the last one after the last line.
    for (const { message } of seen.slice(1, 4)) assert.match(message, /^\d+s: working$/);
}

// MOD-03, MOD-04, STOP-01
async function abort() {
    const mark = freshMark('abort');
    const controller = new AbortController();
    const running = call('tree', { mark }, { signal: controller.signal });
    const ended = running.then(
        () => assert.fail('an aborted call has no result'),
        () => true,
    );
    await treeIsUp(mark);
    controller.abort('no longer needed');
    assert.ok(await ended);
    const took = await isGone(mark);
    const request = sent().find(({ params }) => params?.arguments?.mark === mark);
    const cancels = sent().filter(({ params }) => params?.requestId === request.id);
    assert.equal(cancels.length, 1);
    assert.equal(cancels[0].method, 'notifications/cancelled');
    return `gone after ${took} ms`;
}

// MOD-07
async function inputRequired() {
    questions.length = 0;
    says = { action: 'accept', content: {} };
    assert.equal(text(await call('asks', { what: 'one' })), 'one\n');
    says = { action: 'decline' };
    const declined = await call('asks', { what: 'two' });
    assert.equal(declined.isError, true);
    assert.deepEqual(questions, ['Really one?', 'Really two?']);
    const rounds = sent().filter(({ params }) => params?.arguments?.what === 'one');
    assert.equal(rounds.length, 2, 'the call and its retry');
    assert.notEqual(rounds[0].id, rounds[1].id);
    assert.equal(typeof rounds[1].params.requestState, 'string');
}

// MOD-07: methods that only sessions have, and unknown methods.
async function refusals() {
    // SEP-1303: the model can correct them.
    const wrong = await call('count', { n: 'seven' });
    assert.equal(wrong.isError, true);
    assert.match(wrong.content[0].text, /arguments\/n/);
    await refusal(call('no-such-tool', {}), INVALID_PARAMS);
    const meta = {
        'io.modelcontextprotocol/protocolVersion': REVISION,
        'io.modelcontextprotocol/clientInfo': clientInfo,
        'io.modelcontextprotocol/clientCapabilities': capabilities,
    };
    for (const method of ['ping', 'initialize', 'logging/setLevel', 'tasks/list', 'tasks/result']) {
        const { error } = await transport.ask({ method, params: { _meta: meta } });
        assert.equal(error?.code, METHOD_NOT_FOUND, method);
    }
    // EXT-01
    const params = { name: 'report', arguments: {}, _meta: meta };
    const { error } = await transport.ask({ method: 'tools/call', params });
    assert.equal(error.code, MISSING_CAPABILITY);
    assert.ok('io.modelcontextprotocol/tasks' in error.data.requiredCapabilities.extensions);
}

// MOD-08
async function listen() {
    const subscription = await client.listen({ toolsListChanged: true });
    assert.deepEqual(subscription.honoredFilter, { toolsListChanged: true });
    await subscription.close();
    assert.equal(await subscription.closed, 'local');
    assert.equal(text(await call('echo', { text: 'still here' })), 'still here');
}

// EXT-01, EXT-02, EXT-03
async function task() {
    const execution = await tasks.callTool('report', {});
    assert.equal(execution.kind, 'task');
    const { outcome, lastTask } = await execution.settle();
    assert.equal(outcome.status, 'completed', JSON.stringify(outcome));
    assert.equal(text(outcome.result), 'reported\n');
    assert.equal(lastTask.suggestedPollIntervalMs, 100);
    const failed = await tasks.callTool('fail', {});
    const settled = await failed.settle();
    assert.equal(settled.outcome.status, 'completed', 'a tool error is no failure here');
    assert.equal(settled.outcome.result.isError, true);
}

// EXT-04, STOP-01
async function taskCancel() {
    const mark = freshMark('task');
    const execution = await tasks.callTool('tree', { mark });
    assert.equal(execution.kind, 'task');
    await treeIsUp(mark);
    const outcome = execution.result();
    await execution.cancel();
    assert.equal((await outcome).status, 'cancelled');
    const took = await isGone(mark);
    // The same for a task that has ended.
    await tasks.task(execution.handle.taskId).cancel();
    await assert.rejects(tasks.task('no-such-task').snapshot());
    return `gone after ${took} ms`;
}

// EXT-05
async function taskInput() {
    questions.length = 0;
    says = { action: 'accept', content: {} };
    const execution = await tasks.callTool('asks', { what: 'three' });
    assert.equal(execution.kind, 'task');
    const { outcome } = await execution.settle();
    assert.equal(outcome.status, 'completed', JSON.stringify(outcome));
    assert.equal(text(outcome.result), 'three\n');
    assert.deepEqual(questions, ['Really three?']);
    assert.equal(sent().filter(({ method }) => method === 'tasks/update').length, 1);
}

// MOD-08: subscribers of a task get its status, each time equal to that of `tasks/get`.
async function taskListen() {
    const execution = await tasks.callTool('gate', {
        file: join(setup.record, 'modern-gate'),
        label: 'open',
    });
    const { taskId } = execution.handle;
    const subscribed = {
        notifications: { taskIds: [taskId] },
        _meta: {
            'io.modelcontextprotocol/protocolVersion': REVISION,
            'io.modelcontextprotocol/clientInfo': clientInfo,
            'io.modelcontextprotocol/clientCapabilities': {
                extensions: { 'io.modelcontextprotocol/tasks': {} },
            },
        },
    };
    await transport.send({
        jsonrpc: '2.0',
        id: 'listening',
        method: 'subscriptions/listen',
        params: subscribed,
    });
    await execution.cancel();
    const told = await until('the end is told', () =>
        transport.told.find(({ params }) => params.status === 'cancelled'),
    );
    assert.equal(told.params.taskId, taskId);
    assert.equal(told.params._meta['io.modelcontextprotocol/subscriptionId'], 'listening');
    await transport.send({
        jsonrpc: '2.0',
        method: 'notifications/cancelled',
        params: { requestId: 'listening' },
    });
}

// MOD-08
async function reload() {
    const seen = [];
    client.setNotificationHandler('notifications/tools/list_changed', () => seen.push(1));
    const subscription = await client.listen({ toolsListChanged: true });
    copyFileSync(setup.reload.next, setup.reload.config);
    process.kill(setup.reload.pid, 'SIGHUP');
    await until('it is told', () => seen.length > 0);
    const { tools } = await client.listTools();
    assert.ok(tools.some(({ name }) => name === 'newcomer'));
    await subscription.close();
}

async function noErrors() {
    assert.deepEqual(errors, []);
}

async function close() {
    await tasks.close();
    await client.close();
    const exit = join(folder, 'exit');
    await until('the server ends', () => existsSync(exit), 3_000);
    assert.equal(readFileSync(exit, 'utf8').trim(), '0', 'exit status of the server');
}

const checks = [
    ['connect', connect],
    ['tools_list', listTools],
    ['echo', echo],
    ['progress', progress],
    ['silent_tool', silentTool],
    ['abort', abort],
    ['input_required', inputRequired],
    ['refusals', refusals],
    ['listen', listen],
    ['task', task],
    ['task_cancel', taskCancel],
    ['task_input', taskInput],
    ['task_listen', taskListen],
];
if (setup.reload) checks.push(['reload', reload]);
checks.push(['no_errors', noErrors], ['close', close]);
await run(checks);

// The official TypeScript client, unmodified, drives ceased.
//
// usage: node client.mjs SETUP   (see `Setup` in sdk.rs)

import assert from 'node:assert/strict';
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
    CallToolResultSchema,
    CreateTaskResultSchema,
    EmptyResultSchema,
    LATEST_PROTOCOL_VERSION,
    TaskStatusNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import {
    Connection,
    freshMark,
    isGone,
    processes,
    refusal,
    run,
    setup,
    treeIsUp,
    until,
} from './kit.mjs';

const METHOD_NOT_FOUND = -32601;
const INVALID_PARAMS = -32602;
const REQUEST_TIMEOUT = -32001; // The SDK's own, never on the wire.
const TASK_CANCELLED = -31001;
const RELATED_TASK = 'io.modelcontextprotocol/related-task';

const connection = new Connection('main');
const { client } = connection;
client.setNotificationHandler(TaskStatusNotificationSchema, ({ params }) => {
    connection.statuses.push(params);
});
const tasks = client.experimental.tasks;

const call = (name, args, options) =>
    client.callTool({ name, arguments: args }, CallToolResultSchema, options);
const text = result => result.content.map(part => part.text).join('');

/** Creates a task with one request and one CreateTaskResult. */
async function createTask(name, args, task = { ttl: 60_000 }) {
    const request = { method: 'tools/call', params: { name, arguments: args, task } };
    return (await client.request(request, CreateTaskResultSchema)).task;
}

/** Polls a task at the server's interval until it is in this status. */
async function taskIs(status, taskId) {
    return await until(`task ${taskId} is ${status}`, async () => {
        const task = await tasks.getTask(taskId);
        assert.equal(task.taskId, taskId);
        return task.status === status && task;
    });
}

/** All values of a stream. */
async function drain(stream) {
    const seen = [];
    for await (const message of stream) seen.push(message);
    return seen;
}

async function initialize() {
    await connection.open();
    assert.equal(connection.revision, LATEST_PROTOCOL_VERSION);
    assert.equal(connection.revision, '2025-11-25');
    assert.equal(client.getServerVersion().name, 'ceased');
    const capabilities = client.getServerCapabilities();
    assert.deepEqual(capabilities.tools, { listChanged: true });
    // TSK-01
    assert.deepEqual(capabilities.tasks, {
        list: {},
        cancel: {},
        requests: { tools: { call: {} } },
    });
    assert.ok(capabilities.logging);
    assert.deepEqual(await client.setLoggingLevel('warning'), {});
}

async function listTools() {
    const { tools } = await client.listTools();
    const support = Object.fromEntries(tools.map(t => [t.name, t.execution?.taskSupport]));
    assert.deepEqual(support, {
        echo: 'forbidden',
        sleep: 'optional',
        steps: 'optional',
        tree: 'optional',
        gate: 'optional',
        fail: 'optional',
        count: 'forbidden',
        report: 'required',
        silent: 'forbidden',
    });
    const gate = tools.find(tool => tool.name === 'gate');
    assert.equal(gate.inputSchema.properties.file.type, 'string');
    assert.deepEqual([...gate.inputSchema.required].sort(), ['file', 'label']);
    assert.match(gate.description, /waits until the file exists/);
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
    assert.equal(result.structuredContent.exitCode, 0);
    assert.deepEqual(
        seen,
        [1, 2, 3, 4, 5].map(n => ({ progress: n, total: 5, message: `step ${n}` })),
    );
}

// CAN-06, CAN-08, STOP-01
async function abort() {
    const mark = freshMark('abort');
    const controller = new AbortController();
    const running = call('tree', { mark }, { signal: controller.signal });
    const refused = refusal(running, REQUEST_TIMEOUT);
    await treeIsUp(mark);
    controller.abort('no longer needed');
    await refused;
    const took = await isGone(mark);
    const request = connection.sent().find(({ params }) => params?.arguments?.mark === mark);
    const cancelled = connection.sent().filter(sent => sent.params?.requestId === request.id);
    assert.equal(cancelled.length, 1);
    assert.equal(cancelled[0].params.reason, 'no longer needed');
    await client.ping();
    return `gone after ${took} ms`;
}

async function timeout() {
    const mark = freshMark('timeout');
    // Long enough for the tree to start, so that processes exist to be ended.
    const running = call('tree', { mark }, { timeout: 5_000 });
    const refused = refusal(running, REQUEST_TIMEOUT);
    await treeIsUp(mark);
    const error = await refused;
    assert.match(error.message, /timed out/i);
    return `gone after ${await isGone(mark)} ms`;
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

async function failingTool() {
    const result = await call('fail', {});
    assert.equal(result.isError, true);
    assert.equal(text(result), 'to stdout\nto stderr\nexited with code 3');
    const { durationMs, ...found } = result.structuredContent;
    assert.deepEqual(
        found,
        { exitCode: 3, signal: null, truncated: false, bytes: 20 },
    );
    assert.ok(durationMs >= 0);
}

async function invalidArguments() {
    // SEP-1303: the model can correct them.
    const wrong = await call('count', { n: 'seven' });
    assert.equal(wrong.isError, true);
    assert.match(text(wrong), /arguments\/n/);
    const missing = await call('count', {});
    assert.equal(missing.isError, true);
    assert.match(text(missing), /"n"/);
    assert.equal(text(await call('count', { n: 7 })), '7\n');
}

async function unknownTool() {
    const error = await refusal(call('no-such-tool', {}), INVALID_PARAMS);
    assert.match(error.message, /no-such-tool/);
    const request = { method: 'no/such/method', params: {} };
    await refusal(client.request(request, EmptyResultSchema), METHOD_NOT_FOUND);
}

// TSK-05, TSK-06
async function taskMisuse() {
    const forbidden = await refusal(createTask('echo', { text: 'x' }), METHOD_NOT_FOUND);
    assert.match(forbidden.message, /echo/);
    // `callTool` refuses to send this call.
    const request = { method: 'tools/call', params: { name: 'report', arguments: {} } };
    const required = await refusal(client.request(request, CallToolResultSchema), METHOD_NOT_FOUND);
    assert.match(required.message, /report/);
}

async function parallelCalls() {
    const labels = ['a', 'b', 'c', 'd', 'e', 'f'];
    const file = join(setup.record, 'gate');
    let up = 0;
    const running = labels.map(label =>
        call('gate', { file, label }, { onprogress: () => (up += 1) }),
    );
    const all = Promise.all(running);
    // All trees run before one of them may end.
    await Promise.race([until('all are up', () => up === labels.length), all]);
    assert.equal(up, labels.length, 'one ended before all were up');
    writeFileSync(file, '');
    assert.deepEqual((await all).map(text), labels);
}

async function pingWhileBusy() {
    const mark = freshMark('ping');
    const controller = new AbortController();
    let ended = false;
    const running = call('tree', { mark }, { signal: controller.signal });
    const refused = refusal(running, REQUEST_TIMEOUT).finally(() => (ended = true));
    await treeIsUp(mark);
    const start = Date.now();
    for (let i = 0; i < 20; i += 1) await client.ping({ timeout: 5_000 });
    const took = Date.now() - start;
    assert.ok(!ended);
    controller.abort('enough');
    await refused;
    await isGone(mark);
    return `20 pings in ${took} ms`;
}

async function taskStream() {
    const steps = [];
    const options = { task: { ttl: 60_000 }, onprogress: step => steps.push(step.progress) };
    const stream = tasks.callToolStream({ name: 'steps', arguments: {} }, undefined, options);
    const seen = await drain(stream);
    const [created, ...rest] = seen;
    assert.equal(created.type, 'taskCreated');
    // TSK-09
    assert.equal(created.task.status, 'working');
    assert.equal(created.task.ttl, 60_000);
    assert.equal(created.task.pollInterval, 100);
    const result = rest.pop();
    assert.equal(result.type, 'result');
    assert.equal(text(result.result), 'done\n');
    assert.ok(rest.length > 0 && rest.every(message => message.type === 'taskStatus'));
    assert.equal(rest.at(-1).task.status, 'completed');
    // TSK-33
    assert.deepEqual(steps, [1, 2, 3, 4, 5]);
}

async function taskByHand() {
    const file = join(setup.record, 'gate-task');
    const created = await createTask('gate', { file, label: 'through' });
    assert.equal(created.status, 'working');
    assert.ok(Date.parse(created.createdAt) <= Date.parse(created.lastUpdatedAt));
    assert.equal((await tasks.getTask(created.taskId)).status, 'working');
    // TSK-15: the request blocks while others are answered.
    let answered = false;
    const result = tasks
        .getTaskResult(created.taskId, CallToolResultSchema)
        .finally(() => (answered = true));
    for (let i = 0; i < 10; i += 1) {
        assert.equal((await tasks.getTask(created.taskId)).status, 'working');
    }
    assert.ok(!answered);
    writeFileSync(file, '');
    const value = await result;
    assert.equal(text(value), 'through');
    // TSK-16
    assert.deepEqual(value._meta[RELATED_TASK], { taskId: created.taskId });
    const done = await tasks.getTask(created.taskId);
    assert.equal(done.status, 'completed');
    assert.equal(done.createdAt, created.createdAt);
    // TSK-14: the result can be fetched repeatedly.
    assert.deepEqual(await tasks.getTaskResult(created.taskId, CallToolResultSchema), value);
    // TSK-18
    await until('a status notification', () =>
        connection.statuses.some(
            ({ taskId, status }) => taskId === created.taskId && status === 'completed',
        ),
    );
}

// TSK-17, TSK-23, TSK-24, TSK-25
async function taskCancel() {
    const mark = freshMark('cancel');
    const { taskId } = await createTask('tree', { mark });
    await treeIsUp(mark);
    const waiting = refusal(tasks.getTaskResult(taskId, CallToolResultSchema), TASK_CANCELLED);
    const cancelled = await tasks.cancelTask(taskId);
    assert.equal(cancelled.taskId, taskId);
    assert.equal(cancelled.status, 'cancelled');
    const took = await isGone(mark);
    await waiting;
    assert.equal((await tasks.getTask(taskId)).status, 'cancelled');
    const error = await refusal(
        tasks.getTaskResult(taskId, CallToolResultSchema),
        TASK_CANCELLED,
    );
    assert.match(error.message, /cancelled/);
    const again = await refusal(tasks.cancelTask(taskId), INVALID_PARAMS);
    assert.match(again.message, /cancelled/);
    await until('a status notification', () =>
        connection.statuses.some(task => task.taskId === taskId && task.status === 'cancelled'),
    );
    return `gone after ${took} ms`;
}

// CAN-05: the SDK cancels every request with the signal, including the already answered one that
// created the task. The task continues.
async function streamAbort() {
    const mark = freshMark('stream');
    const controller = new AbortController();
    const options = { task: {}, signal: controller.signal };
    const seen = [];
    const stream = tasks.callToolStream({ name: 'tree', arguments: { mark } }, undefined, options);
    for await (const message of stream) {
        seen.push(message);
        if (message.type === 'taskStatus') {
            await treeIsUp(mark);
            controller.abort('not interested');
        }
    }
    assert.equal(seen.at(-1).type, 'error');
    const { taskId } = seen[0].task;
    assert.equal((await tasks.getTask(taskId)).status, 'working');
    assert.ok(processes(mark).length > 0);
    assert.equal((await tasks.cancelTask(taskId)).status, 'cancelled');
    await isGone(mark);
}

// TSK-43
async function taskFailed() {
    const { taskId } = await createTask('fail', {});
    const task = await taskIs('failed', taskId);
    assert.ok(task.statusMessage);
    const result = await tasks.getTaskResult(taskId, CallToolResultSchema);
    assert.equal(result.isError, true);
    assert.equal(result.structuredContent.exitCode, 3);
    const stream = tasks.callToolStream({ name: 'fail', arguments: {} }, undefined, { task: {} });
    const seen = await drain(stream);
    assert.equal(seen.at(-1).type, 'error');
    assert.match(seen.at(-1).error.message, /failed/);
}

// TSK-27
async function taskUnknown() {
    const taskId = '00000000-0000-4000-8000-000000000000';
    const attempts = [
        tasks.getTask(taskId),
        tasks.getTaskResult(taskId, CallToolResultSchema),
        tasks.cancelTask(taskId),
        tasks.getTask('no id at all'),
    ];
    await Promise.all(attempts.map(attempt => refusal(attempt, INVALID_PARAMS)));
}

// TSK-19, TSK-20, TSK-21, TSK-22
async function taskList() {
    const made = [];
    for (let i = 0; i < 5; i += 1) made.push((await createTask('report', {})).taskId);
    const listed = [];
    let cursor;
    let pages = 0;
    do {
        const page = await tasks.listTasks(cursor);
        assert.ok(page.tasks.length > 0 && page.tasks.length <= 2, 'page_size is 2');
        listed.push(...page.tasks.map(task => task.taskId));
        cursor = page.nextCursor;
        pages += 1;
    } while (cursor !== undefined);
    assert.equal(new Set(listed).size, listed.length, 'a task was listed twice');
    assert.ok(made.every(id => listed.includes(id)), 'a task is missing');
    assert.equal(pages, Math.ceil(listed.length / 2));
    for (const taskId of made) await taskIs('completed', taskId);
    await refusal(tasks.listTasks('no cursor of yours'), INVALID_PARAMS);
    return `${listed.length} tasks on ${pages} pages`;
}

async function reload() {
    const file = join(setup.record, 'gate-reload');
    let up = false;
    const running = call('gate', { file, label: 'kept' }, { onprogress: () => (up = true) });
    await until('the call is up', () => up);
    await refusal(call('newcomer', {}), INVALID_PARAMS);
    copyFileSync(setup.reload.next, setup.reload.config);
    process.kill(setup.reload.pid, 'SIGHUP');
    const tools = await until('tools/list_changed', () => connection.toolLists.at(-1));
    assert.ok(tools.some(tool => tool.name === 'newcomer'));
    assert.ok(!tools.some(tool => tool.name === 'count'));
    assert.equal(text(await call('newcomer', {})), 'new\n');
    await refusal(call('count', { n: 7 }), INVALID_PARAMS);
    writeFileSync(file, '');
    assert.equal(text(await running), 'kept');
}

async function noErrors() {
    assert.deepEqual(connection.errors, []);
}

// A client that ends leaves nothing running, except the tasks of a daemon.
async function close() {
    const callMark = freshMark('left-call');
    const taskMark = freshMark('left-task');
    const left = call('tree', { mark: callMark }).then(
        () => assert.fail('an answer after the end'),
        () => undefined,
    );
    const { taskId } = await createTask('tree', { mark: taskMark });
    await treeIsUp(callMark);
    await treeIsUp(taskMark);
    const took = await connection.close();
    await left;
    await isGone(callMark);
    if (setup.survives) {
        assert.ok(processes(taskMark).length > 0, 'the task went with its client');
        const other = await new Connection('other').open();
        const again = other.client.experimental.tasks;
        assert.equal((await again.getTask(taskId)).status, 'working');
        assert.equal((await again.cancelTask(taskId)).status, 'cancelled');
        await isGone(taskMark);
        await other.close();
    } else {
        await isGone(taskMark);
    }
    return `the server ended after ${took} ms`;
}

await run([
    ['initialize', initialize],
    ['tools_list', listTools],
    ['echo', echo],
    ['progress', progress],
    ['abort', abort],
    ['timeout', timeout],
    ['silent_tool', silentTool],
    ['failing_tool', failingTool],
    ['invalid_arguments', invalidArguments],
    ['unknown_tool', unknownTool],
    ['task_misuse', taskMisuse],
    ['parallel_calls', parallelCalls],
    ['ping_while_busy', pingWhileBusy],
    ['task_stream', taskStream],
    ['task_by_hand', taskByHand],
    ['task_cancel', taskCancel],
    ['stream_abort', streamAbort],
    ['task_failed', taskFailed],
    ['task_unknown', taskUnknown],
    ['task_list', taskList],
    ...(setup.reload ? [['reload', reload]] : []),
    ['no_errors', noErrors],
    ['close', close],
]);

// An agent of version 2 of the official ACP SDK, unmodified. A turn that begins with `stubborn` ends
// by no cancel; one that begins with `latched` ends at once if a cancel arrived after the last turn.
// `terminals` runs two commands, of which one ignores its cancel; `background` leaves one running.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Readable, Writable } from 'node:stream';
import { agent, methods, ndJsonStream } from '@agentclientprotocol/sdk/experimental/v2';

const turns = new Map();
let latched = false;
let count = 0;

const update = (client, sessionId, update) =>
    client.notify(methods.client.session.update, { sessionId, update });
const state = (client, sessionId, state, more = {}) =>
    update(client, sessionId, { sessionUpdate: 'state_update', state, ...more });

const commands = new Map();
const background = new Set();
const listed = () => ({ background: [...background].map(terminalId => ({ type: 'terminal', terminalId })) });

/** Runs a command as a terminal, and tells its end. */
function run(client, sessionId, terminalId) {
    const child = spawn('sleep', ['1000']);
    commands.set(terminalId, child);
    const told = update(client, sessionId, {
        sessionUpdate: 'terminal_update', terminalId, command: 'sleep 1000', capabilities: { cancel: {} },
    });
    return told.then(() => ({
        over: once(child, 'exit').then(([exitCode, signal]) =>
            update(client, sessionId, {
                sessionUpdate: 'terminal_update', terminalId, exitStatus: { exitCode, signal },
            }),
        ),
    }));
}

async function work(client, sessionId, text, turn) {
    if (text.startsWith('terminals')) {
        await state(client, sessionId, 'running');
        const first = await run(client, sessionId, `obeys-${sessionId}`);
        const second = await run(client, sessionId, `ignores-${sessionId}`);
        await Promise.all([first.over, second.over]);
        return state(client, sessionId, 'idle', { stopReason: 'end_turn' });
    }
    if (text.startsWith('background')) {
        await state(client, sessionId, 'running');
        await run(client, sessionId, `background-${sessionId}`);
        background.add(`background-${sessionId}`);
        return state(client, sessionId, 'idle', { stopReason: 'end_turn', ...listed() });
    }
    await state(client, sessionId, 'running');
    for (const word of text.match(/\S+\s*/g)) {
        if (turn.signal.aborted || (text.startsWith('latched') && latched)) break;
        const content = { type: 'text', text: word };
        const messageId = `a${count}`;
        await update(client, sessionId, { sessionUpdate: 'agent_message_chunk', messageId, content });
        await sleep(30);
    }
    if (text.startsWith('stubborn')) return setInterval(() => {}, 1000);
    const isCancelled = turn.signal.aborted || (text.startsWith('latched') && latched);
    await state(client, sessionId, 'idle', { stopReason: isCancelled ? 'cancelled' : 'end_turn' });
}

agent({ name: 'scripted' })
    .onRequest(methods.agent.initialize, () => ({
        protocolVersion: 2,
        info: { name: 'scripted', version: '1' },
        capabilities: { session: {} },
    }))
    .onRequest(methods.agent.session.new, () => ({ sessionId: `session-${++count}` }))
    .onRequest(methods.agent.session.resume, async ({ params, client }) => {
        await state(client, params.sessionId, 'idle');
        return {};
    })
    .onRequest(methods.agent.session.prompt, ({ params, client }) => {
        const turn = new AbortController();
        turns.set(params.sessionId, turn);
        const text = params.prompt.map(block => block.text).join(' ');
        // The turn outlasts the answer of its prompt.
        setImmediate(() => work(client, params.sessionId, text, turn));
        return { messageId: `m${++count}` };
    })
    .onRequest(methods.agent.terminal.cancel, ({ params }) => {
        if (params.terminalId.startsWith('obeys')) commands.get(params.terminalId).kill();
        return {};
    })
    .onRequest(methods.agent.session.close, () => ({}))
    .onNotification(methods.agent.session.cancel, ({ params }) => {
        latched = true;
        turns.get(params.sessionId)?.abort();
    })
    .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));

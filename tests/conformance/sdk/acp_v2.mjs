// The official ACP client of version 2, unmodified, drives an agent of version 2 behind the
// supervisor.
//
// usage: node acp_v2.mjs COMMAND ARG…

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Readable, Writable } from 'node:stream';
import { client, methods, ndJsonStream } from '@agentclientprotocol/sdk/experimental/v2';

const [command, ...rest] = process.argv.slice(2);
const agent = spawn(command, rest, { stdio: ['pipe', 'pipe', 'inherit'] });
const exited = once(agent, 'exit');
const stream = ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));

const said = [];
let onWord = () => {};
let onIdle = () => {};

const app = client({ name: 'test' }).onNotification(methods.client.session.update, ({ params }) => {
    const { update } = params;
    if (update.sessionUpdate === 'terminal_update') {
        terminals.set(update.terminalId, update.exitStatus ?? terminals.get(update.terminalId) ?? null);
        return onWord();
    }
    if (update.sessionUpdate === 'state_update') {
        if (update.background) background = update.background;
        if (update.state === 'idle' && update.stopReason) onIdle(update.stopReason);
        return;
    }
    said.push(update.content.text);
    onWord();
});

const terminals = new Map();
let background;

/** Waits until an update makes a condition true. */
const until = async condition => {
    while (!condition()) await heard();
};

const heard = () => new Promise(resolve => (onWord = resolve));
const LONG = Array(1000).fill('word').join(' ');

/** Begins a turn; the promise in the result is settled with its stop reason. */
const begin = async (ctx, sessionId, text) => {
    const over = new Promise(resolve => (onIdle = resolve));
    said.length = 0;
    const prompt = [{ type: 'text', text }];
    const { messageId } = await ctx.request(methods.agent.session.prompt, { sessionId, prompt });
    assert.ok(messageId);
    return { over };
};

const checks = {
    async streams(ctx, sessionId) {
        const turn = await begin(ctx, sessionId, 'a b c');
        assert.equal(await turn.over, 'end_turn');
        assert.equal(said.join(''), 'a b c');
    },
    async session_cancel(ctx, sessionId) {
        const word = heard();
        const turn = await begin(ctx, sessionId, LONG);
        await word;
        await ctx.notify(methods.agent.session.cancel, { sessionId });
        assert.equal(await turn.over, 'cancelled');
    },
    async stubborn_session_cancel(ctx, sessionId) {
        const word = heard();
        const turn = await begin(ctx, sessionId, 'stubborn');
        await word;
        await ctx.notify(methods.agent.session.cancel, { sessionId });
        assert.equal(await turn.over, 'cancelled');
        const next = await begin(ctx, sessionId, 'a b');
        assert.equal(await next.over, 'end_turn');
        assert.equal(said.join(''), 'a b');
    },
    async late_cancel(ctx, sessionId) {
        const turn = await begin(ctx, sessionId, 'a');
        assert.equal(await turn.over, 'end_turn');
        await ctx.notify(methods.agent.session.cancel, { sessionId });
        const next = await begin(ctx, sessionId, 'latched b');
        assert.equal(await next.over, 'end_turn');
    },
    async cancel_of_one_terminal(ctx, sessionId) {
        const [obeys, ignores] = [`obeys-${sessionId}`, `ignores-${sessionId}`];
        const turn = await begin(ctx, sessionId, 'terminals');
        await until(() => terminals.has(obeys) && terminals.has(ignores));
        await ctx.request(methods.agent.terminal.cancel, { sessionId, terminalId: ignores });
        await until(() => terminals.get(ignores));
        assert.equal(terminals.get(ignores).signal, 'SIGTERM');
        assert.equal(terminals.get(obeys), null);
        await ctx.request(methods.agent.terminal.cancel, { sessionId, terminalId: obeys });
        assert.equal(await turn.over, 'end_turn');
    },
    async background_outlasts_a_cancel(ctx, sessionId) {
        const terminalId = `background-${sessionId}`;
        const first = await begin(ctx, sessionId, 'background');
        assert.equal(await first.over, 'end_turn');
        const list = [{ type: 'terminal', terminalId }];
        assert.deepEqual(background, list);
        const word = heard();
        const turn = await begin(ctx, sessionId, 'stubborn');
        await word;
        background = undefined;
        await ctx.notify(methods.agent.session.cancel, { sessionId });
        assert.equal(await turn.over, 'cancelled');
        assert.deepEqual(background, list);
        assert.equal(terminals.get(terminalId), null);
        await ctx.request(methods.agent.session.close, { sessionId });
    },
};

const done = [];
let failures = 0;
await app.connectWith(stream, async ctx => {
    const info = { name: 'test', version: '1' };
    const hello = await ctx.request(methods.agent.initialize, { protocolVersion: 2, info });
    assert.equal(hello.protocolVersion, 2);
    for (const [name, check] of Object.entries(checks)) {
        const { sessionId } = await ctx.request(methods.agent.session.new, { cwd: '/' });
        try {
            await check(ctx, sessionId);
        } catch (error) {
            failures += 1;
            console.log(`${name} FAILED: ${error.stack}`);
        }
        done.push(name);
    }
});
agent.stdin.end();
const [code] = await exited;
if (code !== 0) {
    failures += 1;
    console.log(`the agent ended with ${code}`);
}
console.log(JSON.stringify({ done, failures }));
process.exit(failures === 0 ? 0 : 1);

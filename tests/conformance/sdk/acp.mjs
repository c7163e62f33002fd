// The official ACP client, unmodified, drives an agent: the example, or one of the same SDK, alone or
// behind the supervisor.
//
// usage: node acp.mjs COMMAND ARG…
//
// With $ACP_STUBBORN, turns that no cancel ends are checked as well.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Readable, Writable } from 'node:stream';
import { client, methods, ndJsonStream } from '@agentclientprotocol/sdk';

const CANCELLED = -32800;
const LONG = Array(1000).fill('word').join(' ');

const [command, ...rest] = process.argv.slice(2);
const agent = spawn(command, rest, { stdio: ['pipe', 'pipe', 'inherit'] });
const exited = once(agent, 'exit');
const stream = ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));

const said = [];
let onWord = () => {};
let onQuestion = null;

const app = client({ name: 'test' })
    .onNotification(methods.client.session.update, ({ params }) => {
        said.push(params.update.content.text);
        onWord();
    })
    .onRequest(methods.client.session.requestPermission, context => onQuestion(context));

const prompt = (sessionId, text) => ({ sessionId, prompt: [{ type: 'text', text }] });
const heard = () => new Promise(resolve => (onWord = resolve));
const isCancelled = error => {
    assert.equal(error.code, CANCELLED, String(error));
    return true;
};

/** A question that gets the answer of `end` when the agent cancels it. */
const untilCancelled = end => {
    let asked;
    const arrived = new Promise(resolve => (asked = resolve));
    onQuestion = async ({ signal }) => {
        asked();
        if (!signal.aborted) await once(signal, 'abort');
        return end(signal);
    };
    return arrived;
};

const checks = {
    async streams(ctx, sessionId) {
        const { stopReason } = await ctx.request(methods.agent.session.prompt, prompt(sessionId, 'a b c'));
        assert.equal(stopReason, 'end_turn');
        assert.equal(said.join(''), 'a b c');
    },
    async cancel_request(ctx, sessionId) {
        const word = heard();
        const abort = new AbortController();
        const turn = ctx.request(methods.agent.session.prompt, prompt(sessionId, LONG), {
            cancellationSignal: abort.signal,
        });
        await word;
        abort.abort();
        await assert.rejects(turn, isCancelled);
        const count = said.length;
        await ctx.request(methods.agent.session.new, { cwd: '/', mcpServers: [] });
        assert.equal(said.length, count, 'nothing is said after the answer');
    },
    async session_cancel(ctx, sessionId) {
        const word = heard();
        const turn = ctx.request(methods.agent.session.prompt, prompt(sessionId, LONG));
        await word;
        await ctx.notify(methods.agent.session.cancel, { sessionId });
        assert.equal((await turn).stopReason, 'cancelled');
    },
    async permission(ctx, sessionId) {
        onQuestion = ({ params }) => ({
            outcome: { outcome: 'selected', optionId: params.options[0].optionId },
        });
        const turn = ctx.request(methods.agent.session.prompt, prompt(sessionId, 'ask me'));
        assert.equal((await turn).stopReason, 'end_turn');
        assert.equal(said.join(''), 'ask me');
    },
    async cascade_of_cancel_request(ctx, sessionId) {
        const question = untilCancelled(signal => signal.throwIfAborted());
        const abort = new AbortController();
        const turn = ctx.request(methods.agent.session.prompt, prompt(sessionId, 'ask me'), {
            cancellationSignal: abort.signal,
        });
        await question;
        abort.abort();
        await assert.rejects(turn, isCancelled);
    },
    async cascade_of_session_cancel(ctx, sessionId) {
        const question = untilCancelled(() => ({ outcome: { outcome: 'cancelled' } }));
        const turn = ctx.request(methods.agent.session.prompt, prompt(sessionId, 'ask me'));
        await question;
        await ctx.notify(methods.agent.session.cancel, { sessionId });
        assert.equal((await turn).stopReason, 'cancelled');
    },
    async unknown_method(ctx) {
        await assert.rejects(ctx.request('_other', {}), error => error.code === -32601);
    },
};

/** A turn that no cancel ends ends nevertheless, and the session goes on in a fresh agent. */
const goesOn = async (ctx, sessionId, cancel) => {
    const word = heard();
    const abort = new AbortController();
    const turn = ctx.request(methods.agent.session.prompt, prompt(sessionId, 'stubborn'), {
        cancellationSignal: abort.signal,
    });
    await word;
    await cancel(turn, abort);
    said.length = 0;
    const next = await ctx.request(methods.agent.session.prompt, prompt(sessionId, 'a b'));
    assert.equal(next.stopReason, 'end_turn');
    assert.equal(said.join(''), 'a b');
};

if (process.env.ACP_STUBBORN) {
    checks.stubborn_session_cancel = (ctx, sessionId) =>
        goesOn(ctx, sessionId, async turn => {
            await ctx.notify(methods.agent.session.cancel, { sessionId });
            assert.equal((await turn).stopReason, 'cancelled');
        });
    checks.stubborn_cancel_request = (ctx, sessionId) =>
        goesOn(ctx, sessionId, async (turn, abort) => {
            abort.abort();
            await assert.rejects(turn, isCancelled);
        });
}

const done = [];
let failures = 0;
await app.connectWith(stream, async ctx => {
    const { protocolVersion } = await ctx.request(methods.agent.initialize, { protocolVersion: 1 });
    assert.equal(protocolVersion, 1);
    for (const [name, check] of Object.entries(checks)) {
        const request = { cwd: '/', mcpServers: [] };
        const { sessionId } = await ctx.request(methods.agent.session.new, request);
        said.length = 0;
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

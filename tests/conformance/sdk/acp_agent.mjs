// An agent of the official ACP SDK, unmodified: the behaviour of examples/acp_agent.rs, and turns
// that begin with `stubborn`, which no cancel ends.

import { setTimeout as sleep } from 'node:timers/promises';
import { Readable, Writable } from 'node:stream';
import { agent, methods, ndJsonStream } from '@agentclientprotocol/sdk';

const PACE = 30;
const turns = new Map();
let sessions = 0;

const wordsOf = text => text.match(/\S+\s*/g) ?? [];

async function prompt({ params, client, signal }) {
    const { sessionId } = params;
    const text = params.prompt.map(block => block.text).join(' ');
    const turn = new AbortController();
    turns.set(sessionId, turn);
    const either = AbortSignal.any([signal, turn.signal]);
    const stopped = () => {
        signal.throwIfAborted();
        return { stopReason: 'cancelled' };
    };
    if (text.startsWith('stubborn')) {
        await client.notify(methods.client.session.update, chunk(sessionId, 'stubborn'));
        await new Promise(() => setInterval(() => {}, 1000));
    }
    if (text.startsWith('ask ')) {
        const request = {
            sessionId,
            toolCall: { toolCallId: 'words', title: text },
            options: [{ optionId: 'yes', name: 'Yes', kind: 'allow_once' }],
        };
        let answer;
        try {
            answer = await client.request(methods.client.session.requestPermission, request, {
                cancellationSignal: either,
            });
        } catch (error) {
            if (!either.aborted) throw error;
        }
        if (either.aborted) return stopped();
        if (answer.outcome.outcome !== 'selected') return { stopReason: 'refusal' };
    }
    for (const word of wordsOf(text)) {
        if (either.aborted) return stopped();
        await client.notify(methods.client.session.update, chunk(sessionId, word));
        await sleep(PACE);
    }
    return { stopReason: 'end_turn' };
}

const chunk = (sessionId, text) => ({
    sessionId,
    update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } },
});

agent({ name: 'scripted' })
    .onRequest(methods.agent.initialize, () => ({
        protocolVersion: 1,
        agentCapabilities: { sessionCapabilities: { resume: {} } },
        authMethods: [],
    }))
    .onRequest(methods.agent.session.new, () => ({ sessionId: `session-${++sessions}` }))
    .onRequest(methods.agent.session.resume, () => ({}))
    .onRequest(methods.agent.session.prompt, prompt)
    .onNotification(methods.agent.session.cancel, ({ params }) => turns.get(params.sessionId)?.abort())
    .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));

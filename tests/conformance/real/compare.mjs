// The official TypeScript client takes the steps of a plan with each server, and prints what came:
// all servers at the same time, the steps of one in their order.

import * as z from 'zod';
import { open, setup, until } from './kit.mjs';

const METHODS = {
    tools: 'tools/list',
    prompts: 'prompts/list',
    resources: 'resources/list',
    templates: 'resources/templates/list',
    call: 'tools/call',
    prompt: 'prompts/get',
    read: 'resources/read',
    complete: 'completion/complete',
    level: 'logging/setLevel',
    subscribe: 'resources/subscribe',
    ping: 'ping',
};

async function drive(server) {
    const { client, transport } = open(server, server.capabilities);
    const notes = [];
    client.fallbackNotificationHandler = async note => void notes.push(note);
    transport.setProtocolVersion = version => (client.revision = version);
    await client.connect(transport);
    // The client loses progress that arrives together with the response; what arrives counts here.
    let steps = [];
    const deliver = transport.onmessage;
    transport.onmessage = (message, extra) => {
        if (message.method === 'notifications/progress') steps.push(message.params);
        deliver(message, extra);
    };
    const seen = {
        initialize: {
            serverInfo: client.getServerVersion(),
            capabilities: client.getServerCapabilities(),
            instructions: client.getInstructions(),
            revision: client.revision,
        },
    };
    for (const { label, op, params = {}, progress, awaits } of server.steps) {
        steps = [];
        const options = { timeout: 60_000 };
        if (progress) options.onprogress = () => {};
        try {
            // With this schema the client changes nothing of a result.
            const result = await client.request({ method: METHODS[op], params }, z.any(), options);
            seen[label] = { result: progress ? { ...result, steps } : result };
        } catch (error) {
            seen[label] = { error: { code: error.code, message: error.message, data: error.data } };
        }
        if (awaits) {
            seen[label].note = await until(`${awaits} for ${label}`, () =>
                notes.find(note => note.method === awaits),
            ).catch(error => String(error));
        }
    }
    await client.close();
    return seen;
}

const all = setup.servers.map(async server => [server.name, await drive(server)]);
console.log(JSON.stringify(Object.fromEntries(await Promise.all(all))));
process.exit(0);

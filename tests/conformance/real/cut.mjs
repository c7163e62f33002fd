// Calls of real servers are cancelled, their client closes, or their process is killed, in the
// middle of the work; afterwards no process may be left. Prints the result of each case.

import { setTimeout as sleep } from 'node:timers/promises';
import { open, processes, setup, until } from './kit.mjs';

async function cut(server) {
    const { client, transport } = open(server);
    await client.connect(transport);
    const stop = new AbortController();
    const options = { signal: stop.signal, timeout: 120_000, onprogress: () => {} };
    const call = client.callTool(server.call, undefined, options).then(
        result => `it was answered: ${JSON.stringify(result)}`,
        () => undefined,
    );
    await until(`${server.name} works`, () =>
        processes(server.mark).some(process => process.includes(server.shows)),
    );
    const before = processes(server.mark).length;
    // A call that shows no process of its own is in the server by now.
    await sleep(300);
    const left = async how =>
        until('', () => processes(server.mark).filter(how).length === 0, setup.within).then(
            () => [],
            () => processes(server.mark).filter(how),
        );
    const seen = { before };
    if (server.cut === 'cancel') {
        stop.abort('enough');
        // The server itself lives on, for the next call; the work of the cancelled one does not.
        seen.left = await left(process => server.work && process.includes(server.work));
        const next = client.callTool(server.next, undefined, { timeout: setup.within });
        seen.next = await next.then(
            result => (result.isError ? JSON.stringify(result) : 'answered'),
            error => String(error),
        );
        seen.answered = await call;
        await client.close();
        seen.end = await left(() => true);
    } else if (server.cut === 'close') {
        await client.close();
        seen.end = await left(() => true);
    } else {
        process.kill(transport.pid, 'SIGKILL');
        seen.end = await left(() => true);
    }
    return seen;
}

const all = setup.servers.map(async server => [server.name, await cut(server)]);
console.log(JSON.stringify(Object.fromEntries(await Promise.all(all))));
process.exit(0);

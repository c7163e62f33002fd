// The script of `ceased probe --client` with a client of the TypeScript SDKs.

export async function run(client, transport, call) {
    try {
        await client.connect(transport, { timeout: 3000 });
        await call('abort', { signal: AbortSignal.timeout(1000) }).catch(() => {});
        await call('timeout', { timeout: 1000 }).catch(() => {});
        await call('echo');
    } finally {
        await client.close();
    }
}

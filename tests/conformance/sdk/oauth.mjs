// The official TypeScript client, unmodified, authorizes at an authorization server and calls ceased.
//
// usage: node oauth.mjs URL

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const url = new URL(process.argv[2]);
let code;
const provider = {
    redirectUrl: 'http://127.0.0.1:1/callback',
    clientMetadata: {
        client_name: 'ceased tests',
        redirect_uris: ['http://127.0.0.1:1/callback'],
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        token_endpoint_auth_method: 'none',
    },
    clientInformation() { return this.client; },
    saveClientInformation(client) { this.client = client; },
    tokens() { return this.kept; },
    saveTokens(tokens) { this.kept = tokens; },
    saveCodeVerifier(verifier) { this.verifier = verifier; },
    codeVerifier() { return this.verifier; },
    async redirectToAuthorization(place) {
        const visited = await fetch(place, { redirect: 'manual' });
        code = new URL(visited.headers.get('location')).searchParams.get('code');
    },
};
const connect = async () => {
    const transport = new StreamableHTTPClientTransport(url, { authProvider: provider });
    const client = new Client({ name: 'ceased-sdk-tests', version: '1.0.0' });
    try {
        await client.connect(transport);
        return client;
    } catch (error) {
        if (!(error instanceof UnauthorizedError) || !code) throw error;
        await transport.finishAuth(code);
        return undefined;
    }
};
const client = (await connect()) ?? (await connect());
const said = await client.callTool({ name: 'echo', arguments: { text: 'authorized' } });
console.log(said.content[0].text, provider.kept.scope);
await client.close();

// The tool `echo` at /mcp, by the TypeScript SDK. Its argument is the port.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

const sessions = new Map();

async function begin() {
    const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: true,
        onsessioninitialized: id => sessions.set(id, transport)
    });
    const server = new McpServer({ name: 'echo', version: '1.0.0' });
    server.registerTool('echo', { inputSchema: { text: z.string() } }, async ({ text }) => ({
        content: [{ type: 'text', text }]
    }));
    await server.connect(transport);
    return transport;
}

const server = createServer(async (request, response) => {
    const known = sessions.get(request.headers['mcp-session-id']);
    await (known ?? (await begin())).handleRequest(request, response);
});
// Rounds of other servers are longer than the 5 seconds of Node.js.
server.keepAliveTimeout = 600_000;
server.listen(Number(process.argv[2]), '127.0.0.1');

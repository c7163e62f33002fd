// The tools `echo` and `large` on pipes, by the TypeScript SDK.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { z } from 'zod';

const server = new McpServer({ name: 'relayed', version: '1.0.0' });
const answer = text => ({ content: [{ type: 'text', text }] });
server.registerTool('echo', { inputSchema: { text: z.string() } }, async ({ text }) => answer(text));
server.registerTool('large', { inputSchema: { bytes: z.number() } }, async ({ bytes }) => answer('x'.repeat(bytes)));
await server.connect(new StdioServerTransport());

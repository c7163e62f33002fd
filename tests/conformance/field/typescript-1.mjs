// The server of the TypeScript SDK 1.x.

import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { z } from 'zod';
import { echo, sleep, stubborn } from './kit.mjs';

const server = new McpServer({ name: 'typescript-sdk', version: '1.32.2' });
const seconds = { seconds: z.number() };
server.registerTool('echo', { inputSchema: { text: z.string() } }, ({ text }) => echo(text));
server.registerTool('sleep', { inputSchema: seconds }, (it, { signal }) => sleep(it.seconds, signal));
server.registerTool('stubborn', { inputSchema: seconds }, (it, { signal }) => stubborn(it.seconds, signal));
await server.connect(new StdioServerTransport());

// The server of the TypeScript SDK 2.x.

import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';
import { echo, sleep, stubborn } from './kit.mjs';

const seconds = z.object({ seconds: z.number() });
serveStdio(() => {
    const server = new McpServer({ name: 'typescript-sdk', version: '2.4.0' });
    server.registerTool('echo', { inputSchema: z.object({ text: z.string() }) }, ({ text }) => echo(text));
    server.registerTool('sleep', { inputSchema: seconds }, (it, { mcpReq }) => sleep(it.seconds, mcpReq.signal));
    server.registerTool('stubborn', { inputSchema: seconds }, (it, { mcpReq }) => stubborn(it.seconds, mcpReq.signal));
    return server;
});

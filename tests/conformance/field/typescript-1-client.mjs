// The client of the TypeScript SDK 1.x.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { run } from './client.mjs';

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'typescript-sdk', version: '1.32.2' });
const call = (name, options) => client.callTool({ name, arguments: {} }, undefined, options);
await run(client, new StdioClientTransport({ command, args }), call);

// The client of the TypeScript SDK 2.x.

import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { run } from './client.mjs';

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'typescript-sdk', version: '2.4.0' });
const call = (name, options) => client.callTool({ name, arguments: {} }, options);
await run(client, new StdioClientTransport({ command, args }), call);

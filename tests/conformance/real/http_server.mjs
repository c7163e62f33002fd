// A server over HTTP of both eras, of the TypeScript SDK. It writes a line with its port, and one for
// each call that was begun or aborted.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from "@modelcontextprotocol/node";
import { createMcpHandler, isLegacyRequest, McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";

const say = (line) => console.log(JSON.stringify(line));
const text = (text) => ({ content: [{ type: "text", text }] });

function server() {
  const server = new McpServer({ name: "far", version: "1" });
  server.registerTool("echo", { inputSchema: z.object({ text: z.string() }) }, (given) => text(given.text));
  server.registerTool("steps", { inputSchema: z.object({}) }, async (_, { mcpReq }) => {
    const progressToken = mcpReq._meta?.progressToken;
    for (const progress of [1, 2]) {
      await mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: 2 } });
    }
    return text("done");
  });
  server.registerTool("hold", { inputSchema: z.object({ mark: z.string() }) }, async ({ mark }, { mcpReq }) => {
    say({ begun: mark });
    await new Promise((ended) => mcpReq.signal.addEventListener("abort", ended));
    say({ aborted: mark });
    return text(mark);
  });
  return server;
}

const sessions = new Map();
const modern = toNodeHandler(createMcpHandler(server, { legacy: "reject" }));

async function legacy(request, response, body) {
  let transport = sessions.get(request.headers["mcp-session-id"]);
  if (!transport) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await server().connect(transport);
  }
  await transport.handleRequest(request, response, body);
}

const listener = createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = pieces.length ? JSON.parse(Buffer.concat(pieces).toString()) : undefined;
  const is_legacy = await isLegacyRequest(await toWebRequest(request, body), body);
  await (is_legacy ? legacy : modern)(request, response, body);
});
listener.listen(0, "127.0.0.1", () => say({ listening: listener.address().port }));

// A server of the TypeScript SDK 2 with a tool for each question to its client, in the way of each
// era, and one that logs.

import { McpServer, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const FORM = {
  mode: "form",
  message: "Your name?",
  requestedSchema: { type: "object", properties: { value: { type: "string" } }, required: ["value"] },
};
const WORDS = {
  messages: [{ role: "user", content: { type: "text", text: "Say hello." } }],
  maxTokens: 10,
};
const QUESTIONS = {
  elicit: {
    request: () => inputRequired.elicit(FORM),
    ask: (_, ctx) => ctx.mcpReq.elicitInput(FORM),
    told: (answer) => `${answer.action} ${answer.content?.value}`,
  },
  sample: {
    request: () => inputRequired.createMessage(WORDS),
    ask: (_, ctx) => ctx.mcpReq.requestSampling(WORDS),
    told: (answer) => answer.content.text,
  },
  roots: {
    request: () => inputRequired.listRoots(),
    ask: (server) => server.server.listRoots(),
    told: (answer) => answer.roots.map((root) => root.uri).join(" "),
  },
};
const text = (said) => ({ content: [{ type: "text", text: said }] });

serveStdio((opening) => {
  const server = new McpServer({ name: "asking", version: "1.0.0" }, { capabilities: { tools: {}, logging: {} } });
  for (const [name, { request, ask, told }] of Object.entries(QUESTIONS)) {
    server.registerTool(name, { description: "Asks its client." }, async (ctx) => {
      if (opening.era !== "modern") return text(told(await ask(server, ctx)));
      const answer = ctx.mcpReq.inputResponses?.[name];
      return answer === undefined ? inputRequired({ inputRequests: { [name]: request() } }) : text(told(answer));
    });
  }
  server.registerTool("log", { description: "Writes a log line." }, async (ctx) => {
    await ctx.mcpReq.log("info", "a line");
    return text("logged");
  });
  return server;
});

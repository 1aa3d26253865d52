// A server of 2026-07-28, made with the official TypeScript SDK: `node server.mjs http` prints its
// URL once it listens, `node server.mjs stdio` serves on standard input and output.
//
// Its tools are those of the application in ../stateless.py.

import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import {
  InMemoryServerEventBus, McpServer, acceptedContent, createMcpHandler, createRequestStateCodec,
  fromJsonSchema, inputRequired,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const bus = new InMemoryServerEventBus();
const state = createRequestStateCodec({ key: 'a key for tests, of thirty-two bytes' });
let noteCancellation;
const isCancelled = new Promise((resolve) => { noteCancellation = resolve; });
const text = (value) => ({ content: [{ type: 'text', text: value }] });
const object = (properties) => fromJsonSchema({ type: 'object', properties });
const REGION = { type: 'string', 'x-mcp-header': 'Region' };
const NAME = { type: 'object', properties: { name: { type: 'string' } } };

function makeServer() {
  const server = new McpServer(
    { name: 'official', version: '1' },
    { capabilities: { tools: { listChanged: true } }, requestState: { verify: state.verify } },
  );
  const tool = (name, properties, run) =>
    server.registerTool(name, { inputSchema: object(properties) }, run);

  tool('region', { region: REGION }, async ({ region }) => text(region));

  tool('count', { steps: { type: 'integer' } }, async ({ steps }, context) => {
    const progressToken = context.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= steps; progress++) {
      const params = { progressToken, progress, total: steps };
      await context.mcpReq.notify({ method: 'notifications/progress', params });
    }
    return text('counted');
  });

  tool('greet', {}, async (_, context) => {
    const answer = acceptedContent(context.mcpReq.inputResponses, 'who');
    if (answer === undefined) {
      const question = inputRequired.elicit({ message: 'name?', requestedSchema: NAME });
      const requestState = await state.mint('Hello', context);
      return inputRequired({ inputRequests: { who: question }, requestState });
    }
    return text(`${context.mcpReq.requestState()} ${answer.name}`);
  });

  tool('hang', {}, (_, context) => new Promise(() => {
    context.mcpReq.signal.addEventListener('abort', noteCancellation);
    const progressToken = context.mcpReq._meta?.progressToken;
    context.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: 1 } });
  }));

  tool('cancelled', {}, async () => {
    await isCancelled;
    return text('a call was cancelled');
  });

  tool('change', {}, async () => {
    bus.publish({ kind: 'tools_list_changed' });
    server.sendToolListChanged();
    return text('changed');
  });
  return server;
}

if (process.argv[2] === 'stdio') {
  serveStdio(makeServer, { legacy: 'reject' });
} else {
  const handler = toNodeHandler(createMcpHandler(makeServer, { bus, legacy: 'reject' }));
  const http = createServer(handler);
  http.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
}

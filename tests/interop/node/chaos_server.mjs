// A server made with the official TypeScript SDK: `node chaos_server.mjs PORT`. Its tool is that of
// ../chaos/servers.py.

import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout } from 'node:timers/promises';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler, fromJsonSchema } from '@modelcontextprotocol/server';

const inputSchema = fromJsonSchema({
  type: 'object',
  properties: {
    marker: { type: 'string' }, steps: { type: 'integer' }, size: { type: 'integer' },
  },
});

function makeServer() {
  const server = new McpServer({ name: 'chaos', version: '1' });
  server.registerTool('work', { inputSchema }, async ({ marker, steps, size }, context) => {
    appendFileSync(process.env.CHAOS_LOG, `${marker}\n`);
    const progressToken = context.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= steps; progress++) {
      await setTimeout(50);
      const params = { progressToken, progress, total: steps };
      await context.mcpReq.notify({ method: 'notifications/progress', params });
    }
    return { content: [{ type: 'text', text: `${marker} ${'x'.repeat(size)}` }] };
  });
  return server;
}

createServer(toNodeHandler(createMcpHandler(makeServer))).listen(Number(process.argv[2]), '127.0.0.1');

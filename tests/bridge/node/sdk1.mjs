// A client made with the official TypeScript SDK, 1.x: `node sdk1.mjs http|sse URL` or `node
// sdk1.mjs stdio COMMAND ARGUMENTS` uses what the example application offers, and prints what it
// got, as JSON.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [type, target, ...args] = process.argv.slice(2);
const transports = {
  http: () => new StreamableHTTPClientTransport(new URL(target)),
  sse: () => new SSEClientTransport(new URL(target)),
  stdio: () => new StdioClientTransport({ command: target, args, env: process.env }),
};
const capabilities = { elicitation: {}, sampling: {} };
const client = new Client({ name: 'official', version: '1' }, { capabilities });
const found = { progress: [] };
client.setRequestHandler(ElicitRequestSchema, (request) => {
  found.asked = request.params.message;
  return { action: 'accept', content: { topic: 'sea' } };
});
client.setRequestHandler(CreateMessageRequestSchema, (request) => {
  found.sampled = request.params.messages[0].content.text;
  return { role: 'assistant', model: 'm', content: { type: 'text', text: 'waves' } };
});
const call = (name, parameters = {}, options = {}) =>
  client.callTool({ name, arguments: parameters }, undefined, options);
const text = (result) => result.content[0].text;

await client.connect(transports[type]());
found.server = client.getServerVersion();
found.instructions = client.getInstructions();
found.tools = (await client.listTools()).tools.map((tool) => tool.name);
found.echo = text(await call('echo', { text: 'hällo\u2028' }));
found.big = text(await call('big', { bytes: 300000 })).length;
const onprogress = ({ progress }) => found.progress.push(progress);
found.slow = text(await call('slow', { steps: 4, delay: 0.01 }, { onprogress }));
found.ask = text(await call('ask'));
found.fail = (await call('fail')).isError;
found.unknown = await call('unknown').catch((error) => [error.code, error.data]);
found.resources = (await client.listResources()).resources;
found.greeting = (await client.readResource({ uri: 'example://greeting' })).contents;
found.prompt = (await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } })).messages;
const giveUp = new AbortController();
const hanging = call('slow', { steps: 3, delay: 60 }, { signal: giveUp.signal });
setTimeout(() => giveUp.abort(), 50);
found.cancelled = await hanging.then(() => 'ended', () => 'given up');
found.ping = await client.ping();
await client.close();
console.log(JSON.stringify(found));
process.exit(0);

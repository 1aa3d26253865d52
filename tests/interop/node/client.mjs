// A client of 2026-07-28, made with the official TypeScript SDK: `node client.mjs URL` or
// `node client.mjs COMMAND ARGUMENTS` uses all tools of the application in ../stateless.py and
// prints what came of it, as JSON.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [target, ...args] = process.argv.slice(2);
const client = new Client(
  { name: 'official', version: '1' },
  {
    capabilities: { elicitation: {} },
    versionNegotiation: { mode: { pin: '2026-07-28' } },
  },
);
const found = { progress: [] };
client.setRequestHandler('elicitation/create', async (request) => {
  found.asked = request.params.message;
  return { action: 'accept', content: { name: 'Ada' } };
});
const changed = new Promise((resolve) => {
  client.setNotificationHandler('notifications/tools/list_changed', resolve);
});

const call = async (name, parameters = {}, options = {}) => {
  const result = await client.callTool({ name, arguments: parameters }, options);
  return result.content[0].text;
};

await client.connect(
  target.startsWith('http')
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args, env: process.env }),
);
found.version = client.getNegotiatedProtocolVersion();
found.server = client.getServerVersion().name;
found.tools = (await client.listTools()).tools.map((tool) => tool.name);
found.region = await call('region', { region: 'Zürich ' });
const onprogress = ({ progress }) => found.progress.push(progress);
found.count = await call('count', { steps: 4 }, { onprogress });
found.greet = await call('greet');

const subscription = await client.listen({ toolsListChanged: true });
found.honored = subscription.honoredFilter;
await call('change');
await changed;
await subscription.close();
found.closed = await subscription.closed;

const giveUp = new AbortController();
const hanging = call('hang', {}, { signal: giveUp.signal, onprogress: () => giveUp.abort() });
found.hang = await hanging.then(() => 'ended', () => 'given up');
found.cancelled = await call('cancelled');
found.error = await call('no such tool').catch((error) => error.code);

await client.close();
console.log(JSON.stringify(found));

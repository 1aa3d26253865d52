// A client of tasks, made with the official TypeScript SDK and its extension: `node
// tasks_client.mjs URL` or `node tasks_client.mjs COMMAND ARGUMENTS` uses the tools of
// ../task_tools.py and prints what came of it, as JSON.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';

const [target, ...args] = process.argv.slice(2);
const protocolVersion = '2026-07-28';
const clientInfo = { name: 'official', version: '1' };
const clientCapabilities = { elicitation: {} };
const client = new Client(clientInfo, {
  capabilities: clientCapabilities,
  versionNegotiation: { mode: { pin: protocolVersion } },
});
const transport = target.startsWith('http')
  ? new StreamableHTTPClientTransport(new URL(target))
  : new StdioClientTransport({ command: target, args, env: process.env });
await client.connect(transport);

// The extension sends its requests past the client, which does not know their results, but on the
// same transport.
const waiting = new Map();
const receive = transport.onmessage;
transport.onmessage = (message, extra) => {
  const settle = waiting.get(message.id);
  if (settle === undefined || message.method !== undefined) return receive(message, extra);
  waiting.delete(message.id);
  settle(message.error ? { kind: 'error', error: message.error } : { kind: 'result', result: message.result });
};
let requests = 0;
const rawDispatch = (request) => new Promise((resolve, reject) => {
  const id = `task request ${++requests}`;
  waiting.set(id, resolve);
  transport.send({ jsonrpc: '2.0', id, ...request }).catch(reject);
});

const NAMES = { first: 'Ada', last: 'Lovelace' };
const session = createTaskSessionFromClient(client, {
  endpointId: 'ours',
  rawDispatch,
  v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities },
  onInputRequest: async ({ params }) => ({ action: 'accept', content: { name: NAMES[params.message] } }),
});
const KINDS = { now: 'immediate', cancelled: 'immediate' };
const start = async (name) => {
  const execution = await session.callTool(name);
  if (execution.kind !== (KINDS[name] ?? 'task')) throw new Error(`${name} is ${execution.kind}`);
  return execution;
};
const call = async (name) => {
  const { outcome } = await (await start(name)).settle();
  return outcome.status === 'completed' ? outcome.result.content[0].text : outcome.error.message;
};

const found = { version: client.getNegotiatedProtocolVersion() };
for (const name of ['now', 'greet', 'ask_before', 'refuse', 'fail']) found[name] = await call(name);

// What was written down about a task is enough to get its result.
let written;
await (await start('work')).handoff((reference) => { written = JSON.stringify(reference); });
const outcome = await session.task(JSON.parse(written).taskId).result();
found.work = outcome.result.content[0].text;

const hanging = await start('hang');
const settled = hanging.settle();
await hanging.cancel();
found.hang = (await settled).outcome.status;
found.cancelled = await call('cancelled');
found.unknown = await session.task('no-such-task-1234').snapshot().catch((error) => error.code);

await session.close();
await client.close();
console.log(JSON.stringify(found));

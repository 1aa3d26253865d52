// A client made with Vercel's AI SDK: `node ai_sdk.mjs http|sse URL` or `node ai_sdk.mjs stdio
// COMMAND ARGUMENTS` uses what the example application offers, and prints what it got, as JSON.

import { ElicitationRequestSchema, createMCPClient } from '@ai-sdk/mcp';
import { Experimental_StdioMCPTransport as Stdio } from '@ai-sdk/mcp/mcp-stdio';

const [type, target, ...args] = process.argv.slice(2);
const client = await createMCPClient({
  transport:
    type === 'stdio'
      ? new Stdio({ command: target, args, env: process.env })
      : { type, url: target },
  capabilities: { elicitation: {} },
});
const found = { server: client.serverInfo, instructions: client.instructions };
client.onElicitationRequest(ElicitationRequestSchema, (request) => {
  found.asked = request.params;
  return { action: 'decline' };
});
const text = (result) => result.content[0].text;

const tools = await client.tools();
found.tools = Object.keys(tools);
const context = { toolCallId: '1', messages: [] };
found.echo = text(await tools.echo.execute({ text: 'hällo\u2028' }, context));
found.big = text(await client.callTool({ name: 'big', arguments: { bytes: 300000 } })).length;
found.slow = text(await client.callTool({ name: 'slow', arguments: { steps: 4, delay: 0.01 } }));
found.fail = (await client.callTool({ name: 'fail' })).isError;
found.unknown = await client.callTool({ name: 'unknown' }).catch((error) => String(error));
found.ask = await client.callTool({ name: 'ask' }).catch((error) => String(error));
found.resources = (await client.listResources()).resources;
found.greeting = (await client.readResource({ uri: 'example://greeting' })).contents;
found.prompts = (await client.experimental_listPrompts?.())?.prompts;
await client.close();
console.log(JSON.stringify(found));
process.exit(0);

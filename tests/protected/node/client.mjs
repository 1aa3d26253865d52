// A program that gets a token for itself, made with the official TypeScript SDK: `node client.mjs
// URL ISSUER` calls both tools of our server, of which the second needs a further scope, and prints
// what they say.

import {
  Client,
  ClientCredentialsProvider,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';

const [url, expectedIssuer] = process.argv.slice(2);
const authProvider = new ClientCredentialsProvider({
  clientId: 'robot',
  clientSecret: 'robot-secret',
  expectedIssuer,
});
const client = new Client({ name: 'official', version: '1' });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { authProvider }));
for (const name of ['who', 'wipe']) {
  console.log((await client.callTool({ name, arguments: {} })).content[0].text);
}
await client.close();

// Skills with the official TypeScript SDK, on standard input and output: `node skills.mjs serve
// FOLDER` serves those of a folder, and `node skills.mjs read COMMAND ARGUMENTS` prints, as JSON, what
// its client finds at a server.

import { Client } from '@modelcontextprotocol/client';
import { SkillsClient } from '@modelcontextprotocol/client/ext/skills';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { McpServer } from '@modelcontextprotocol/server';
import { loadSkills } from '@modelcontextprotocol/server/ext/skills/node';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const [what, target, ...args] = process.argv.slice(2);

async function serve() {
  const catalog = await loadSkills(target);
  serveStdio(() => {
    const server = new McpServer({ name: 'official', version: '1' });
    catalog.attach(server);
    return server;
  });
}

async function read() {
  const client = new Client(
    { name: 'official', version: '1' },
    { versionNegotiation: { mode: { pin: '2026-07-28' } } },
  );
  await client.connect(new StdioClientTransport({ command: target, args, env: process.env }));
  const skills = new SkillsClient(client);
  const listed = (await skills.list()).skills;
  const found = { uris: listed.map((each) => each.uri), texts: [] };
  if (skills.supported) {
    const { skill } = await skills.get(listed[0].uri);
    found.frontmatter = skill.frontmatter;
    for (const path of [undefined, 'references/branches.md']) {
      const file = await skills.read(skill, path);
      found.texts.push(new TextDecoder().decode(file.bytes));
    }
  }
  console.log(JSON.stringify(found));
  await client.close();
}

await (what === 'serve' ? serve() : read());

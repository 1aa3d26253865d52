// A client made with the official TypeScript SDK: `node chaos_client.mjs ERA CALLS PREFIX`. It does
// what ../chaos/clients.py does, and prints the same.

import { createInterface } from 'node:readline/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [era, calls, prefix] = process.argv.slice(2);
const TIMEOUT = 10_000;
const HUNG = 25_000;
const OPENINGS = 5;
const MODERN = '2026-07-28';

let url, quietAt;
const say = (what) => console.log(JSON.stringify(what));
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const name = (error) => `${error.name}: ${error.message}`.slice(0, 200);
const HANGS = Symbol('hung');
const orHung = (promise) => Promise.race([promise, sleep(HUNG).then(() => HANGS)]);

// An error that no call is told of must not end the program.
process.on('unhandledRejection', (error) => say({ unhandled: name(error) }));

let client;

async function open() {
  if (client !== undefined) await orHung(client.close().catch((error) => say({ closing: name(error) })));
  for (let attempt = 0; attempt < OPENINGS; attempt++) {
    const began = Date.now();
    const settings = era === MODERN ? { versionNegotiation: { mode: { pin: MODERN } } } : {};
    client = new Client({ name: 'chaos', version: '1' }, settings);
    const connecting = client.connect(new StreamableHTTPClientTransport(new URL(url)), { timeout: TIMEOUT });
    const failed = await orHung(connecting.then(() => undefined, (error) => name(error)));
    if (failed === undefined) {
      say({ revision: client.getNegotiatedProtocolVersion() });
      return true;
    }
    const seconds = (Date.now() - began) / 1000;
    say({ opening: failed === HANGS ? 'hung' : failed, seconds });
    await orHung(client.close().catch(() => {}));
  }
  return false;
}

async function call(marker, number) {
  const [steps, size] = number % 2 ? [0, 200] : [5, 1000];
  const began = Date.now();
  let why = '';
  const options = { timeout: TIMEOUT, onprogress: () => {} };
  const calling = client.callTool({ name: 'work', arguments: { marker, steps, size } }, options);
  let outcome = await orHung(calling.then(
    (result) => (result.content[0].text === `${marker} ${'x'.repeat(size)}` ? 'completed' : 'wrong'),
    (error) => { why = name(error); return 'error'; },
  ));
  if (outcome === HANGS) outcome = 'hung';
  say({ marker, outcome, why, seconds: (Date.now() - began) / 1000 });
  return outcome === 'completed';
}

async function main() {
  let failures = 2;
  for (let number = 1; number <= Number(calls); number++) {
    if (failures === 2) {
      failures = 0;
      if (!await open()) return;
    }
    failures = await call(`${prefix}-${number}`, number) ? 0 : failures + 1;
  }
  await sleep(Math.max(Number(quietAt) * 1000 - Date.now(), 0));
  await call(`${prefix}-after`, 0);
  await orHung(client.close());
}

say({ ready: 'TypeScript' });
[url, quietAt] = (await createInterface({ input: process.stdin }).question('')).split(' ');
await main();
process.exit(0);

// Reads an event stream with eventsource-parser, so many times as it is told: the stream comes on
// standard input, the bytes of a chunk and the times are arguments. Prints how many events there
// are, and the seconds of processor time that all times together have taken, the least of some.

import { readFileSync } from "node:fs";
import { createParser } from "eventsource-parser";

const WARM = 20; // times before, for the compiler

const [size, times] = process.argv.slice(2).map(Number);
const stream = readFileSync(0);
const chunks = [];
for (let start = 0; start < stream.length; start += size) {
  chunks.push(stream.subarray(start, start + size));
}

function read() {
  let count = 0;
  const decoder = new TextDecoder();
  const parser = createParser({
    onEvent(event) {
      if (event.data) count += 1;
    },
  });
  for (const chunk of chunks) parser.feed(decoder.decode(chunk, { stream: true }));
  return count;
}

function seconds(times) {
  const start = process.cpuUsage();
  for (let time = 0; time < times; time += 1) read();
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1e6;
}

const count = read();
seconds(size < 64 ? 1 : WARM);
console.log(count, Math.min(...Array.from({ length: 5 }, () => seconds(times))));

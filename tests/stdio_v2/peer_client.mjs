// A client of 2026-07-28 on stdio-v2, with the HTTP/2 of Node.js alone: node peer_client.mjs COMMAND
import { spawn } from "node:child_process";
import http2 from "node:http2";
import { Duplex } from "node:stream";

const [program, ...words] = process.argv.slice(2);
const child = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
const pipes = Duplex.from({ readable: child.stdout, writable: child.stdin });
const session = http2.connect("http://localhost", { createConnection: () => pipes });

function request(id, name, args) {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const params = { name, arguments: args, _meta: meta };
  const stream = session.request({
    ":method": "POST",
    ":path": "/mcp",
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": name,
  });
  stream.end(JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params }));
  return stream;
}

function call(id, name, args) {
  return new Promise((resolve, reject) => {
    const stream = request(id, name, args);
    let body = "";
    stream.setEncoding("utf8");
    stream.on("data", (piece) => (body += piece));
    stream.on("end", () => {
      const json = body.startsWith("{") ? body : body.split("data: ").pop();
      resolve(JSON.parse(json).result.content[0].text);
    });
    stream.on("error", reject);
  });
}

const told = {};
const large = "ä".repeat(500_000);
told.large = (await call(1, "echo", { text: large })) === large;
told.grown = (await call(2, "large", { size: 2_000_000 })).length;
const slow = request(3, "sleep", { seconds: 60 });
slow.on("error", () => {});
const many = await Promise.all(
  [...Array(100).keys()].map((each) => call(10 + each, "echo", { text: `${each}` })),
);
told.many = many.every((text, each) => text === `${each}`);
slow.close(http2.constants.NGHTTP2_CANCEL);
told.after = await call(4, "echo", { text: "after" });
session.close();
child.stdin.end();
child.on("exit", (status) => {
  console.log(JSON.stringify({ ...told, status }));
  process.exit(0);
});

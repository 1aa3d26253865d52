// A server of 2026-07-28 on stdio-v2, with the HTTP/2 of Node.js alone.
import http2 from "node:http2";
import { Duplex } from "node:stream";

const pipes = Duplex.from({ readable: process.stdin, writable: process.stdout });
const server = http2.createServer();
const cancelled = [];

function result(id, value) {
  return JSON.stringify({ jsonrpc: "2.0", id, result: { resultType: "complete", ...value } });
}

server.on("stream", (stream, headers) => {
  let body = "";
  stream.on("aborted", () => cancelled.push(stream.rstCode));
  stream.setEncoding("utf8");
  stream.on("data", (piece) => (body += piece));
  stream.on("end", () => {
    const { id, method, params } = JSON.parse(body);
    const respond = (value) => {
      stream.respond({ ":status": 200, "content-type": "application/json" });
      stream.end(result(id, value));
    };
    const text = (text) => respond({ content: [{ type: "text", text }] });
    if (method === "server/discover") {
      respond({
        supportedVersions: ["2026-07-28"],
        capabilities: { tools: {} },
        _meta: { "io.modelcontextprotocol/serverInfo": { name: "node", version: "1" } },
      });
    } else if (params.name === "echo") {
      text(params.arguments.text);
    } else if (params.name === "authority") {
      text(`${headers[":authority"]} ${headers["mcp-method"]}`);
    } else if (params.name === "cancelled") {
      text(cancelled.join());
    } else if (params.name === "events") {
      stream.respond({ ":status": 200, "content-type": "text/event-stream" });
      const { progressToken } = params._meta;
      for (const progress of [1, 2, 3]) {
        const told = { progressToken, progress };
        const message = { jsonrpc: "2.0", method: "notifications/progress", params: told };
        stream.write(`data: ${JSON.stringify(message)}\n\n`);
      }
      stream.end(`data: ${result(id, { content: [{ type: "text", text: "streamed" }] })}\n\n`);
    } else if (params.name === "break") {
      stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
    } // "wait" gets no response
  });
  stream.on("error", () => {});
});
server.on("session", (session) => session.on("close", () => process.exit(0)));
server.on("sessionError", (error) => console.error(error));
server.emit("connection", pipes);

// A server with a page (MCP Apps), made with the official TypeScript SDK, on standard input and output.
//
// It has `_meta` wherever it can be, as ../fastmcp_pages.py has.

import { McpServer, fromJsonSchema } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const URI = 'ui://weather/view';
const TYPE = 'text/html;profile=mcp-app';
const meta = (part) => ({ 'com.example/part': part, 'com.example/odd': [null, { a: 1.5 }, '\u2028é'] });
const CITY = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };

serveStdio(() => {
  const server = new McpServer({ name: 'pages', version: '1' });
  server.registerTool(
    'show',
    {
      title: 'Show',
      description: 'The weather of a city.',
      inputSchema: fromJsonSchema(CITY),
      _meta: { ui: { resourceUri: URI, visibility: ['model', 'app'] }, ...meta('tool') },
    },
    async ({ city }) => ({
      content: [
        { type: 'text', text: city, annotations: { priority: 0.5 }, _meta: meta('content') },
        { type: 'resource', resource: { uri: URI, mimeType: TYPE, text: '<p>', _meta: meta('embedded') } },
      ],
      structuredContent: { city, degrees: -0.5 },
      _meta: { ui: { x: null }, ...meta('result') },
    }),
  );
  const ui = { csp: { connectDomains: ['https://api.example.com'] }, prefersBorder: true };
  server.registerResource(
    'view',
    URI,
    { title: 'View', mimeType: TYPE, _meta: { ui, ...meta('resource') } },
    async () => ({
      contents: [{ uri: URI, mimeType: TYPE, text: '<!DOCTYPE html>', _meta: { ui, ...meta('contents') } }],
      _meta: meta('read'),
    }),
  );
  server.registerPrompt('ask', { description: 'Ask.', _meta: meta('prompt') }, async () => ({
    messages: [{ role: 'user', content: { type: 'text', text: 'How is it?', _meta: meta('message') } }],
    _meta: meta('got'),
  }));
  return server;
});

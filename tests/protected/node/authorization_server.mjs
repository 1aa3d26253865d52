// A certified authorization server: node authorization_server.mjs PORT. Prints a line when it listens.
// Access tokens for a resource whose path ends in /opaque are opaque, those for others are JWTs.

import Provider from "oidc-provider";

const port = Number(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "desktop",
      application_type: "native",
      grant_types: ["authorization_code", "refresh_token"],
      redirect_uris: ["http://127.0.0.1:1/callback"],
      token_endpoint_auth_method: "none",
    },
    {
      client_id: "robot",
      client_secret: "robot-secret",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
      token_endpoint_auth_method: "client_secret_basic",
    },
    {
      client_id: "resource-server",
      client_secret: "resource-server-secret",
      grant_types: [],
      redirect_uris: [],
      response_types: [],
      token_endpoint_auth_method: "client_secret_basic",
    },
  ],
  cookies: { keys: ["tests only"] },
  scopes: ["openid", "offline_access", "use", "read", "write", "notes:read", "notes:write"],
  features: {
    clientCredentials: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    introspection: {
      enabled: true,
      allowedPolicy: (ctx, client) => client.clientId === "resource-server",
    },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource) => ({
        scope: "use read write notes:read notes:write",
        audience: resource,
        accessTokenTTL: 60,
        accessTokenFormat: resource.endsWith("/opaque") ? "opaque" : "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
});

provider.listen(port, "127.0.0.1", () => console.log(`listening at ${issuer}`));

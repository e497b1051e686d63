// A certified provider (oidc-provider) with its own pages for signing in. Prints its issuer and runs until its input ends.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/`);
const { Provider } = await import(pathToFileURL(require.resolve("oidc-provider")));
const groups = { bob: ["sluice-operators"] };

const server = createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [{ client_id: "sluice", client_secret: process.env.CLIENT_SECRET, redirect_uris: [process.env.REDIRECT_URI] }],
  scopes: ["openid", "profile", "email", "groups"],
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  // Otherwise claims are served by the userinfo endpoint only.
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: true, groups: groups[id] ?? [] }),
  }),
});
server.on("request", provider.callback());
console.log(issuer);
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));

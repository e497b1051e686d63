// Signs in at the simulated provider with openid-client, and shows which of its mistakes that client refuses.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/`);
const client = await import(pathToFileURL(require.resolve("openid-client")));
const issuer = process.env.SIM_URL;
const redirect = "http://127.0.0.1:1/callback";
const options = { execute: [client.allowInsecureRequests] };

async function discover(secret) {
  return client.discovery(new URL(issuer), "sluice", undefined, client.ClientSecretBasic(secret), options);
}

async function control(path, body) {
  const answer = await fetch(`${issuer}/sim/${path}`, { method: "POST", body: JSON.stringify(body) });
  if (answer.status !== 204) throw new Error(`${path}: ${answer.status}`);
}

async function signIn(config, change = {}) {
  const verifier = client.randomPKCECodeVerifier();
  const [state, nonce] = [client.randomState(), client.randomNonce()];
  const url = client.buildAuthorizationUrl(config, {
    redirect_uri: redirect,
    scope: "openid email groups",
    code_challenge: await client.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
    login_hint: "ann",
    state,
    nonce,
    ...change.request,
  });
  const answer = await fetch(url, { redirect: "manual" });
  if (answer.status !== 303) return { status: answer.status };
  const callback = new URL(answer.headers.get("location"));
  const checks = { pkceCodeVerifier: change.verifier ?? verifier, expectedState: state, expectedNonce: nonce };
  const tokens = await client.authorizationCodeGrant(config, callback, checks);
  return { callback, checks, tokens };
}

async function refused(run) {
  try {
    const result = await run();
    return result.status ?? "accepted";
  } catch (error) {
    return error.error ?? error.cause?.error ?? error.code ?? error.name;
  }
}

const config = await discover("sim-openid-secret");
const { callback, checks, tokens } = await signIn(config);
const claims = tokens.claims();
const info = await client.fetchUserInfo(config, tokens.access_token, claims.sub);
const results = {
  issuer: config.serverMetadata().issuer,
  subject: claims.sub,
  groups: claims.groups,
  info: info.email,
  replayed: await refused(() => client.authorizationCodeGrant(config, callback, checks)),
  wrong_verifier: await refused(() => signIn(config, { verifier: client.randomPKCECodeVerifier() })),
  wrong_secret: await refused(async () => signIn(await discover("wrong"))),
  no_pkce: await refused(() => signIn(config, { request: { code_challenge_method: "plain" } })),
  other_client: await refused(() => signIn(config, { request: { client_id: "other" } })),
  wrong_scope: await refused(() => signIn(config, { request: { scope: "email" } })),
  mistakes: {},
};
// Not `wrong_party`: this client looks at `azp` only if there are several audiences.
const mistakes = [
  "wrong_nonce", "no_nonce", "wrong_audience", "several_audiences", "wrong_issuer", "expired", "no_id_token",
  "other_issuer_in_answer", "no_issuer_in_answer",
];
for (const mistake of mistakes) {
  await control("mistake", mistake);
  results.mistakes[mistake] = await refused(() => signIn(config));
}
await control("mistake", null);
await control("rotate", {});
results.rotated = (await signIn(await discover("sim-openid-secret"))).tokens.claims().sub;
// The signature is checked with the key set only if the client is asked to: over a direct connection it need not be.
const strict = await discover("sim-openid-secret");
client.enableNonRepudiationChecks(strict);
results.verified = (await signIn(strict)).tokens.claims().sub;
results.signatures = {};
for (const mistake of ["other_key", "unknown_key", "no_signature", "hmac_with_public_key", "embedded_key"]) {
  await control("mistake", mistake);
  results.signatures[mistake] = await refused(() => signIn(strict));
}
console.log(JSON.stringify(results));

// Signs one request for each vendor whose own library can, and prints them as JSON.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The packages lie in the folder that this was started in, not beside this file.
const require = createRequire(`${process.cwd()}/`);
// This one is a module only.
const { sign } = await import(pathToFileURL(`${process.cwd()}/node_modules/@octokit/webhooks-methods/dist-node/index.js`).href);
const { Webhook: Standard } = require("standardwebhooks");
const Stripe = require("stripe");
const { Webhook: Svix } = require("svix");

const { PLAIN_SECRET, WHSEC_SECRET } = process.env;
const now = new Date();
const stamp = String(Math.floor(now.getTime() / 1000));
const requests = [];
const request = (scheme, headers, body) =>
  requests.push({ scheme, headers: { ...headers, "content-type": "application/json" }, body });

let body = JSON.stringify({ action: "opened", title: "Zoë" });
request("github", { "x-hub-signature-256": await sign(PLAIN_SECRET, body), "x-github-event": "issues", "x-github-delivery": "gh-js" }, body);

body = JSON.stringify({ id: "evt_js", type: "invoice.paid", created: Number(stamp) });
const header = new Stripe("sk_test_unused").webhooks.generateTestHeaderString({ payload: body, secret: PLAIN_SECRET });
request("stripe", { "stripe-signature": header }, body);

body = JSON.stringify({ type: "contact.created", timestamp: now.toISOString(), data: { id: 2 } });
for (const [scheme, Library, family] of [["svix", Svix, "svix"], ["standard-webhooks", Standard, "webhook"]]) {
  const signature = new Library(WHSEC_SECRET).sign("msg_js", now, body);
  request(scheme, { [`${family}-id`]: "msg_js", [`${family}-timestamp`]: stamp, [`${family}-signature`]: signature }, body);
}

console.log(JSON.stringify(requests));

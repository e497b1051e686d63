// Verifies one request with the vendor's library, and prints whether it is accepted.

import { createRequire } from "node:module";

// The packages lie in the folder that this was started in, not beside this file.
const require = createRequire(`${process.cwd()}/`);
const { Webhook } = require("standardwebhooks");

const { REQUEST, WHSEC_SECRET } = process.env;
const { headers, body } = JSON.parse(REQUEST);
try {
  new Webhook(WHSEC_SECRET).verify(body, Object.fromEntries(headers));
  console.log("accepted");
} catch (error) {
  console.log("refused");
}

// Runs HubSpot's own client against a running simulator and prints the results as one JSON object.
//
// SIM_URL is the URL of the simulator. Run in the directory that contains node_modules.

import { createRequire } from 'node:module';
import path from 'node:path';

const { Client } = createRequire(path.join(process.cwd(), 'package.json'))('@hubspot/api-client');
const url = process.env.SIM_URL;

async function control(name, body) {
  const response = await fetch(`${url}/sim/${name}`, { method: 'POST', body: JSON.stringify(body ?? null) });
  if (!response.ok) throw new Error(`${name}: ${response.status}`);
}

async function failure(call) {
  try {
    await call();
    return { code: null };
  } catch (error) {
    return { code: error.code ?? null, category: error.body?.category ?? null, message: error.body?.message ?? error.message };
  }
}

const results = {};
const signedOut = new Client({ basePath: url });
results.refused = await failure(() =>
  signedOut.oauth.tokensApi.create('refresh_token', undefined, undefined, 'sim-client', 'sim-secret', 'wrong'),
);
const granted = await signedOut.oauth.tokensApi.create(
  'refresh_token', undefined, undefined, 'sim-client', 'sim-secret', 'sim-refresh',
);
results.expires_in = granted.expiresIn;

const client = new Client({ basePath: url, accessToken: granted.accessToken, numberOfApiCallRetries: 0 });
const contacts = client.crm.contacts;
const created = await contacts.basicApi.create({
  properties: { email: 'Ada@Example.com', firstname: 'Ada' },
  associations: [],
});
results.created = { email: created.properties.email, hasId: /^[0-9]+$/.test(created.id) };
results.exists = await failure(() =>
  contacts.basicApi.create({ properties: { email: 'ada@example.com' }, associations: [] }),
);
results.existing_id = results.exists.message.includes(`Existing ID: ${created.id}`);
results.read = (await contacts.basicApi.getById('ada@example.com', ['firstname'], undefined, undefined, undefined, 'email')).properties.firstname;
results.updated = (await contacts.basicApi.update('ada@example.com', { properties: { lastname: 'Lovelace' } }, 'email')).properties.lastname;
results.unknown_property = await failure(() =>
  contacts.basicApi.create({ properties: { nope: '1' }, associations: [] }),
);
results.absent = await failure(() => contacts.basicApi.getById('999999'));

const upsert = await contacts.batchApi.upsert({
  inputs: [
    { id: 'k-1', idProperty: 'external_lead_id', properties: { firstname: 'One' }, objectWriteTraceId: 't-1' },
    { id: 'k-2', idProperty: 'external_lead_id', properties: { firstname: 'Two' }, objectWriteTraceId: 't-2' },
  ],
});
results.upsert = upsert.results.map((result) => [result.properties.external_lead_id, result._new]).sort();
const partial = await contacts.batchApi.upsert({
  inputs: [
    { id: 'k-1', idProperty: 'external_lead_id', properties: { firstname: 'Uno' }, objectWriteTraceId: 't-3' },
    { id: 'k-3', idProperty: 'external_lead_id', properties: { nope: 'x' }, objectWriteTraceId: 't-4' },
  ],
});
results.partial = {
  results: partial.results.map((result) => [result.properties.firstname, result._new]),
  errors: partial.numErrors,
  trace: partial.errors[0].context.objectWriteTraceId,
};
const search = { filterGroups: [{ filters: [{ propertyName: 'email', operator: 'EQ', value: 'ada@example.com' }] }], properties: [], limit: 10, after: '0', sorts: [] };
results.search_lags = (await contacts.searchApi.doSearch(search)).total;

const company = await client.crm.companies.basicApi.create({ properties: { name: 'Kraal' }, associations: [] });
const association = await client.crm.associations.v4.basicApi.createDefault('contacts', created.id, 'companies', company.id);
results.association = association.status;

await control('faults', { script: [{ times: 1, fault: { kind: 'too_many_requests', retry_after: 'absent' } }] });
results.limited = await failure(() => contacts.basicApi.getById(created.id));
await contacts.basicApi.archive(created.id);
results.archived = await failure(() => contacts.basicApi.getById(created.id));
await control('expire-tokens');
results.expired = await failure(() => contacts.basicApi.getById('1'));
console.log(JSON.stringify(results));

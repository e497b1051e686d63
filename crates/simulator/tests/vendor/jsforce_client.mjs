// Runs jsforce against a running simulator and prints the results as one JSON object.
//
// SIM_URL is the URL of the simulator. jsforce itself requests the token with client credentials.
// Run in the directory that contains node_modules.

import { createRequire } from 'node:module';
import path from 'node:path';

const jsforce = createRequire(path.join(process.cwd(), 'package.json'))('jsforce');
const url = process.env.SIM_URL;
const lead = { LastName: 'Nkosi', Company: 'Kraal' };

async function control(name, body) {
  const response = await fetch(`${url}/sim/${name}`, { method: 'POST', body: JSON.stringify(body ?? null) });
  if (!response.ok) throw new Error(`${name}: ${response.status}`);
}

async function failure(call) {
  try {
    await call();
    return { name: null };
  } catch (error) {
    return { name: error.name, code: error.errorCode ?? null, message: error.message };
  }
}

const results = {};
const login = { clientId: 'sim-client', clientSecret: 'sim-secret', loginUrl: url };
const refused = new jsforce.Connection({ oauth2: { ...login, clientSecret: 'wrong' }, version: '60.0' });
results.refused = await failure(() => refused.authorize({ grant_type: 'client_credentials' }));
const signedIn = new jsforce.Connection({ oauth2: login, version: '60.0' });
await signedIn.authorize({ grant_type: 'client_credentials' });
results.instance_url = signedIn.instanceUrl;

// Without a refresh function, which would request new tokens endlessly.
const connection = new jsforce.Connection({
  instanceUrl: signedIn.instanceUrl,
  accessToken: signedIn.accessToken,
  version: '60.0',
});
const leads = connection.sobject('Lead');
results.create = await leads.create({ ...lead, External_Lead_Id__c: 'js-1' });
results.upsert_new = await leads.upsert({ ...lead, External_Lead_Id__c: 'js-2' }, 'External_Lead_Id__c');
results.upsert_again = await leads.upsert({ FirstName: 'Lwazi', External_Lead_Id__c: 'js-2' }, 'External_Lead_Id__c');
results.read = await leads.retrieve(results.upsert_new.id);
results.update = await leads.update({ Id: results.create.id, Title: 'CTO' });
results.query = await connection.query("SELECT Id, Title FROM Lead WHERE External_Lead_Id__c = 'js-1'");
results.usage = connection.limitInfo;
results.versions = (await connection.request('/services/data')).length;

const many = [
  { ...lead, External_Lead_Id__c: 'js-2' },
  { LastName: 'no company', External_Lead_Id__c: 'js-3' },
];
results.collection = await leads.upsert(many, 'External_Lead_Id__c');
results.update_only = await failure(() =>
  connection.request({
    method: 'PATCH',
    url: '/services/data/v60.0/sobjects/Lead/External_Lead_Id__c/absent?updateOnly=true',
    body: JSON.stringify(lead),
    headers: { 'content-type': 'application/json' },
  }),
);
results.unknown_field = await failure(() => leads.create({ ...lead, Nope__c: 1 }));

for (let count = 0; count < 2; count += 1) await leads.create({ ...lead, Legacy_Id__c: 'js-many' });
results.several = await failure(() => leads.upsert({ ...lead, Legacy_Id__c: 'js-many' }, 'Legacy_Id__c'));

await control('faults', { script: [{ times: 1, fault: { kind: 'lock_row' } }] });
results.lock = await failure(() => leads.upsert({ ...lead, External_Lead_Id__c: 'js-2' }, 'External_Lead_Id__c'));

results.delete = await leads.destroy(results.create.id);
await control('expire-tokens');
results.expired = await failure(() => leads.upsert({ ...lead, External_Lead_Id__c: 'js-2' }, 'External_Lead_Id__c'));
console.log(JSON.stringify(results));

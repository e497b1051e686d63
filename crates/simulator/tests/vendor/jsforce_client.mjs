// Drives jsforce against a running simulator and prints what it saw, as one JSON object.
//
// SIM_URL is the simulator. The token comes from the client-credentials call of jsforce itself.
// Run in the folder that holds node_modules.

import { createRequire } from 'node:module';
import path from 'node:path';

const jsforce = createRequire(path.join(process.cwd(), 'package.json'))('jsforce');
const url = process.env.SIM_URL;
const lead = { LastName: 'Nkosi', Company: 'Kraal' };

async function order(name, body) {
  const answer = await fetch(`${url}/sim/${name}`, { method: 'POST', body: JSON.stringify(body ?? null) });
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
}

async function failure(call) {
  try {
    await call();
    return { name: null };
  } catch (error) {
    return { name: error.name, code: error.errorCode ?? null, message: error.message };
  }
}

const seen = {};
const login = { clientId: 'sim-client', clientSecret: 'sim-secret', loginUrl: url };
const refused = new jsforce.Connection({ oauth2: { ...login, clientSecret: 'wrong' }, version: '60.0' });
seen.refused = await failure(() => refused.authorize({ grant_type: 'client_credentials' }));
const signedIn = new jsforce.Connection({ oauth2: login, version: '60.0' });
await signedIn.authorize({ grant_type: 'client_credentials' });
seen.instance_url = signedIn.instanceUrl;

// Without a refresh function, which would ask for a new token without end.
const connection = new jsforce.Connection({
  instanceUrl: signedIn.instanceUrl,
  accessToken: signedIn.accessToken,
  version: '60.0',
});
const leads = connection.sobject('Lead');
seen.create = await leads.create({ ...lead, External_Lead_Id__c: 'js-1' });
seen.upsert_new = await leads.upsert({ ...lead, External_Lead_Id__c: 'js-2' }, 'External_Lead_Id__c');
seen.upsert_again = await leads.upsert({ FirstName: 'Lwazi', External_Lead_Id__c: 'js-2' }, 'External_Lead_Id__c');
seen.read = await leads.retrieve(seen.upsert_new.id);
seen.update = await leads.update({ Id: seen.create.id, Title: 'CTO' });
seen.query = await connection.query("SELECT Id, Title FROM Lead WHERE External_Lead_Id__c = 'js-1'");
seen.usage = connection.limitInfo;
seen.versions = (await connection.request('/services/data')).length;

const many = [
  { ...lead, External_Lead_Id__c: 'js-2' },
  { LastName: 'no company', External_Lead_Id__c: 'js-3' },
];
seen.collection = await leads.upsert(many, 'External_Lead_Id__c');
seen.update_only = await failure(() =>
  connection.request({
    method: 'PATCH',
    url: '/services/data/v60.0/sobjects/Lead/External_Lead_Id__c/absent?updateOnly=true',
    body: JSON.stringify(lead),
    headers: { 'content-type': 'application/json' },
  }),
);
seen.unknown_field = await failure(() => leads.create({ ...lead, Nope__c: 1 }));

for (let made = 0; made < 2; made += 1) await leads.create({ ...lead, Legacy_Id__c: 'js-many' });
seen.several = await failure(() => leads.upsert({ ...lead, Legacy_Id__c: 'js-many' }, 'Legacy_Id__c'));

await order('faults', { script: [{ times: 1, fault: { kind: 'lock_row' } }] });
seen.lock = await failure(() => leads.upsert({ ...lead, External_Lead_Id__c: 'js-2' }, 'External_Lead_Id__c'));

seen.delete = await leads.destroy(seen.create.id);
await order('expire-tokens');
seen.expired = await failure(() => leads.upsert({ ...lead, External_Lead_Id__c: 'js-2' }, 'External_Lead_Id__c'));
console.log(JSON.stringify(seen));

// Runs the clients of Twilio, Segment, SendGrid and Postmark against running simulators and prints the results as one JSON object.
//
// TWILIO_URL, SEGMENT_URL, SENDGRID_URL and POSTMARK_URL are the URLs of the simulators, *_TOKEN their credentials. Run in the
// directory that contains node_modules.

import { createRequire } from 'node:module';
import path from 'node:path';

const load = createRequire(path.join(process.cwd(), 'package.json'));
const env = process.env;

async function failure(call) {
  try {
    await call();
    return { code: null };
  } catch (error) {
    return { code: error.code ?? null, status: error.status ?? error.statusCode ?? null, message: error.message };
  }
}

async function twilio() {
  const vendor = load('twilio');
  // The client has no setting for the address; its transport does.
  class Local extends vendor.RequestClient {
    request(options) {
      return super.request({ ...options, uri: options.uri.replace('https://api.twilio.com', env.TWILIO_URL) });
    }
  }
  const client = (token) => vendor(env.TWILIO_ACCOUNT, token, { httpClient: new Local() });
  const messages = client(env.TWILIO_TOKEN).messages;
  const from = '+15005550006';
  const sent = await messages.create({ to: '+14155550123', from, body: 'Hello' });
  const again = await messages.create({ to: '+14155550123', from, body: 'Hello' });
  const found = await messages.list({ to: '+14155550123', limit: 20 });
  return {
    status: sent.status,
    sid: sent.sid.startsWith('SM'),
    two: sent.sid !== again.sid,
    found: found.map((message) => message.body),
    read: (await client(env.TWILIO_TOKEN).messages(sent.sid).fetch()).to,
    invalid: await failure(() => messages.create({ to: '+15005550001', from, body: 'Hello' })),
    opted_out: await failure(() => messages.create({ to: '+15005550004', from, body: 'Hello' })),
    no_body: await failure(() => messages.create({ to: '+14155550123', from, body: '' })),
    wrong_token: await failure(() => client('wrong').messages.create({ to: '+14155550123', from, body: 'Hello' })),
    absent: await failure(() => client(env.TWILIO_TOKEN).messages('SM' + '9'.repeat(32)).fetch()),
  };
}

async function segment() {
  const { Analytics } = load('@segment/analytics-node');
  const problems = [];
  const analytics = new Analytics({ writeKey: env.SEGMENT_TOKEN, host: env.SEGMENT_URL, path: '/v1/batch', flushAt: 1 });
  analytics.on('error', (error) => problems.push(String(error.code)));
  const event = { userId: 'u-1', event: 'Signed Up', messageId: 'm-1', properties: { plan: 'pro' } };
  analytics.track(event);
  analytics.track(event);
  analytics.identify({ userId: 'u-1', traits: { name: 'Ada' }, messageId: 'm-2' });
  await analytics.closeAndFlush({ timeout: 60_000 });
  return { problems };
}

async function sendgrid() {
  const mail = load('@sendgrid/mail');
  // A new key sets the address back.
  const use = (key) => {
    mail.setApiKey(key);
    mail.client.setDefaultRequest('baseUrl', `${env.SENDGRID_URL}/`);
  };
  use(env.SENDGRID_TOKEN);
  const message = { to: 'ada@example.com', from: 'shop@example.com', subject: 'Hello', text: 'Hello', customArgs: { effect_key: 'k-1' } };
  const [sent] = await mail.send(message);
  const refused = await failure(() => mail.send({ ...message, to: 'nobody' }));
  use('SG.wrong');
  return {
    status: sent.statusCode,
    id: typeof sent.headers['x-message-id'],
    refused: refused.code,
    wrong_token: (await failure(() => mail.send(message))).code,
  };
}

async function postmark() {
  const { ServerClient } = load('postmark');
  const options = { requestHost: new URL(env.POSTMARK_URL).host, useHttps: false };
  const client = new ServerClient(env.POSTMARK_TOKEN, options);
  const message = { From: 'shop@example.com', To: 'ada@example.com', Subject: 'Hello', TextBody: 'Hello', Metadata: { effect_key: 'k-1' } };
  const sent = await client.sendEmail(message);
  const batch = await client.sendEmailBatch([message, { ...message, To: 'nobody' }]);
  const found = await client.getOutboundMessages({ recipient: 'ada@example.com', count: 10, offset: 0 });
  return {
    sent: [sent.ErrorCode, sent.Message],
    batch: batch.map((result) => result.ErrorCode),
    found: found.TotalCount,
    metadata: found.Messages[0].Metadata,
    inactive: await failure(() => client.sendEmail({ ...message, To: 'inactive@example.com' })),
    wrong_token: await failure(() => new ServerClient('wrong', options).sendEmail(message)),
  };
}

console.log(JSON.stringify({ twilio: await twilio(), segment: await segment(), sendgrid: await sendgrid(), postmark: await postmark() }));

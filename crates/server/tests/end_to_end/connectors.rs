//! The whole path with the connectors that are not HTTP: a webhook goes in, and a mail, a row, a message or a script's
//! effect comes out once, whatever is lost on the way.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_server::run::{Node, StartError};
use sluice_simulator::faults::{CallKind, Scripted};
use sluice_simulator::postgres::CommitLoss;
use sluice_simulator::{Fault, FaultPlan, Postgres, Slack, SlackSettings, Smtp, SmtpSettings};

use crate::fixture::{World, lead};

const FLOW: &str = r#"
version: 1
name: website-leads
source: website
triggers:
  - http:
      path: /in/website
      verify: { scheme: hmac, header: X-Signature, algorithm: sha256, encoding: hex, prefix: "sha256=", secret: "${secrets.WEBSITE_SECRET}" }
      idempotency: { key_from: body.id, ttl: 30d }
event:
  type: lead.created
  id: body.id
  identity: { email: "{{ body.email | lower | trim }}" }
  attributes: { last_name: body.last_name }
steps:
  - name: enqueue
    queue: { name: leads }
queues:
  - { name: leads, visibility_timeout: 20s }
"#;

fn worker(step: &str) -> String {
    format!(
        "version: 1\nname: lead-effects\nconsumes: {{ queue: leads }}\nretry: {{ base_delay: 10ms, max_delay: 50ms, max_attempts: 5 }}\nrun:\n  - name: effect\n{step}"
    )
}

async fn world(step: &str, more: &[(&str, &str)]) -> World {
    let worker = worker(step);
    let mut files = vec![("flow.yml", FLOW), ("worker.yml", worker.as_str())];
    files.extend_from_slice(more);
    World::start_with(&files).await
}

/// Posts a lead and gives back its only job once that is settled.
async fn settled(world: &World, id: &str) -> Value {
    let event = world.post(&lead(id)).await.event();
    let jobs = world.settled(&event).await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    world.job(jobs[0]["id"].as_str().unwrap()).await
}

fn made(job: &Value) -> Vec<(String, String)> {
    let text = |attempt: &Value, name: &str| attempt[name].as_str().unwrap_or_default().to_owned();
    job["attempts_made"].as_array().unwrap().iter().map(|made| (text(made, "kind"), text(made, "outcome"))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(kind, outcome)| ((*kind).to_owned(), (*outcome).to_owned())).collect()
}

const MAIL: &str = "    run: email.send\n    with:\n      to: \"{{ event.email }}\"\n      subject: Welcome\n      text: \"Hello {{ event.last_name }}\"\n";

fn mail_destination(smtp: &Smtp) -> String {
    format!(
        "destinations:\n  mail: {{ type: smtp, host: 127.0.0.1, port: {}, tls: none, from: \"Shop <shop@example.com>\", timeout: 2s }}\n",
        smtp.address().port()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_sent_once_and_a_lost_response_waits_for_an_operator() {
    let smtp = Smtp::start(SmtpSettings::default()).unwrap();
    let world = world(MAIL, &[("mail.yml", &mail_destination(&smtp))]).await;
    let job = settled(&world, "m1").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let message = &smtp.messages()[0];
    assert_eq!((message.to[0].as_str(), message.body.as_str()), ("m1@example.com", "Hello Lovelace\r\n"));
    let id = message.header("message-id").unwrap();
    assert!(id.starts_with("<eff_") && id.ends_with("@example.com>"), "{id}");

    // Nothing had left: it is tried again, under the same id.
    smtp.set_faults(FaultPlan::scripted([Scripted::first(2, Fault::DropBefore).at("RCPT")])).unwrap();
    let job = settled(&world, "m2").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(made(&job), pairs(&[("call", "retry"), ("call", "retry"), ("call", "done")]));

    // The mail was taken and the answer was lost: nobody may send it again.
    smtp.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::DropAfter).at("DOT")])).unwrap();
    let job = settled(&world, "m3").await;
    assert_eq!(job["state"], "unknown", "{job}");
    assert_eq!(made(&job), pairs(&[("call", "unsure")]));
    let truth = smtp.truth();
    assert_eq!((truth.accepted, truth.accepted_unseen), (3, 1), "{truth:?}");
    assert!(truth.by_message_id.values().all(|count| *count == 1), "{truth:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn message_with_a_lost_response_is_read_back_and_not_posted_again() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let destination = format!(
        "destinations:\n  chat: {{ type: slack, token: \"${{secrets.SLACK_TOKEN}}\", base_url: \"{}\", timeout: 2s }}\n",
        slack.api_url()
    );
    let step = "    run: slack.post\n    with: { channel: C0SIMULATOR, text: \"New lead {{ event.last_name }}\" }\n";
    let world = world(step, &[("secrets/SLACK_TOKEN", "xoxb-simulator"), ("chat.yml", &destination)]).await;
    slack.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::DropAfter).only(CallKind::Write)])).unwrap();
    let job = settled(&world, "s1").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(made(&job), pairs(&[("call", "unsure"), ("read", "present")]));
    assert_eq!(slack.truth().messages, 1);
    assert_eq!(slack.messages()[0].text, "New lead Lovelace");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_message_with_a_lost_response_waits_for_an_operator() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let destination = "destinations:\n  chat: { type: slack, webhook_url: \"${secrets.SLACK_HOOK}\", timeout: 2s }\n";
    let step = "    run: slack.post\n    with: { text: hello }\n";
    let world = world(step, &[("secrets/SLACK_HOOK", &slack.webhook_url()), ("chat.yml", destination)]).await;
    slack.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::DropAfter)])).unwrap();
    let job = settled(&world, "h1").await;
    assert_eq!((job["state"].as_str(), slack.truth().messages), (Some("unknown"), 1), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_whose_commit_was_not_answered_is_written_once() {
    let postgres = Postgres::start().unwrap();
    let (client, connection) = tokio_postgres::connect(&postgres.url("postgres"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute("CREATE TABLE leads (id bigserial, email text PRIMARY KEY, name text, version int DEFAULT 0)")
        .await
        .unwrap();
    client
        .batch_execute(
            "CREATE FUNCTION bump() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.version := OLD.version + 1; RETURN NEW; END $$; \
             CREATE TRIGGER bumped BEFORE UPDATE ON leads FOR EACH ROW EXECUTE FUNCTION bump()",
        )
        .await
        .unwrap();
    let relay = postgres.relay().unwrap();
    let url = postgres.url("postgres").replace(&format!(":{}/", postgres.port()), &format!(":{}/", relay.port()));
    let destination = "destinations:\n  db: { type: postgres, url: \"${secrets.DB_URL}\", timeout: 5s }\n";
    let step = "    run: postgres.upsert\n    with:\n      table: leads\n      key: email\n      values: { email: \"{{ event.email }}\", name: \"{{ event.last_name }}\" }\n      returning: [id]\n";
    let world = world(step, &[("secrets/DB_URL", &url), ("db.yml", destination)]).await;
    assert_eq!(settled(&world, "p0").await["state"], "succeeded");
    for (id, loss) in [("p1", CommitLoss::AfterCommitting), ("p2", CommitLoss::BeforeCommitting)] {
        relay.lose_next_commit(loss);
        let job = settled(&world, id).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        assert_eq!(made(&job), pairs(&[("call", "unsure"), ("call", "done")]), "{loss:?}");
    }
    let row = client.query_one("SELECT count(*), sum(version)::bigint FROM leads", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (3, 0), "every row was written exactly once");
    let noted: i64 = client.query_one("SELECT count(*) FROM sluice_effects", &[]).await.unwrap().get(0);
    assert_eq!(noted, 3);
}

const LIBRARY: &str = "
import { appendFileSync, existsSync, readFileSync } from 'node:fs';

export async function record(body, key) {
  const path = `${process.env.STORE}/${body.id}`;
  await new Promise((done) => setTimeout(done, 1));
  appendFileSync(`${path}.tries`, `${key}\\n`);
  const tries = readFileSync(`${path}.tries`, 'utf8').trim().split('\\n').length;
  if (body.id === 'flaky' && tries < 3) throw new Error('forced transient');
  if (body.id === 'bad') { process.exitCode = 65; console.error('no such customer'); return; }
  if (body.id === 'stuck' && tries < 2) await new Promise(() => setInterval(() => {}, 1000));
  if (!existsSync(path)) appendFileSync(path, key);
  return { contact: body.person, tries };
}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_script_beside_the_configuration_does_its_work_once() {
    let store = tempfile::tempdir().unwrap();
    let step = "    uses: node:18
    with: { timeout: 2s }
    env:
      STORE: ${secrets.STORE}
    script: |
      import { record } from './library.js';
      const body = JSON.parse(process.env.BODY);
      const result = await record(body, process.env.IDEMPOTENCY_KEY);
      console.log(`working on {{ body.id }} of ${JSON.parse(process.env.EVENT).type}`);
      if (result) console.log(JSON.stringify(result));
";
    let path = store.path().to_str().unwrap();
    let world = world(step, &[("secrets/STORE", path), ("library.js", LIBRARY)]).await;
    let job = settled(&world, "good").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert!(job.to_string().contains("\"contact\":\"good\""), "{job}");

    let job = settled(&world, "flaky").await;
    assert_eq!(made(&job), pairs(&[("call", "retry"), ("call", "retry"), ("call", "done")]), "{job}");
    assert!(job.to_string().contains("forced transient"), "{job}");
    let keys = std::fs::read_to_string(store.path().join("flaky.tries")).unwrap();
    let mut keys: Vec<&str> = keys.lines().collect();
    keys.dedup();
    assert_eq!(keys, [job["idempotency_key"].as_str().unwrap()], "the sender's key, the same in every attempt");

    let job = settled(&world, "bad").await;
    assert_eq!((job["state"].as_str(), job["failure"]["code"].as_str()), (Some("dead"), Some("exit-65")), "{job}");
    assert!(job.to_string().contains("no such customer"), "{job}");

    let job = settled(&world, "stuck").await;
    assert_eq!(made(&job), pairs(&[("call", "unsure"), ("call", "done")]), "a script is keyed: {job}");
    assert!(!world.get("/api/v1/jobs").await.to_string().contains(path), "what a secret holds is shown nowhere");
}

/// `node_modules` with PostgreSQL's client for node, installed once into `target`.
fn database_client() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-pg");
    let mark = folder.join("installed");
    if !mark.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("package.json"), r#"{"private": true, "dependencies": {"pg": "8.16.3"}}"#).unwrap();
        let install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
        let output = std::process::Command::new("npm").args(install).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "npm: {}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(&mark, "").unwrap();
    }
    folder.join("node_modules")
}

const SAVE: &str = "
import pg from 'pg';

// Nobody closes it.
const pool = new pg.Pool({ connectionString: process.env.DB_URL });

export async function save(lead, key) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const noted = await client.query('INSERT INTO noted (key) VALUES ($1) ON CONFLICT DO NOTHING', [key]);
    if (noted.rowCount === 1) await client.query('INSERT INTO people (email) VALUES ($1)', [lead.email]);
    await client.query('COMMIT');
  } finally {
    client.release();
  }
}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_script_with_a_database_of_its_own_writes_once_and_does_not_wait_for_its_pool() {
    let postgres = Postgres::start().unwrap();
    let (client, connection) = tokio_postgres::connect(&postgres.url("postgres"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE noted (key text PRIMARY KEY); CREATE TABLE people (email text)").await.unwrap();
    let modules = database_client();
    let step = "    uses: node:18
    env:
      DB_URL: ${secrets.DB_URL}
    script: |
      import { existsSync, writeFileSync } from 'node:fs';
      import { save } from './save.js';
      const body = JSON.parse(process.env.BODY);
      await save(body, process.env.IDEMPOTENCY_KEY);
      // The work is done, and nobody hears of it.
      if (!existsSync(`seen-${body.id}`)) { writeFileSync(`seen-${body.id}`, ''); process.kill(process.pid, 'SIGKILL'); await new Promise(() => {}); }
";
    let world = world(step, &[("secrets/DB_URL", &postgres.url("postgres")), ("save.js", SAVE)]).await;
    std::os::unix::fs::symlink(modules, world.config_path("node_modules")).unwrap();
    let started = std::time::Instant::now();
    for id in ["d1", "d2"] {
        let job = settled(&world, id).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        assert_eq!(made(&job), pairs(&[("call", "unsure"), ("call", "done")]), "{job}");
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(18), "two idle pools would take twenty seconds");
    let count: i64 = client.query_one("SELECT count(*) FROM people", &[]).await.unwrap().get(0);
    assert_eq!(count, 2);
}

/// A flag in a module is set again by every process, so a script tells its attempts apart by ATTEMPT.
#[tokio::test(flavor = "multi_thread")]
async fn script_that_fails_on_its_first_attempt_only_sees_the_number_of_the_attempt() {
    let step = "    uses: node:18
    script: |
      import { upsertContact } from './contacts.js';
      console.log(JSON.stringify(await upsertContact(JSON.parse(process.env.BODY))));
";
    let contacts = "
let flip = true;
export async function upsertContact(body) {
  if (!flip) throw new Error('the state of an earlier attempt');
  flip = false;
  if (process.env.ATTEMPT === '1') throw new Error('forced transient');
  return { attempt: process.env.ATTEMPT, effect: process.env.EFFECT_KEY.length > 0 };
}
";
    let world = world(step, &[("contacts.js", contacts)]).await;
    let job = settled(&world, "flip").await;
    assert_eq!(made(&job), pairs(&[("call", "retry"), ("call", "done")]), "{job}");
    let text = job.to_string();
    assert!(text.contains("forced transient") && text.contains("\"attempt\":\"2\",\"effect\":true"), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_does_not_start_without_the_runtime_of_its_scripts() {
    let world = world("    uses: bash\n    script: echo 1\n", &[]).await;
    let text = std::fs::read_to_string(world.config_path("worker.yml")).unwrap();
    std::fs::write(world.config_path("worker.yml"), text.replace("uses: bash", "uses: node:999")).unwrap();
    let settings = sluice_server::run::NodeSettings { data: world.directory.path().join(".other"), ..world.settings() };
    let Err(StartError::Config(compiled, _)) = Node::start(settings).await else { panic!("it has started") };
    let problem = compiled.problems.iter().find(|problem| problem.code == "missing-runtime").unwrap();
    assert!(problem.message.starts_with("node:999 is required, but the installed `node` has version"), "{problem:?}");
    assert_eq!(problem.place().split(':').next(), Some("worker.yml"));
}

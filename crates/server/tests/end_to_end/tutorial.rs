//! The tutorial's four failure tests, with a real Node and a real PostgreSQL: a transient failure, a permanent one, the same
//! key twice, and a dead letter that the scheduled replay brings back.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use sluice_simulator::Postgres;

use crate::fixture::{Answer, World, until};

const FLOW: &str = r#"
version: 1
name: signup-intake
triggers:
  - http:
      path: /intake/signup
      method: POST
      idempotency:
        key_from: header:Idempotency-Key
        store: kv:signup-keys
        ttl: 48h
steps:
  - name: enqueue
    queue:
      name: signups
      body_from: request.body
      key_from: header:Idempotency-Key
responses:
  deduplicated_from: idempotency
  success_from: step:enqueue
"#;

const WORKER: &str = r#"
version: 1
name: signup-upsert
consumes:
  queue: signups
retry:
  strategy: exponential
  base_delay: 20ms
  multiplier: 2
  jitter: full
  max_delay: 100ms
  max_attempts: 3
  on_exhausted: dlq:signups-dlq
run:
  - name: upsert
    uses: node:18
    env:
      DB_URL: ${secrets.DB_URL}
    script: |
      import { upsertSignup } from './lib/signups.js';
      const body = JSON.parse(process.env.BODY);
      const { id } = await upsertSignup(body, process.env.IDEMPOTENCY_KEY);
      console.log(JSON.stringify({ id }));
      process.exit(0);
"#;

const QUEUES: &str = r#"
queues:
  - name: signups
    visibility_timeout: 90s
    retention: 4d
  - name: signups-dlq
    retention: 7d
"#;

const REPLAY: &str = r#"
version: 1
name: replay-signups
schedule:
  cron: "* * * * * *"  # every second, so that nobody has to wait
run:
  - name: pull-batch
    queue_pull:
      from: signups-dlq
      max_messages: 20
  - name: requeue
    foreach: step:pull-batch.messages
    queue:
      name: signups
      body_from: item.body
      key_from: item.headers.Idempotency-Key
    rate_limit:
      per_integration: 600/min
      jitter: 20-60ms
"#;

/// Fails as often as the file `failing` says, a hundred times meaning always; each process is another one, so the count lies
/// outside.
const LIBRARY: &str = r#"
import { readFileSync, writeFileSync, appendFileSync } from 'node:fs';
import pg from 'pg';

export async function upsertSignup(body, key) {
  appendFileSync('attempts', `${body.event_id}\n`);
  const left = Number(readFileSync('failing', 'utf8'));
  if (left > 0) {
    if (left < 100) writeFileSync('failing', String(left - 1));
    throw new Error('forced failure');
  }
  const client = new pg.Client({ connectionString: process.env.DB_URL });
  await client.connect();
  try {
    await client.query('BEGIN');
    const row = await client.query(
      `INSERT INTO signups (tenant_id, email) VALUES ($1, $2)
       ON CONFLICT (tenant_id, email) DO UPDATE SET updated_at = now() RETURNING id`,
      [body.tenant_id, body.payload.email]);
    await client.query(
      `INSERT INTO effects (idempotency_key, effect_type, ref_id) VALUES ($1, 'upsert', $2)
       ON CONFLICT (idempotency_key, effect_type) DO NOTHING`, [key, row.rows[0].id]);
    await client.query('COMMIT');
    return { id: row.rows[0].id };
  } finally {
    await client.end();
  }
}
"#;

/// The driver for PostgreSQL, installed once into `target/tutorial-node`. The file `installed` says that it is whole.
fn node_modules() -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp lies in target");
    let folder = target.join("tutorial-node");
    let modules = folder.join("node_modules");
    let installed = folder.join("installed");
    if !installed.is_file() {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix", "."]).arg("pg@8").current_dir(&folder);
        let output = npm.output().expect("npm, see scripts/install-node");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(&installed, "").unwrap();
    }
    modules
}

struct Tutorial {
    world: World,
    database: tokio_postgres::Client,
    _postgres: Postgres,
}

impl Tutorial {
    async fn start(replays: bool) -> Tutorial {
        let (postgres, modules) =
            tokio::task::spawn_blocking(|| (Postgres::start().unwrap(), node_modules())).await.unwrap();
        let url = postgres.url("postgres");
        let (database, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        database
            .batch_execute(
                "CREATE TABLE signups (id serial PRIMARY KEY, tenant_id text, email text, updated_at timestamptz, UNIQUE (tenant_id, email));
                 CREATE TABLE effects (idempotency_key text, effect_type text, ref_id int, PRIMARY KEY (idempotency_key, effect_type))",
            )
            .await
            .unwrap();
        let mut files = vec![("flow.yml", FLOW), ("worker.yml", WORKER), ("queues.yml", QUEUES)];
        if replays {
            files.push(("replay.yml", REPLAY));
        }
        let mut world = World::start_with_secrets(&files, &[("DB_URL", &url)]).await;
        world.stop_node().await;
        std::fs::create_dir(world.config_path("lib")).unwrap();
        std::fs::write(world.config_path("lib/signups.js"), LIBRARY).unwrap();
        std::fs::write(world.config_path("failing"), "0").unwrap();
        std::os::unix::fs::symlink(modules, world.config_path("node_modules")).unwrap();
        world.start_node().await;
        Tutorial { world, database, _postgres: postgres }
    }

    fn fail(&self, times: u32) {
        std::fs::write(self.world.config_path("failing"), times.to_string()).unwrap();
    }

    fn attempts(&self, id: &str) -> usize {
        let attempts = std::fs::read_to_string(self.world.config_path("attempts")).unwrap_or_default();
        attempts.lines().filter(|line| *line == id).count()
    }

    async fn send(&self, id: &str) -> Answer {
        let body = json!({ "event_id": id, "tenant_id": "acme", "payload": { "email": format!("{id}@example.com") } });
        let request = self.world.client.post(format!("{}/intake/signup", self.world.intake));
        Answer::of(request.header("Idempotency-Key", format!("key-{id}")).json(&body).send().await.unwrap()).await
    }

    async fn job(&self, event: &str) -> Value {
        let jobs = self.world.settled(event).await;
        self.world.job(jobs[0]["id"].as_str().unwrap()).await
    }

    async fn rows(&self, table: &str) -> i64 {
        self.database.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn transient_failure_is_retried_and_permanent_failure_is_a_dead_letter_with_its_reason() {
    let tutorial = Tutorial::start(false).await;
    tutorial.fail(1);
    let event = tutorial.send("transient").await.event();
    let job = tutorial.job(&event).await;
    assert_eq!((job["state"].as_str(), job["attempts_total"].as_u64()), (Some("succeeded"), Some(2)), "{job}");
    assert!(job["result"]["id"].is_number(), "{job}");

    tutorial.fail(100);
    let dead = tutorial.send("permanent").await.event();
    let job = tutorial.job(&dead).await;
    assert_eq!((job["state"].as_str(), job["attempts_total"].as_u64()), (Some("dead"), Some(3)), "{job}");
    assert_eq!(job["dead_letter_queue"], "signups-dlq", "{job}");
    assert!(job["failure"]["message"].as_str().unwrap().contains("forced failure"), "{job}");
    assert_eq!((tutorial.rows("signups").await, tutorial.rows("effects").await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_key_gets_the_first_result_and_runs_once() {
    let tutorial = Tutorial::start(false).await;
    let first = tutorial.send("twice").await.event();
    let job = tutorial.job(&first).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let second = tutorial.send("twice").await;
    assert_eq!(second.headers["Idempotent-Replayed"], "true");
    assert_eq!(second.event(), first);
    assert!(second.body.to_string().contains(&job["result"].to_string()), "the first result: {}", second.body);
    assert_eq!((tutorial.attempts("twice"), tutorial.rows("signups").await), (1, 1));
    let noted = tutorial.database.query_one("SELECT idempotency_key FROM effects", &[]).await.unwrap();
    assert_eq!(noted.get::<_, &str>(0), "key-twice", "what was done is found by the key that the sender knows");
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_replay_requeues_dead_letters_with_their_own_keys() {
    let tutorial = Tutorial::start(true).await;
    let done = tutorial.send("done").await.event();
    assert_eq!(tutorial.job(&done).await["state"], "succeeded");
    tutorial.world.act("/api/v1/pause", json!({ "target": "replays", "reason": "not yet" })).await;
    tutorial.fail(100);
    let events = [tutorial.send("one").await.event(), tutorial.send("two").await.event()];
    for event in &events {
        assert_eq!(tutorial.job(event).await["state"], "dead");
    }
    tutorial.fail(0);
    tutorial.world.act("/api/v1/resume", json!({ "target": "replays" })).await;
    for event in &events {
        let job = until(|| async {
            let job = tutorial.job(event).await;
            (job["state"] == "succeeded").then_some(job)
        })
        .await;
        assert_eq!(job["replays"], 1, "{job}");
    }
    assert_eq!(tutorial.attempts("done"), 1, "what succeeded is left alone");
    assert_eq!((tutorial.rows("signups").await, tutorial.rows("effects").await), (3, 3));
    let audit = tutorial.world.get("/api/v1/audit?limit=200").await.to_string();
    assert!(audit.contains("worker:replay-signups") && audit.contains("scheduled replay"), "{audit}");
}

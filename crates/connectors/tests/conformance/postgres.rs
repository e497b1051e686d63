//! `postgres.upsert` against a real PostgreSQL.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors, OutboundSettings};
use sluice_domain::action::Action;
use sluice_domain::destination::{Destination, DestinationKind, PostgresDestination};
use sluice_domain::outcome::{Outcome, Readback};
use sluice_simulator::Postgres;
use sluice_simulator::postgres::{CommitLoss, PASSWORD};
use tokio_postgres::{Client, NoTls};

use crate::{PATIENT, SHORT, brief, destination};

/// One cluster for all tests; stops with this process.
fn cluster() -> &'static Postgres {
    static CLUSTER: OnceLock<Postgres> = OnceLock::new();
    CLUSTER.get_or_init(|| Postgres::start().unwrap())
}

const TABLES: &str = "
    CREATE TYPE stage AS ENUM ('new', 'won');
    CREATE TABLE contacts (
        id bigint GENERATED ALWAYS AS IDENTITY, tenant text NOT NULL, email varchar(40) NOT NULL, score int CHECK (score >= 0),
        stage stage, tags text[], extra jsonb, born date, seen timestamptz, price numeric(8,2), ok boolean, code char(3),
        UNIQUE (tenant, email)
    );
    CREATE TABLE touches (at timestamptz DEFAULT now());
    CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO touches DEFAULT VALUES; RETURN NULL; END $$;
    CREATE TRIGGER touched AFTER INSERT OR UPDATE ON contacts FOR EACH ROW EXECUTE FUNCTION touch();
";

/// One database per test.
struct Database {
    name: String,
    client: Client,
}

async fn client(database: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(&cluster().url(database), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Database {
    async fn new() -> Database {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("base{}", NUMBER.fetch_add(1, Ordering::SeqCst));
        client("postgres").await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let client = client(&name).await;
        client.batch_execute(TABLES).await.unwrap();
        Database { name, client }
    }

    fn url(&self) -> String {
        cluster().url(&self.name)
    }

    async fn count(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Row writes, effect rows, rows.
    async fn counts(&self) -> (i64, i64, i64) {
        (
            self.count("SELECT count(*) FROM touches").await,
            self.count("SELECT count(*) FROM sluice_effects").await,
            self.count("SELECT count(*) FROM contacts").await,
        )
    }
}

fn at(url: &str) -> Connectors {
    at_with(url, Duration::from_secs(10))
}

fn at_with(url: &str, statement_timeout: Duration) -> Connectors {
    let settings = PostgresDestination { url: url.into(), statement_timeout, ca_certificate: None };
    Connectors::new([&destination("there", DestinationKind::Postgres(settings))], &OutboundSettings::default()).unwrap()
}

fn upsert(with: &Value) -> Call<'_> {
    crate::call(Action::PostgresUpsert, with, PATIENT)
}

fn ada(values: Value) -> Value {
    let mut all = json!({"tenant": "acme", "email": "ada@example.com"});
    all.as_object_mut().unwrap().extend(values.as_object().unwrap().clone());
    json!({"table": "contacts", "key": ["tenant", "email"], "values": all, "returning": ["id", "email"]})
}

#[tokio::test]
async fn effect_writes_its_row_once_and_a_second_call_finds_its_effect_row() {
    let database = Database::new().await;
    let connectors = at(&database.url());
    let with = ada(json!({"score": 7}));
    let first = connectors.call(upsert(&with)).await;
    let Outcome::Done { result } = &first else { panic!("{first:?}") };
    assert_eq!(*result, json!({"id": 1, "email": "ada@example.com"}));
    assert_eq!(connectors.call(upsert(&with)).await, first);
    // The same effect with other values changes nothing.
    let changed = ada(json!({"score": 9}));
    assert_eq!(connectors.call(upsert(&changed)).await, first);
    assert_eq!(database.counts().await, (1, 1, 1));
    assert_eq!(connectors.read_back(upsert(&with)).await, Readback::Present(result.clone()));
    // Another effect updates the same row.
    let again = connectors.call(Call { effect_key: "effect-2", ..upsert(&changed) }).await;
    assert_eq!(again, first);
    assert_eq!(database.counts().await, (2, 2, 1));
    assert_eq!(database.count("SELECT score::bigint FROM contacts").await, 9);
    let effect_type: String =
        database.client.query_one("SELECT effect_type FROM sluice_effects LIMIT 1", &[]).await.unwrap().get(0);
    assert_eq!(effect_type, "postgres.upsert");
}

#[tokio::test]
async fn concurrent_calls_with_one_key_write_once() {
    let database = Database::new().await;
    let with = ada(json!({}));
    let nodes = [at(&database.url()), at(&database.url())];
    let mut running = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (node, with) = (nodes[n % 2].clone(), with.clone());
        running.spawn(async move { node.call(upsert(&with)).await });
    }
    for outcome in running.join_all().await {
        assert_eq!(outcome.as_str(), "done", "{outcome:?}");
    }
    assert_eq!(database.counts().await, (1, 1, 1));
}

#[tokio::test]
async fn values_are_cast_to_their_column_types() {
    let database = Database::new().await;
    let connectors = at(&database.url());
    let with = ada(json!({
        "score": "12", "stage": "won", "tags": ["a", "b \"c\"", "{d}"], "extra": {"n": [1, null]}, "born": "2001-02-03",
        "seen": "2026-11-15T12:00:00Z", "price": 12.5, "ok": true, "code": "ab",
    }));
    let outcome = connectors.call(upsert(&with)).await;
    assert_eq!(brief(&outcome), "done", "{outcome:?}");
    let text: String =
        database.client.query_one("SELECT (to_jsonb(c) - 'seen')::text FROM contacts c", &[]).await.unwrap().get(0);
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        json!({
            "id": 1, "tenant": "acme", "email": "ada@example.com", "score": 12, "stage": "won", "tags": ["a", "b \"c\"", "{d}"],
            "extra": {"n": [1, null]}, "born": "2001-02-03", "price": 12.5, "ok": true, "code": "ab ",
        })
    );
}

#[tokio::test]
async fn rejected_row_reports_its_sqlstate_and_leaves_no_effect_row() {
    let database = Database::new().await;
    let connectors = at(&database.url());
    let good = json!({"tenant": "acme", "email": "a"});
    let long = "x".repeat(41);
    for (with, expected) in [
        (ada(json!({"score": -1})), "reject permanent 23514"),
        (ada(json!({"score": "many"})), "reject permanent 22P02"),
        (ada(json!({"email": long})), "reject permanent 22001"),
        (ada(json!({"stage": "lost"})), "reject permanent 22P02"),
        (ada(json!({"nope": 1})), "reject permanent 42703"),
        (json!({"table": "nobody", "key": "email", "values": good}), "reject permanent 42P01"),
        (json!({"table": "contacts", "key": "email", "values": good}), "reject permanent 42P10"),
        (
            json!({"table": "contacts\"; drop table contacts; --", "key": "email", "values": good}),
            "reject permanent 42P01",
        ),
        (ada(json!({"tenant": null})), "reject identity no-identity"),
    ] {
        assert_eq!(brief(&connectors.call(upsert(&with)).await), expected);
    }
    assert_eq!(database.counts().await, (0, 0, 0));
    assert_eq!(connectors.read_back(upsert(&ada(json!({})))).await, Readback::Absent);
}

#[tokio::test]
async fn lost_commit_response_applies_the_effect_once() {
    for (loss, touches) in [(CommitLoss::AfterCommitting, 1), (CommitLoss::BeforeCommitting, 0)] {
        let database = Database::new().await;
        let relay = cluster().relay().unwrap();
        let url = database.url().replace(&format!(":{}/", cluster().port()), &format!(":{}/", relay.port()));
        let connectors = at(&url);
        let with = ada(json!({}));
        // Creating the effects table has its own COMMIT, which must not be the lost one.
        connectors.call(Call { effect_key: "warm-up", ..upsert(&with) }).await;
        relay.lose_next_commit(loss);
        let outcome = connectors.call(upsert(&with)).await;
        assert_eq!(outcome.as_str(), "unsure", "{loss:?} {outcome:?}");
        let (before, _, _) = database.counts().await;
        assert_eq!(before, 1 + touches, "{loss:?}");
        let read_back = connectors.read_back(upsert(&with)).await;
        assert_eq!(matches!(read_back, Readback::Present(_)), touches == 1, "{loss:?} {read_back:?}");
        assert_eq!(connectors.call(upsert(&with)).await.as_str(), "done");
        assert_eq!(database.counts().await, (2, 2, 1), "{loss:?}");
    }
}

#[tokio::test]
async fn uncommitted_transaction_is_retried() {
    let database = Database::new().await;
    let relay = cluster().relay().unwrap();
    let url = database.url().replace(&format!(":{}/", cluster().port()), &format!(":{}/", relay.port()));
    let connectors = at(&url);
    let with = ada(json!({}));
    relay.refuse_connections().unwrap();
    assert_eq!(brief(&connectors.call(upsert(&with)).await), "retry retryable connect");
    relay.accept_connections().unwrap();
    assert_eq!(connectors.call(upsert(&with)).await.as_str(), "done");

    // A table locked by another session.
    database.client.batch_execute("BEGIN; LOCK TABLE contacts").await.unwrap();
    let impatient = at_with(&url, Duration::from_millis(50));
    let other = Call { effect_key: "effect-2", ..upsert(&with) };
    assert_eq!(brief(&impatient.call(other).await), "retry retryable 57014");
    let timed_out = connectors.call(Call { timeout: SHORT, ..other }).await;
    assert_eq!(brief(&timed_out), "retry retryable timeout");
    database.client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(connectors.call(other).await.as_str(), "done");
    assert_eq!(database.counts().await, (2, 2, 1));

    // A dropped effects table is created again.
    database.client.batch_execute("DROP TABLE sluice_effects").await.unwrap();
    let third = Call { effect_key: "effect-3", ..upsert(&with) };
    assert_eq!(brief(&connectors.call(third).await), "retry retryable 42P01");
    assert_eq!(connectors.call(third).await.as_str(), "done");
}

#[tokio::test]
async fn missing_privileges_are_reported_without_secrets() {
    let database = Database::new().await;
    let with = ada(json!({}));
    let wrong = at(&database.url().replace(PASSWORD, "hunter2-wrong"));
    let outcome = wrong.call(upsert(&with)).await;
    assert_eq!(brief(&outcome), "reject auth 28P01");
    let missing = at(&database.url().replace(&format!(":{PASSWORD}"), ""));
    assert_eq!(missing.call(upsert(&with)).await.failure().unwrap().class.as_str(), "auth");
    let preview = wrong.preview(&upsert(&with)).unwrap();
    let shown = format!("{wrong:?} {outcome:?} {preview:?} {:?}", wrong.read_back(upsert(&with)).await);
    assert!(!shown.contains("hunter2") && !shown.contains(PASSWORD), "{shown}");
    assert_eq!(
        (preview.method.as_str(), preview.url.as_str()),
        ("UPSERT", &*format!("postgres://127.0.0.1/{}", database.name))
    );

    database
        .client
        .batch_execute("CREATE ROLE guest LOGIN PASSWORD 'guest-secret'; GRANT ALL ON contacts, touches TO guest")
        .await
        .unwrap();
    let guest = at(&database.url().replace("sluice:", "guest:").replace(PASSWORD, "guest-secret"));
    let refused = guest.call(upsert(&with)).await;
    assert_eq!(brief(&refused), "reject auth 42501");
    assert!(refused.failure().unwrap().message.contains("sluice_effects"), "{refused:?}");
}

#[tokio::test]
async fn required_tls_rejects_a_server_without_tls() {
    let database = Database::new().await;
    let connectors = at(&format!("{}?sslmode=require", database.url()));
    let outcome = connectors.call(upsert(&ada(json!({})))).await;
    assert_eq!(brief(&outcome), "reject auth connect", "{outcome:?}");
    assert!(outcome.failure().unwrap().message.contains("TLS"), "{outcome:?}");
}

#[test]
fn invalid_url_is_rejected_when_built() {
    let settings = PostgresDestination {
        url: "mysql://u:hunter2@db/d".into(),
        statement_timeout: Duration::from_secs(1),
        ca_certificate: Some("not a certificate".into()),
    };
    let invalid: Destination = destination("there", DestinationKind::Postgres(settings));
    let problem = Connectors::new([&invalid], &OutboundSettings::default()).unwrap_err().to_string();
    assert!(problem.contains("url") && !problem.contains("hunter2"), "{problem}");
}

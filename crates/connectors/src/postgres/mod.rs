//! `postgres.upsert`: one row and its effect row in one transaction.

mod request;
pub(crate) mod response;
mod settings;
mod tls;

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use serde_json::{Value, json};
use sluice_domain::destination::PostgresDestination;
use sluice_domain::failure_rules::{FailureRule, FailureTable};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::verify::SecretValue;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, NoTls};

use request::{COLUMNS, CREATE_EFFECTS, Column, INSERT_EFFECT, SELECT_EFFECT, UPDATE_EFFECT, build};
use response::{DbFailure, SHIPPED_RULES, Stage, connection_lost, output, rejected};
use settings::{Settings, location, parse_url};

use crate::text::{exposed, redact, redact_outcome};
use crate::tls::Tls;
use crate::{Call, Preview, deadline};

/// SQLSTATE: the effects table does not exist.
const UNDEFINED_TABLE: &str = "42P01";

/// Serializes nodes that create the effects table at the same time. The lock id is arbitrary.
const LOCK_EFFECTS: &str = "SELECT pg_advisory_xact_lock(7310582640127643)";

/// PostgreSQL destination with parsed settings.
#[derive(Debug)]
pub(crate) struct Target {
    pool: Pool,
    /// Host and database, for messages.
    location: String,
    statement_timeout: Duration,
    /// The effects table is known to exist.
    effects_exist: AtomicBool,
    /// Redacted from every message about this destination.
    secrets: Vec<SecretValue>,
    /// What errors mean.
    rules: FailureTable,
}

impl Target {
    /// The same, with rules of the destination before the shipped ones.
    pub(crate) fn with_rules(self, own: &[FailureRule]) -> Target {
        Target { rules: SHIPPED_RULES.behind(own), ..self }
    }

    /// Parses the settings; the error names the invalid key. Does not connect.
    pub(crate) fn new(destination: &PostgresDestination, connections_max: u32) -> Result<Target, String> {
        let config = parse_url(destination.url.expose())?;
        let location = location(&config);
        let mut secrets = vec![destination.url.clone()];
        secrets
            .extend(config.get_password().map(|password| SecretValue::new(String::from_utf8_lossy(password).as_ref())));
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match config.get_ssl_mode() {
            // Does not load the system's roots, so it works on a machine without any.
            SslMode::Disable => Manager::from_config(config, NoTls, manager_config),
            _ => {
                let certificate = destination.ca_certificate.as_ref().map(SecretValue::expose);
                let tls = Tls::new(certificate).map_err(|problem| format!("ca_certificate: {problem}"))?;
                Manager::from_config(config, tls, manager_config)
            }
        };
        let pool = Pool::builder(manager)
            .max_size(connections_max.max(1) as usize)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| error.to_string())?;
        let statement_timeout = destination.statement_timeout;
        let (effects_exist, rules) = (AtomicBool::new(false), SHIPPED_RULES.clone());
        Ok(Target { pool, location, statement_timeout, effects_exist, secrets, rules })
    }

    /// Takes a pooled connection or opens one before the deadline.
    async fn connect(&self, deadline_at: Instant) -> Result<Object, Outcome> {
        match timeout_at(deadline_at, self.pool.get()).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(PoolError::Backend(error))) => Err(self.classify(Stage::Open, &error)),
            Ok(Err(other)) => Err(connection_lost(&self.location, Stage::Open, "connect", &other.to_string())),
            Err(_) => Err(connection_lost(&self.location, Stage::Open, "connect", "no connection before the timeout")),
        }
    }

    fn classify(&self, stage: Stage, error: &tokio_postgres::Error) -> Outcome {
        if let Some(db_error) = error.as_db_error() {
            let error = DbFailure { code: db_error.code().code(), message: db_error.message() };
            return rejected(&self.location, stage, error, &self.rules);
        }
        let reason = root_cause(error);
        if reason.contains("password missing") || reason.contains("does not support TLS") {
            let advice = format!("{}: {reason}; check the destination's url and its sslmode", self.location);
            return Outcome::Reject { failure: Failure::new(FailureClass::Auth, "connect", advice) };
        }
        connection_lost(&self.location, stage, if error.is_closed() { "reset" } else { "connect" }, &reason)
    }
}

/// Upserts the row, unless the effect row exists already.
pub(crate) async fn call(target: &Target, timeout_max: Duration, call: Call<'_>) -> Outcome {
    let settings = match Settings::read(call.with) {
        Ok(settings) => settings,
        Err(failure) => return Outcome::Reject { failure },
    };
    let deadline_at = deadline([call.timeout, timeout_max]);
    let started = Instant::now();
    let outcome = match target.connect(deadline_at).await {
        Ok(client) => run(target, client, deadline_at, &settings, call).await,
        Err(outcome) => outcome,
    };
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(location = target.location, outcome = outcome.as_str(), elapsed_ms, "upsert attempt ended");
    redact_outcome(outcome, exposed(&target.secrets))
}

async fn run(
    target: &Target,
    mut client: Object,
    deadline_at: Instant,
    settings: &Settings<'_>,
    call: Call<'_>,
) -> Outcome {
    let committing = AtomicBool::new(false);
    let result = timeout_at(deadline_at, transact(target, &mut client, settings, call, &committing)).await;
    let stage = if committing.load(Ordering::Relaxed) { Stage::Committing } else { Stage::Open };
    match result {
        Ok(Ok(result)) => Outcome::Done { result },
        Ok(Err(TransactionError::Invalid(failure))) => Outcome::Reject { failure },
        Ok(Err(TransactionError::NoEffectsTable(error))) => {
            // The table was dropped; the next attempt creates it again.
            target.effects_exist.store(false, Ordering::Relaxed);
            let reason = format!("the table sluice_effects does not exist any more: {}", root_cause(&error));
            connection_lost(&target.location, Stage::Open, UNDEFINED_TABLE, &reason)
        }
        Ok(Err(TransactionError::Failed(error))) if error.as_db_error().is_some() => target.classify(stage, &error),
        Ok(Err(TransactionError::Failed(error))) => {
            drop(Object::take(client));
            target.classify(stage, &error)
        }
        Err(_) => {
            // Closes the connection: its transaction is still open.
            drop(Object::take(client));
            connection_lost(&target.location, stage, "timeout", "no response before the timeout")
        }
    }
}

/// The transaction did not commit.
enum TransactionError {
    /// The parameters do not fit the table.
    Invalid(Failure),
    /// The effects table does not exist.
    NoEffectsTable(tokio_postgres::Error),
    Failed(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for TransactionError {
    fn from(error: tokio_postgres::Error) -> TransactionError {
        TransactionError::Failed(error)
    }
}

async fn transact(
    target: &Target,
    client: &mut Object,
    settings: &Settings<'_>,
    call: Call<'_>,
    committing: &AtomicBool,
) -> Result<Value, TransactionError> {
    if !target.effects_exist.load(Ordering::Relaxed) {
        create_effects(client).await?;
        target.effects_exist.store(true, Ordering::Relaxed);
    }
    let transaction = client.transaction().await?;
    let limit = target.statement_timeout.as_millis().clamp(1, i32::MAX as u128);
    transaction.batch_execute(&format!("SET LOCAL statement_timeout = {limit}")).await?;
    let inserted = transaction.query_typed(INSERT_EFFECT, &as_text(&[&call.effect_key, &call.action.name()])).await;
    let is_new = match inserted {
        Ok(rows) => !rows.is_empty(),
        Err(error) if is_undefined_table(&error) => return Err(TransactionError::NoEffectsTable(error)),
        Err(error) => return Err(error.into()),
    };
    if !is_new {
        let rows = transaction.query_typed(SELECT_EFFECT, &as_text(&[&call.effect_key])).await?;
        let text: Option<String> = rows.first().and_then(|row| row.get(0));
        transaction.rollback().await?;
        return Ok(output(text.as_deref()));
    }
    let columns = columns_of(&*transaction, settings).await?;
    let statement = build(settings, &columns).map_err(TransactionError::Invalid)?;
    let values: Vec<&(dyn ToSql + Sync)> = statement.values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
    let rows = transaction.query_typed(&statement.sql, &as_text(&values)).await?;
    let row: Option<String> = rows.first().and_then(|row| row.get(0));
    transaction.query_typed(UPDATE_EFFECT, &as_text(&[&call.effect_key, &row])).await?;
    committing.store(true, Ordering::Relaxed);
    transaction.commit().await?;
    Ok(output(row.as_deref()))
}

async fn create_effects(client: &mut Object) -> Result<(), tokio_postgres::Error> {
    let rows = client.query_typed("SELECT to_regclass('sluice_effects')::text", &[]).await?;
    if rows.first().and_then(|row| row.get::<_, Option<String>>(0)).is_some() {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    transaction.batch_execute(&format!("{LOCK_EFFECTS}; {CREATE_EFFECTS}")).await?;
    transaction.commit().await
}

async fn columns_of(
    client: &impl GenericClient,
    settings: &Settings<'_>,
) -> Result<HashMap<String, Column>, TransactionError> {
    let table = settings.table.to_string();
    let rows = client.query_typed(COLUMNS, &as_text(&[&table])).await?;
    if rows.is_empty() {
        let message =
            format!("Table {table} does not exist or the user has no access to it. Correct the step or grant access.");
        return Err(TransactionError::Invalid(Failure::new(FailureClass::Permanent, UNDEFINED_TABLE, message)));
    }
    Ok(rows
        .iter()
        .map(|row| (row.get(0), Column { type_name: row.get(1), is_list: row.get::<_, &str>(2) == "A" }))
        .collect())
}

/// Reads the effect row.
pub(crate) async fn read_back(target: &Target, timeout_max: Duration, call: Call<'_>) -> Readback {
    let deadline_at = deadline([call.timeout, timeout_max]);
    let unreadable = |outcome: Outcome| {
        let failure = outcome.failure().cloned().unwrap_or_else(|| Failure::new(FailureClass::Retryable, "read", ""));
        let message = redact(failure.message, exposed(&target.secrets));
        Readback::Unreadable(Failure { message, ..failure })
    };
    let client = match target.connect(deadline_at).await {
        Ok(client) => client,
        Err(outcome) => return unreadable(outcome),
    };
    let read = timeout_at(deadline_at, client.query_typed(SELECT_EFFECT, &as_text(&[&call.effect_key]))).await;
    match read {
        Ok(Ok(rows)) => match rows.first() {
            Some(row) => Readback::Present(output(row.get::<_, Option<String>>(0).as_deref())),
            None => Readback::Absent,
        },
        Ok(Err(error)) if is_undefined_table(&error) => Readback::Absent,
        Ok(Err(error)) => unreadable(target.classify(Stage::Open, &error)),
        Err(_) => {
            drop(Object::take(client));
            unreadable(connection_lost(&target.location, Stage::Open, "timeout", "no response before the timeout"))
        }
    }
}

pub(crate) fn preview(target: &Target, call: &Call<'_>) -> Result<Preview, Failure> {
    let settings = Settings::read(call.with)?;
    Ok(Preview {
        method: "UPSERT".to_owned(),
        url: format!("postgres://{}", target.location),
        headers: Vec::new(),
        body: json!({
            "table": settings.table.to_string(), "key": settings.key, "values": settings.values,
            "returning": settings.returning, "effect_key": call.effect_key,
        }),
    })
}

/// Sends every value as text; the statement casts it to the type of its column.
fn as_text<'a>(values: &[&'a (dyn ToSql + Sync)]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    values.iter().map(|value| (*value, Type::TEXT)).collect()
}

fn is_undefined_table(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == UNDEFINED_TABLE)
}

fn root_cause(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source()).last().map_or_else(String::new, ToString::to_string)
}

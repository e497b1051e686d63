//! `postgres.upsert`: one row and the note of its effect, in one transaction.

mod request;
mod response;
mod settings;
mod tls;

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use serde_json::{Value, json};
use sluice_domain::destination::PostgresDestination;
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};
use sluice_domain::verify::SecretValue;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, NoTls};

use request::{COLUMNS, CREATE_EFFECTS, Column, MARK, MARKED, REFER, build};
use response::{Stage, broken, output, refused};
use settings::{Settings, parse_url, place};

use crate::text::{exposed, redact, redact_outcome};
use crate::tls::Tls;
use crate::{Call, Preview, deadline};

/// The table of effects is not there.
const UNDEFINED_TABLE: &str = "42P01";

/// Two nodes that create the table of effects at once would disturb each other. The number is nothing but ours.
const LOCK_EFFECTS: &str = "SELECT pg_advisory_xact_lock(7310582640127643)";

/// A database, prepared once.
#[derive(Debug)]
pub(crate) struct Target {
    pool: Pool,
    /// Where it is, for messages.
    place: String,
    statement_timeout: Duration,
    /// Whether the table of effects was seen.
    effects_seen: AtomicBool,
    /// What must not appear in any text about this destination.
    secrets: Vec<SecretValue>,
}

impl Target {
    /// Prepares a destination, or says which of its keys is wrong. Nothing is connected yet.
    pub(crate) fn new(destination: &PostgresDestination, connections_max: u32) -> Result<Target, String> {
        let config = parse_url(destination.url.expose())?;
        let place = place(&config);
        let mut secrets = vec![destination.url.clone()];
        secrets
            .extend(config.get_password().map(|password| SecretValue::new(String::from_utf8_lossy(password).as_ref())));
        let kept = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match config.get_ssl_mode() {
            // A machine without any certificates may still talk to itself.
            SslMode::Disable => Manager::from_config(config, NoTls, kept),
            _ => {
                let certificate = destination.ca_certificate.as_ref().map(SecretValue::expose);
                let tls = Tls::new(certificate).map_err(|problem| format!("ca_certificate: {problem}"))?;
                Manager::from_config(config, tls, kept)
            }
        };
        let pool = Pool::builder(manager)
            .max_size(connections_max.max(1) as usize)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| error.to_string())?;
        let statement_timeout = destination.statement_timeout;
        Ok(Target { pool, place, statement_timeout, effects_seen: AtomicBool::new(false), secrets })
    }

    /// A connection, before the deadline.
    async fn connect(&self, until: Instant) -> Result<Object, Outcome> {
        match timeout_at(until, self.pool.get()).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(PoolError::Backend(error))) => Err(self.sort(Stage::Open, &error)),
            Ok(Err(other)) => Err(broken(&self.place, Stage::Open, "connect", &other.to_string())),
            Err(_) => Err(broken(&self.place, Stage::Open, "connect", "there was no connection in time")),
        }
    }

    fn sort(&self, stage: Stage, error: &tokio_postgres::Error) -> Outcome {
        if let Some(answer) = error.as_db_error() {
            return refused(&self.place, stage, answer.code().code(), answer.message());
        }
        let reason = innermost(error);
        if reason.contains("password missing") || reason.contains("does not support TLS") {
            let advice = format!("{}: {reason}; check the destination's url, and sslmode in it", self.place);
            return Outcome::Reject { failure: Failure::new(FailureClass::Auth, "connect", advice) };
        }
        broken(&self.place, stage, if error.is_closed() { "reset" } else { "connect" }, &reason)
    }
}

/// Upserts the row, unless the effect's note says that it was done.
pub(crate) async fn call(target: &Target, longest: Duration, call: Call<'_>) -> Outcome {
    let settings = match Settings::read(call.with) {
        Ok(settings) => settings,
        Err(failure) => return Outcome::Reject { failure },
    };
    let until = deadline([call.timeout, longest]);
    let started = Instant::now();
    let outcome = match target.connect(until).await {
        Ok(client) => within(target, client, until, &settings, call).await,
        Err(outcome) => outcome,
    };
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(place = target.place, outcome = outcome.as_str(), elapsed_ms, "answered");
    redact_outcome(outcome, exposed(&target.secrets))
}

async fn within(
    target: &Target,
    mut client: Object,
    until: Instant,
    settings: &Settings<'_>,
    call: Call<'_>,
) -> Outcome {
    let committing = AtomicBool::new(false);
    let ran = timeout_at(until, transact(target, &mut client, settings, call, &committing)).await;
    let stage = if committing.load(Ordering::Relaxed) { Stage::Committing } else { Stage::Open };
    match ran {
        Ok(Ok(result)) => Outcome::Done { result },
        Ok(Err(TransactionError::Refused(failure))) => Outcome::Reject { failure },
        Ok(Err(TransactionError::Unmarked(error))) => {
            // Somebody took the table away; the next attempt makes it again.
            target.effects_seen.store(false, Ordering::Relaxed);
            let reason = format!("the table sluice_effects is gone: {}", innermost(&error));
            broken(&target.place, Stage::Open, UNDEFINED_TABLE, &reason)
        }
        Ok(Err(TransactionError::Failed(error))) if error.as_db_error().is_some() => target.sort(stage, &error),
        Ok(Err(TransactionError::Failed(error))) => {
            drop(Object::take(client));
            target.sort(stage, &error)
        }
        Err(_) => {
            // What it was in the middle of must not meet the next call.
            drop(Object::take(client));
            broken(&target.place, stage, "timeout", "there was no answer in time")
        }
    }
}

/// Why a transaction did not come to its end.
enum TransactionError {
    /// Nothing was wrong but what was asked for.
    Refused(Failure),
    /// The table of effects is gone.
    Unmarked(tokio_postgres::Error),
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
    if !target.effects_seen.load(Ordering::Relaxed) {
        create_effects(client).await?;
        target.effects_seen.store(true, Ordering::Relaxed);
    }
    let transaction = client.transaction().await?;
    let limit = target.statement_timeout.as_millis().clamp(1, i32::MAX as u128);
    transaction.batch_execute(&format!("SET LOCAL statement_timeout = {limit}")).await?;
    let marked = transaction.query_typed(MARK, &texts(&[&call.effect_key, &call.action.name()])).await;
    let fresh = match marked {
        Ok(rows) => !rows.is_empty(),
        Err(error) if is_undefined_table(&error) => return Err(TransactionError::Unmarked(error)),
        Err(error) => return Err(error.into()),
    };
    if !fresh {
        let rows = transaction.query_typed(MARKED, &texts(&[&call.effect_key])).await?;
        let text: Option<String> = rows.first().and_then(|row| row.get(0));
        transaction.rollback().await?;
        return Ok(output(text.as_deref()));
    }
    let columns = columns_of(&*transaction, settings).await?;
    let statement = build(settings, &columns).map_err(TransactionError::Refused)?;
    let values: Vec<&(dyn ToSql + Sync)> = statement.values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
    let rows = transaction.query_typed(&statement.sql, &texts(&values)).await?;
    let row: Option<String> = rows.first().and_then(|row| row.get(0));
    transaction.query_typed(REFER, &texts(&[&call.effect_key, &row])).await?;
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
    let rows = client.query_typed(COLUMNS, &texts(&[&table])).await?;
    if rows.is_empty() {
        let message = format!("There is no table {table}, or the user cannot see it.");
        return Err(TransactionError::Refused(Failure::new(FailureClass::Permanent, UNDEFINED_TABLE, message)));
    }
    Ok(rows
        .iter()
        .map(|row| (row.get(0), Column { type_name: row.get(1), is_list: row.get::<_, &str>(2) == "A" }))
        .collect())
}

/// Asks for the effect's note.
pub(crate) async fn read_back(target: &Target, longest: Duration, call: Call<'_>) -> Readback {
    let until = deadline([call.timeout, longest]);
    let unreadable = |outcome: Outcome| {
        let failure = outcome.failure().cloned().unwrap_or_else(|| Failure::new(FailureClass::Retryable, "read", ""));
        let message = redact(failure.message, exposed(&target.secrets));
        Readback::Unreadable(Failure { message, ..failure })
    };
    let client = match target.connect(until).await {
        Ok(client) => client,
        Err(outcome) => return unreadable(outcome),
    };
    let read = timeout_at(until, client.query_typed(MARKED, &texts(&[&call.effect_key]))).await;
    match read {
        Ok(Ok(rows)) => match rows.first() {
            Some(row) => Readback::Present(output(row.get::<_, Option<String>>(0).as_deref())),
            None => Readback::Absent,
        },
        Ok(Err(error)) if is_undefined_table(&error) => Readback::Absent,
        Ok(Err(error)) => unreadable(target.sort(Stage::Open, &error)),
        Err(_) => {
            drop(Object::take(client));
            unreadable(broken(&target.place, Stage::Open, "timeout", "there was no answer in time"))
        }
    }
}

/// What would be asked for.
pub(crate) fn preview(target: &Target, call: &Call<'_>) -> Result<Preview, Failure> {
    let settings = Settings::read(call.with)?;
    Ok(Preview {
        method: "UPSERT".to_owned(),
        url: format!("postgres://{}", target.place),
        headers: Vec::new(),
        body: json!({
            "table": settings.table.to_string(), "key": settings.key, "values": settings.values,
            "returning": settings.returning, "effect_key": call.effect_key,
        }),
    })
}

/// Every value is text to us; a cast makes it what its column wants.
fn texts<'a>(values: &[&'a (dyn ToSql + Sync)]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    values.iter().map(|value| (*value, Type::TEXT)).collect()
}

fn is_undefined_table(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == UNDEFINED_TABLE)
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source()).last().map_or_else(String::new, ToString::to_string)
}

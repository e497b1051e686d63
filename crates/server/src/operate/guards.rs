//! Whom not to write to, and safe mode.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::mask;
use sluice_domain::policy::Contact;
use sluice_domain::safe_mode::SafeMode;
use sluice_domain::unit;
use sluice_ledger::{JobFilter, SetSafeMode, Suppress, Unsuppress};
use utoipa::{IntoParams, ToSchema};

use super::api::{ApiResult, JsonBody, QueryParams};
use super::commands::{need, or_unknown};
use super::operator::{OperateError, Operator};
use crate::safe_mode::SAFE_MODE_HOLDS;

/// Contacts that one order may name.
const CONTACTS_MAX: usize = 100_000;
/// Contacts that are written in one transaction.
const SLICE: usize = 500;

/// A contact that must not be written to.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SuppressionView {
    /// Masked: who it is exactly is kept as a digest only.
    pub contact: String,
    /// By which channel; empty means any.
    pub channel: String,
    /// Since when.
    pub at: String,
    /// Who said so.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// Whom not to write to, or to write to again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SuppressRequest {
    /// Put these on the list.
    #[serde(default)]
    pub add: Vec<String>,
    /// Take these off it.
    #[serde(default)]
    pub remove: Vec<String>,
    /// By which channel; any when left out.
    #[serde(default)]
    pub channel: String,
    /// Why.
    pub reason: String,
    /// Who.
    #[serde(default)]
    pub actor: String,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SuppressedView {
    /// So many are on the list now that were not before.
    pub added: u64,
    /// So many were taken off it.
    pub removed: u64,
}

/// Safe mode of a worker, or of all.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SafeModeView {
    /// The worker; null is all of them.
    pub worker: Option<String>,
    /// Since when.
    pub since: String,
    /// Until when.
    pub until: String,
    /// Who turned it on; `sluice` by rule.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// Turn safe mode on or off.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SafeModeRequest {
    /// On or off.
    pub on: bool,
    /// The worker; all of them when left out.
    #[serde(default)]
    pub worker: Option<String>,
    /// For how long, such as `1h`; what the worker's `safe_mode.for` says when left out.
    #[serde(default)]
    pub r#for: Option<String>,
    /// Why.
    pub reason: String,
    /// Who.
    #[serde(default)]
    pub actor: String,
}

impl Operator {
    /// Whom not to write to, newest first.
    pub async fn suppressions(&self, limit: u32) -> Result<Vec<SuppressionView>, OperateError> {
        let records = self.ledger.suppressions(limit.clamp(1, 10_000)).await?;
        let view = |record: sluice_ledger::SuppressionRecord| SuppressionView {
            contact: record.label,
            channel: record.channel,
            at: record.at.to_string(),
            actor: record.actor,
            reason: record.reason,
        };
        Ok(records.into_iter().map(view).collect())
    }

    /// Changes the list.
    pub async fn suppress(&self, order: SuppressRequest) -> Result<SuppressedView, OperateError> {
        need(&order.reason, "the list is changed for a reason")?;
        if order.add.len() + order.remove.len() > CONTACTS_MAX {
            return Err(OperateError::Invalid(format!("more than {CONTACTS_MAX} contacts; send them in parts")));
        }
        let contacts = |texts: &[String]| {
            let read = |text: &String| {
                Contact::new(text).ok_or_else(|| OperateError::Invalid("a contact cannot be empty".into()))
            };
            texts.iter().map(read).collect::<Result<Vec<_>, _>>()
        };
        let (add, remove) = (contacts(&order.add)?, contacts(&order.remove)?);
        if add.is_empty() && remove.is_empty() {
            return Err(OperateError::Invalid("name at least one contact".into()));
        }
        let (actor, at) = (or_unknown(&order.actor), self.clock.wall());
        let mut done = SuppressedView::default();
        for slice in add.chunks(SLICE) {
            let contacts = slice.iter().map(|contact| (contact.digest(), mask::text(contact.text()).into_owned()));
            let suppress = Suppress {
                contacts: contacts.collect(),
                channel: order.channel.clone(),
                actor: actor.clone(),
                reason: order.reason.clone(),
                at,
            };
            done.added += self.ledger.suppress(suppress).await?;
        }
        for slice in remove.chunks(SLICE) {
            let release = Unsuppress {
                contacts: slice.iter().map(Contact::digest).collect(),
                channel: order.channel.clone(),
                actor: actor.clone(),
                reason: order.reason.clone(),
                at,
            };
            done.removed += self.ledger.unsuppress(release).await?;
        }
        Ok(done)
    }

    /// Every safe mode that is on.
    pub async fn safe_modes(&self) -> Result<Vec<SafeModeView>, OperateError> {
        let now = self.clock.wall();
        let on = self.ledger.safe_modes().await?.into_iter().filter(|record| record.until > now);
        let view = |record: sluice_ledger::SafeModeRecord| SafeModeView {
            worker: record.worker,
            since: record.at.to_string(),
            until: record.until.to_string(),
            actor: record.actor,
            reason: record.reason,
        };
        Ok(on.map(view).collect())
    }

    /// Turns safe mode on or off, with an end.
    pub async fn set_safe_mode(&self, order: SafeModeRequest) -> Result<(), OperateError> {
        need(&order.reason, "safe mode is turned on and off for a reason")?;
        let live = self.revisions.current();
        let worker = match &order.worker {
            None => None,
            Some(name) => match live.config.workers.get(name) {
                Some(worker) => Some(worker),
                None => {
                    let names = live.config.workers.keys().map(String::as_str);
                    let hint = crate::config::did_you_mean(name, names)
                        .map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                    return Err(OperateError::NotFound(format!("there is no worker `{name}`{hint}")));
                }
            },
        };
        let at = self.clock.wall();
        let lasts = match &order.r#for {
            Some(text) => unit::duration(text).map_err(|problem| OperateError::Invalid(problem.to_string()))?,
            None => worker.map_or(SafeMode::DEFAULT_DURATION, |worker| worker.safe_mode.duration),
        };
        let until = order.on.then_some(at + lasts);
        let (actor, reason) = (or_unknown(&order.actor), order.reason.clone());
        let set = SetSafeMode { worker: order.worker.clone(), until, actor, reason, at };
        self.safe_modes.set(set).await?;
        if order.on { Ok(()) } else { self.wake_held(order.worker).await }
    }

    /// What safe mode held goes on.
    async fn wake_held(&self, worker: Option<String>) -> Result<(), OperateError> {
        let code = Some(SAFE_MODE_HOLDS.to_owned());
        let filter = JobFilter { states: vec![JobState::Waiting], worker, code, ..JobFilter::default() };
        let mut after = JobId(0);
        loop {
            let jobs = self.ledger.matching_jobs(filter.clone(), after, SLICE as u32).await?;
            let Some(last) = jobs.last() else { return Ok(()) };
            after = *last;
            let mut woken = Vec::with_capacity(jobs.len());
            for id in jobs {
                woken.push((id, self.job_record(id).await?.worker));
            }
            self.scheduler.woken(woken);
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct SuppressionsQuery {
    /// At most so many.
    limit: Option<u32>,
}

/// Whom not to write to, newest first; masked.
#[utoipa::path(get, path = "/api/v1/suppressions", params(SuppressionsQuery), responses((status = 200, body = Vec<SuppressionView>)))]
pub(super) async fn suppressions(
    State(operator): State<Operator>,
    QueryParams(query): QueryParams<SuppressionsQuery>,
) -> ApiResult<Vec<SuppressionView>> {
    Ok(Json(operator.suppressions(query.limit.unwrap_or(100)).await?))
}

/// Put contacts on the list of those that policies with `suppression` do not write to, or take them off it.
#[utoipa::path(post, path = "/api/v1/suppressions", request_body = SuppressRequest, responses((status = 200, body = SuppressedView)))]
pub(super) async fn suppress(
    State(operator): State<Operator>,
    JsonBody(order): JsonBody<SuppressRequest>,
) -> ApiResult<SuppressedView> {
    Ok(Json(operator.suppress(order).await?))
}

/// Which workers are in safe mode.
#[utoipa::path(get, path = "/api/v1/safe-mode", responses((status = 200, body = Vec<SafeModeView>)))]
pub(super) async fn safe_modes(State(operator): State<Operator>) -> ApiResult<Vec<SafeModeView>> {
    Ok(Json(operator.safe_modes().await?))
}

/// Turn safe mode on, with an end, or off.
#[utoipa::path(post, path = "/api/v1/safe-mode", request_body = SafeModeRequest, responses((status = 200, body = Vec<SafeModeView>)))]
pub(super) async fn set_safe_mode(
    State(operator): State<Operator>,
    JsonBody(order): JsonBody<SafeModeRequest>,
) -> ApiResult<Vec<SafeModeView>> {
    operator.set_safe_mode(order).await?;
    Ok(Json(operator.safe_modes().await?))
}

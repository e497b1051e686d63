//! Suppress contacts and set safe mode.

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::policy::Contact;
use sluice_domain::safe_mode::SafeMode;
use sluice_domain::{mask, unit};
use sluice_ledger::{JobFilter, MakeDue, SetSafeMode, Suppress, Unsuppress};
use utoipa::ToSchema;

use crate::operate::commands::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::SuppressedView;
use crate::safe_mode::SAFE_MODE_HOLDS;

/// Maximum contacts per request.
const CONTACTS_MAX: usize = 100_000;
/// Contacts per transaction.
const SLICE: usize = 500;

/// Change of the suppression list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SuppressRequest {
    #[serde(default)]
    pub add: Vec<String>,
    #[serde(default)]
    pub remove: Vec<String>,
    /// Channel; any by default.
    #[serde(default)]
    pub channel: String,
    pub reason: String,
    #[serde(default)]
    pub actor: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SafeModeRequest {
    pub on: bool,
    /// Worker; all by default.
    #[serde(default)]
    pub worker: Option<String>,
    /// Duration such as `1h`; the worker's `safe_mode.for` by default.
    #[serde(default)]
    pub r#for: Option<String>,
    pub reason: String,
    #[serde(default)]
    pub actor: String,
}

impl Operator {
    pub async fn suppress(&self, order: SuppressRequest) -> Result<SuppressedView, OperateError> {
        self.permit(Permission::Operate)?;
        need(&order.reason, "a change of the suppression list needs a reason")?;
        if order.add.len() + order.remove.len() > CONTACTS_MAX {
            return Err(OperateError::Invalid(format!("more than {CONTACTS_MAX} contacts; send them in parts")));
        }
        let contacts = |texts: &[String]| {
            let read =
                |text: &String| Contact::new(text).ok_or_else(|| OperateError::Invalid("a contact is empty".into()));
            texts.iter().map(read).collect::<Result<Vec<_>, _>>()
        };
        let (add, remove) = (contacts(&order.add)?, contacts(&order.remove)?);
        if add.is_empty() && remove.is_empty() {
            return Err(OperateError::Invalid("name at least one contact".into()));
        }
        let (actor, at) = (self.actor(&order.actor), self.clock.ledger_time());
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

    pub async fn set_safe_mode(&self, order: SafeModeRequest) -> Result<(), OperateError> {
        self.permit(Permission::Operate)?;
        need(&order.reason, "a change of safe mode needs a reason")?;
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
        let at = self.clock.ledger_time();
        let lasts = match &order.r#for {
            Some(text) => unit::duration(text).map_err(|problem| OperateError::Invalid(problem.to_string()))?,
            None => worker.map_or(SafeMode::DEFAULT_DURATION, |worker| worker.safe_mode.duration),
        };
        let until = order.on.then_some(at + lasts);
        let (actor, reason) = (self.actor(&order.actor), order.reason.clone());
        let set = SetSafeMode { worker: order.worker.clone(), until, actor, reason, at };
        self.ledger.set_safe_mode(set).await?;
        self.catch_up().await?;
        if order.on { Ok(()) } else { self.release_held(order.worker).await }
    }

    /// Makes jobs held by safe mode due.
    async fn release_held(&self, worker: Option<String>) -> Result<(), OperateError> {
        let code = Some(SAFE_MODE_HOLDS.to_owned());
        let filter = JobFilter { states: vec![JobState::Waiting], worker, code, ..JobFilter::default() };
        let mut after = JobId(0);
        loop {
            let jobs = self.ledger.matching_jobs(filter.clone(), after, SLICE as u32).await?;
            let Some(last) = jobs.last() else { return Ok(()) };
            after = *last;
            let due = self.ledger.make_due(MakeDue { jobs, at: self.clock.now() }).await?;
            self.scheduler.due_now(due);
        }
    }
}

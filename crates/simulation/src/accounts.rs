//! A system without idempotency: it makes a record of every create, its search lags, and a create may be applied after its time-out.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_domain::hash::Map;
use sluice_domain::job::JobId;
use sluice_domain::outcome::{EffectClass, Outcome};
use sluice_domain::run::StepCall;

use super::coverage::Fault;
use super::destinations::{Answer, LAG_MS_MAX, Look};
use super::invariants::Invariant;
use super::plan::{IDENTITIES, IDENTITY, STRAGGLER_HORIZON, VISIBILITY_TIMEOUT_MS, identity};
use super::trace::About;
use super::world::Simulation;

/// How long after it was sent a create may be applied and found, at the most.
const OPEN_MS: i64 = VISIBILITY_TIMEOUT_MS + STRAGGLER_HORIZON.as_millis() as i64;

/// The records of one identity.
#[derive(Debug, Default)]
struct Account {
    records: Vec<AccountRecord>,
    /// The last create whose answer is not known, and until when it may be applied.
    open: Option<(JobId, i64)>,
    /// The search has denied a record that it had to show.
    is_denied: bool,
}

#[derive(Clone, Copy, Debug)]
struct AccountRecord {
    id: u64,
    /// From when on the search shows it.
    visible_at: i64,
}

/// All records, by identity.
#[derive(Debug)]
pub(super) struct Accounts {
    by_identity: Map<Arc<str>, Account>,
    last_id: u64,
}

impl Default for Accounts {
    /// Somebody else has created every third record before.
    fn default() -> Accounts {
        let existing = |id: u64| Account { records: vec![AccountRecord { id, visible_at: 0 }], ..Account::default() };
        let by_identity = (0..IDENTITIES).step_by(3).map(|number| (Arc::from(identity(number)), existing(number)));
        Accounts { by_identity: by_identity.collect(), last_id: IDENTITIES }
    }
}

/// What an upsert comes to after its look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upsert {
    Create,
    /// The record with this id.
    Update(u64),
}

fn identity_of(call: &StepCall) -> Arc<str> {
    Arc::from(call.with[IDENTITY].as_str().unwrap_or_default())
}

/// What the connector returns.
pub(super) fn result(call: &StepCall, id: u64) -> Value {
    json!({ "id": id, "identity": call.with[IDENTITY] })
}

impl Accounts {
    fn visible(&self, identity: &str, now: i64) -> Option<AccountRecord> {
        let records = self.by_identity.get(identity).map_or(&[][..], |account| &account.records);
        records.iter().find(|record| record.visible_at <= now).copied()
    }

    /// Id of the record that the search shows for the identity of a call.
    pub(crate) fn found(&self, call: &StepCall, now: i64) -> Option<u64> {
        self.visible(&identity_of(call), now).map(|record| record.id)
    }

    /// Id of the newest record of the identity of a call.
    fn newest_id(&self, call: &StepCall) -> Option<u64> {
        let account = self.by_identity.get(&identity_of(call))?;
        account.records.last().map(|record| record.id)
    }
}

impl Simulation {
    /// Looks for the record of a call: by its remembered id, or by its identity.
    pub(super) fn look_for_account(&mut self, call: &StepCall) -> Upsert {
        let identity = identity_of(call);
        if let Some(id) = call.record.as_ref().and_then(Value::as_u64) {
            self.coverage.fault(Fault::RecordRemembered);
            return Upsert::Update(id);
        }
        match self.search(&identity) {
            Some(record) => {
                self.coverage.fault(Fault::RecordFound);
                Upsert::Update(record.id)
            }
            None => Upsert::Create,
        }
    }

    /// What the search shows now.
    fn search(&mut self, identity: &Arc<str>) -> Option<AccountRecord> {
        let found = self.accounts.visible(identity, self.now)?;
        if self.rates.lies > 0.0 && self.random.chance(self.rates.lies) {
            self.accounts.by_identity.entry(identity.clone()).or_default().is_denied = true;
            self.happened(Fault::ReadLies);
            return None;
        }
        Some(found)
    }

    /// A create leaves the node.
    pub(super) fn create_sent(&mut self, call: &StepCall) {
        let (now, identity) = (self.now, identity_of(call));
        let account = self.accounts.by_identity.entry(identity.clone()).or_default();
        if let Some((other, until)) = account.open.filter(|(_, until)| *until > now) {
            let left = until - now;
            let detail = || format!("{identity} is created; a create of {other} may be applied for {left} ms more");
            self.checker.fail(now, Invariant::OpenCreatesWait, About::Job(call.job), detail);
        }
        let account = self.accounts.by_identity.entry(identity).or_default();
        account.open = Some((call.job, now + OPEN_MS));
    }

    /// The node has written down the answer to the call of a job: a create of it is not under way any more, unless nobody knows.
    pub(super) fn create_answered(&mut self, job: JobId, outcome: &str) {
        if matches!(outcome, "unsure" | "interrupted") {
            return;
        }
        for account in self.accounts.by_identity.values_mut() {
            account.open = account.open.filter(|(other, _)| *other != job);
        }
    }

    /// A create is applied: now, or after it was given up.
    pub(super) fn create_applied(&mut self, call: &StepCall) {
        self.coverage.fault(Fault::RecordCreated);
        let lag = self.random.below(LAG_MS_MAX) as i64;
        self.accounts.last_id += 1;
        let id = self.accounts.last_id;
        let identity = identity_of(call);
        let account = self.accounts.by_identity.entry(identity.clone()).or_default();
        let shown_by = account.open.map_or(i64::MAX, |(_, until)| until);
        let visible_at = (self.now + lag).min(shown_by.max(self.now));
        account.records.push(AccountRecord { id, visible_at });
        let (count, is_denied) = (account.records.len(), account.is_denied);
        let effect = self.checker.job(call.job).effect(&call.label);
        effect.denied |= is_denied;
        let is_own_first = effect.shown == 0;
        self.applied(call.job, &call.label, visible_at);
        if count > 1 && is_denied {
            // A second one of the same job is counted with its effect.
            self.checker.doubled_by_lies += u64::from(is_own_first);
        } else if count > 1 {
            let detail = || format!("{identity} has {count} records");
            self.checker.fail(self.now, Invariant::OneRecordPerIdentity, About::Job(call.job), detail);
        }
    }

    /// An update is applied, by a call or by a read-back that has found the record.
    pub(super) fn account_updated(&mut self, call: &StepCall) {
        if self.checker.job(call.job).effect(&call.label).shown == 0 {
            self.applied(call.job, &call.label, self.now);
        }
    }

    /// A read-back has looked for a record. One that it finds is updated.
    pub(super) fn account_read(&mut self, call: &StepCall, look: Look, fault: Option<Fault>) {
        if fault == Some(Fault::ReadLies) {
            self.accounts.by_identity.entry(identity_of(call)).or_default().is_denied = true;
        }
        if look == Look::Present {
            if self.checker.job(call.job).effect(&call.label).shown > 0 {
                self.coverage.fault(Fault::CreateFoundLater);
            }
            self.account_updated(call);
        }
    }

    /// Whether an operator can tell what became of the upsert of a job: its record is shown, or no create of it can be applied
    /// any more.
    pub(super) fn is_account_decided(&mut self, id: JobId, label: &Arc<str>) -> bool {
        let now = self.now;
        let effect = self.checker.job(id).effect(label);
        match effect.shown > 0 {
            true => effect.visible_at <= now,
            false => {
                let mut open = self.accounts.by_identity.values().filter_map(|account| account.open);
                !open.any(|(job, until)| job == id && until > now)
            }
        }
    }

    /// What the node is told about an upsert. A look and an update may be repeated: only a lost create is unsure.
    pub(super) fn upsert_outcome(&self, call: &StepCall, upsert: Upsert, answer: Answer) -> Outcome {
        match (super::calls::outcome_of(answer, EffectClass::Verifiable), upsert) {
            (Outcome::Done { .. }, Upsert::Update(id)) => Outcome::Done { result: result(call, id) },
            (Outcome::Done { .. }, Upsert::Create) => {
                Outcome::Done { result: result(call, self.accounts.newest_id(call).unwrap_or_default()) }
            }
            (Outcome::Unsure { failure }, Upsert::Update(_)) => Outcome::Retry { failure, after: None },
            (outcome, _) => outcome,
        }
    }
}

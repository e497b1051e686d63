//! Upserts at destinations that make a second record of a second request: look first, create, remember.
//!
//! An effect of such an action has an identity. While its outcome is open no other effect of this identity is begun, so that
//! between the look and the end of the create nothing else creates the record. The id of the record is part of the effect's result and
//! is found again by the identity.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::destination::Destination;
use crate::job::{EffectState, JobId, written_record};
use crate::mutant::Mutant;
use crate::outcome::EffectClass;
use crate::record::EffectRecord;
use crate::worker::Step;

/// How long after its time-out a create may still be applied, at a destination that says nothing else.
pub const LATE_CREATE: Duration = Duration::from_secs(60);

/// How long a job waits before it looks again whether another effect of its identity has ended.
pub const BUSY_DELAY: Duration = Duration::from_secs(1);

/// Code of a job that waits for another effect of its identity.
pub const IDENTITY_BUSY: &str = "identity-busy";

/// Identity of a record at a destination.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RecordIdentity {
    pub destination: Arc<str>,
    /// Personal data.
    pub identity: Arc<str>,
}

impl RecordIdentity {
    /// What its digest is made of.
    pub fn text(&self) -> String {
        format!("{}\0{}", self.destination, self.identity)
    }
}

/// The identity is not shown.
impl fmt::Debug for RecordIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordIdentity").field("destination", &self.destination).finish_non_exhaustive()
    }
}

/// Whether an effect in this state keeps others of its identity waiting, as long as its job is live.
pub fn is_open(state: EffectState) -> bool {
    state.is_open() && !Mutant::IdentityClaimNotHeld.is_on()
}

/// Id of the record of this identity, for an effect of this job: that of the newest applied effect. What the job itself applied and is
/// asked to apply again does not count.
pub fn remembered(effects: &[EffectRecord], identity: &RecordIdentity, job: JobId) -> Option<Value> {
    if Mutant::RememberedRecordIgnored.is_on() {
        return None;
    }
    let is_of = |effect: &&EffectRecord| {
        let result = effect.result.as_deref();
        let is_applied = match effect.state {
            EffectState::Applied => true,
            EffectState::Superseded => effect.job != job,
            _ => false,
        };
        is_applied
            && *effect.destination == *identity.destination
            && result.and_then(|result| result.get("identity")?.as_str()) == Some(&identity.identity)
            && result.and_then(written_record).is_some()
    };
    let newest = effects.iter().filter(is_of).max_by_key(|effect| effect.last_at)?;
    newest.result.as_deref()?.get("id").cloned()
}

/// How long after an unknown outcome the effect of a step may still be applied: its absence is believed only after that. Zero for
/// an effect that is not read back, and where nothing is said about the destination.
pub fn late_window(step: &Step, destination: Option<&Destination>) -> Duration {
    let Some(destination) = destination.filter(|_| step.class == EffectClass::Verifiable) else {
        return Duration::ZERO;
    };
    if Mutant::UpsertWindowIgnored.is_on() {
        return Duration::ZERO;
    }
    let usual = if step.action.looks_first() { LATE_CREATE } else { Duration::ZERO };
    match destination.straggler_horizon.unwrap_or(usual) {
        Duration::ZERO => Duration::ZERO,
        horizon => destination.timeout + horizon,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::EffectKey;
    use crate::time::Time;
    use serde_json::json;

    fn effect(destination: &str, state: EffectState, result: Value, at: i64) -> EffectRecord {
        EffectRecord {
            job: JobId(1),
            step: 0,
            step_id: "s".into(),
            key: EffectKey([0; 16]),
            action: "http.upsert".into(),
            destination: destination.into(),
            class: EffectClass::Verifiable,
            state,
            attempts: 1,
            absent_reads: 0,
            reads: 0,
            result: Some(Arc::new(result)),
            first_at: Time(at),
            last_at: Time(at),
        }
    }

    #[test]
    fn the_newest_applied_record_of_the_identity_is_remembered() {
        let identity = RecordIdentity { destination: "crm".into(), identity: "a".into() };
        let record = |id: u64| json!({"id": id, "identity": "a"});
        let applied = EffectState::Applied;
        let effects = [
            effect("crm", applied, record(1), 10),
            effect("crm", applied, record(2), 30),
            effect("crm", EffectState::Superseded, record(3), 20),
            effect("erp", applied, record(4), 40),
            effect("crm", EffectState::NotApplied, record(5), 50),
            effect("crm", applied, json!({"id": 6, "identity": "b"}), 60),
            effect("crm", applied, json!({"identity": "a"}), 70),
        ];
        let (own, other) = (JobId(1), JobId(2));
        assert_eq!(remembered(&effects, &identity, other), Some(json!(2)));
        assert_eq!(remembered(&effects, &identity, own), Some(json!(2)), "by an earlier step of the same job");
        assert_eq!(remembered(&effects[2..], &identity, other), Some(json!(3)));
        assert_eq!(remembered(&effects[2..], &identity, own), None, "it is to be applied again");
        assert_eq!(remembered(&effects[3..], &identity, other), None);
        assert!(!format!("{identity:?}").contains("\"a\""));
    }
}

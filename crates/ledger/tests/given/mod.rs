//! What the tests of the ledger hand in.

use std::sync::Arc;

use sluice_domain::job::{EffectKey, EffectState, JobId, JobState};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;
use sluice_ledger::{
    AttemptKind, AttemptSettlement, ClashPolicy, EffectSettlement, EventBody, JobUpdate, NewEvent, NewJob, RootKey,
    Settlement,
};

/// 2026-03-01T00:00:00Z: when every test begins.
pub const START: Time = Time(1_772_323_200_000);
pub const DAY: i64 = 24 * 60 * 60 * 1000;

/// The same root key wherever a ledger is opened again.
pub fn root_key() -> RootKey {
    RootKey::parse(&"3c".repeat(32)).unwrap()
}

/// An event with one job for the worker `crm`. Its key is remembered for thirty days.
pub fn event(key: &str) -> NewEvent {
    NewEvent {
        key: KeyDigest::new("tenant", "leads", key),
        key_text: key.to_owned(),
        expires_at: Time(START.0 + 30 * DAY),
        flow: "leads".into(),
        source: "website".into(),
        event_type: "lead.created".into(),
        entity: 7,
        received_at: START,
        occurred_at: None,
        verified_by: Some("primary".into()),
        revision: "r1".into(),
        trace: format!("trace of {key}"),
        fingerprint: [1; 16],
        body: Arc::new(EventBody {
            headers: "{}".into(),
            raw: format!("raw {key}").into_bytes(),
            normalized: format!("{{\"key\":\"{key}\"}}"),
            ..EventBody::default()
        }),
        jobs: vec![NewJob::new("crm", "default")],
        adjacent_keys: vec![],
        clash: ClashPolicy::Drop,
        content_window: None,
        quarantine: None,
        contact: None,
    }
}

/// The first attempt at the only step of a job ended with this: done, or refused.
#[allow(dead_code)]
pub fn settled(job: JobId, effect: EffectKey, state: JobState) -> Settlement {
    let done = state == JobState::Succeeded;
    let failure = (!done).then(|| Failure::new(FailureClass::Permanent, "no-such-field", "the field is unknown"));
    Settlement {
        job,
        n: 1,
        effect: Some(EffectSettlement {
            key: effect,
            step: 0,
            state: if done { EffectState::Applied } else { EffectState::NotApplied },
            result: None,
            absent_reads: 0,
            reads: 0,
        }),
        attempt: Some(AttemptSettlement {
            step_id: "create".into(),
            kind: AttemptKind::Call,
            started_at: START,
            outcome: if done { "done" } else { "reject" },
            failure: failure.clone(),
        }),
        next: JobUpdate {
            state,
            step: u32::from(done),
            attempts: 1,
            due_at: START,
            verifying: false,
            failure,
            dead_letter_queue: None,
            result: None,
        },
        at: START,
    }
}

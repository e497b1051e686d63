//! Identities of records: one effect at a time, and the record that it wrote.

use serde_json::{Value, json};
use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::upsert::RecordIdentity;
use sluice_ledger::{Begin, BeginResult};

use crate::driver::{Driver, Fixture, begin, open, settlement};

fn identity(destination: &str, of: &str) -> RecordIdentity {
    RecordIdentity { destination: destination.into(), identity: of.into() }
}

async fn begins<D: Driver>(fixture: &Fixture<D>, job: JobId, n: u32, of: &str) -> BeginResult {
    fixture.begin_with(Begin { identity: Some(identity("crm", of)), ..begin(job, n) }).await
}

async fn settles<D: Driver>(fixture: &Fixture<D>, job: JobId, end: (JobState, EffectState), result: Option<Value>) {
    let mut settlement = settlement(job, 1, end.0);
    let effect = settlement.effect.as_mut().unwrap();
    (effect.state, effect.result) = (end.1, result.map(Into::into));
    assert!(fixture.settle_with(settlement).await);
}

pub(crate) async fn effects_of_one_identity_run_one_after_the_other<D: Driver>() {
    let fixture = open::<D>();
    let (first, second) = (fixture.job("first").await.id, fixture.job("second").await.id);
    let other = fixture.job("other").await.id;
    assert_eq!(begins(&fixture, first, 1, "ada").await, BeginResult::Go);
    assert_eq!(begins(&fixture, second, 1, "ada").await, BeginResult::IdentityBusy);
    let waiting = fixture.read(second).await;
    assert_eq!((waiting.state, waiting.attempts_total), (JobState::Queued, 0), "nothing is written");
    assert!(fixture.ledger.effects(second).await.unwrap().is_empty());
    assert_eq!(begins(&fixture, other, 1, "bob").await, BeginResult::Go);
    let elsewhere = Begin { identity: Some(identity("erp", "ada")), ..begin(fixture.job("erp").await.id, 1) };
    assert_eq!(fixture.begin_with(elsewhere).await, BeginResult::Go, "another destination");
    settles(&fixture, first, (JobState::Succeeded, EffectState::Applied), Some(json!({"id": 7, "identity": "ada"})))
        .await;
    assert_eq!(begins(&fixture, second, 1, "ada").await, BeginResult::Go);
}

pub(crate) async fn an_identity_stays_taken_while_an_outcome_is_open_and_its_job_lives<D: Driver>() {
    let fixture = open::<D>();
    let (first, second) = (fixture.job("first").await.id, fixture.job("second").await.id);
    assert_eq!(begins(&fixture, first, 1, "ada").await, BeginResult::Go);
    settles(&fixture, first, (JobState::Waiting, EffectState::Unknown), None).await;
    let fixture = fixture.reopen().await;
    assert_eq!(begins(&fixture, second, 1, "ada").await, BeginResult::IdentityBusy, "over a restart too");
    assert_eq!(begins(&fixture, first, 2, "ada").await, BeginResult::Go, "its own effect");
    let mut settlement = settlement(first, 2, JobState::Retrying);
    settlement.effect.as_mut().unwrap().state = EffectState::NotApplied;
    assert!(fixture.settle_with(settlement).await);
    assert_eq!(begins(&fixture, second, 1, "ada").await, BeginResult::Go, "it was not applied");
    settles(&fixture, second, (JobState::Unknown, EffectState::Unknown), None).await;
    let third = fixture.job("third").await.id;
    assert_eq!(begins(&fixture, third, 1, "ada").await, BeginResult::Go, "an operator decides about the second");
}

pub(crate) async fn the_record_of_an_identity_is_remembered<D: Driver>() {
    let fixture = open::<D>();
    let first = fixture.job("first").await.id;
    let record = |fixture: &Fixture<D>, job: JobId, of: RecordIdentity| {
        let ledger = fixture.ledger.clone();
        async move { ledger.remembered_record(job, of).await.unwrap() }
    };
    assert_eq!(begins(&fixture, first, 1, "ada").await, BeginResult::Go);
    settles(&fixture, first, (JobState::Succeeded, EffectState::Applied), Some(json!({"id": 7, "identity": "ada"})))
        .await;
    let second = fixture.job("second").await.id;
    assert_eq!(record(&fixture, second, identity("crm", "ada")).await, Some(json!(7)));
    assert_eq!(record(&fixture, second, identity("crm", "Ada")).await, None);
    assert_eq!(record(&fixture, second, identity("erp", "ada")).await, None);
    let own = record(&fixture, first, identity("crm", "ada")).await;
    assert_eq!(own, Some(json!(7)), "a later step of the same job would not find it in a search that lags");
    let fixture = fixture.reopen().await;
    assert_eq!(record(&fixture, second, identity("crm", "ada")).await, Some(json!(7)));
}

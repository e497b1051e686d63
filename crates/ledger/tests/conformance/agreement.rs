//! What several processes must agree on: the change sequence, and proofs that count once.

use std::time::Duration;

use sluice_domain::key::KeyDigest;
use sluice_domain::time::Time;
use sluice_ledger::{
    Acceptance, NewEvent, NewRevision, Pause, Proof, Prune, Pruned, Resume, SetSafeMode, Suppress, Unsuppress,
};

use crate::driver::{Driver, Fixture, at, open};
use crate::fixtures::{START, event};

pub(crate) async fn the_change_sequence_grows_with_every_change_and_with_nothing_else<D: Driver>() {
    let fixture = open::<D>();
    let mut changes = fixture.ledger.changes();
    let (actor, reason) = (|| "ann".to_owned(), || "why not".to_owned());
    let mut last = fixture.ledger.change_seq().await.unwrap();
    let target = || "destination:crm".to_owned();
    let contact = KeyDigest([1; 16]);
    for step in 0..8 {
        let ledger = &fixture.ledger;
        match step {
            0 => ledger.pause(Pause { target: target(), actor: actor(), reason: reason(), at: at(1) }).await.unwrap(),
            1 => ledger
                .resume(Resume { target: target(), actor: actor(), reason: String::new(), at: at(2) })
                .await
                .unwrap(),
            2 | 3 => {
                let until = (step == 2).then(|| at(9));
                let set = SetSafeMode { worker: None, until, actor: actor(), reason: reason(), at: at(3) };
                ledger.set_safe_mode(set).await.unwrap();
            }
            4 => {
                let (contacts, channel) = (vec![(contact, "a***".to_owned())], String::new());
                let suppress = Suppress { contacts, channel, actor: actor(), reason: reason(), at: at(4) };
                ledger.suppress(suppress).await.unwrap();
            }
            5 => {
                let (contacts, channel) = (vec![contact], String::new());
                let unsuppress = Unsuppress { contacts, channel, actor: actor(), reason: reason(), at: at(4) };
                ledger.unsuppress(unsuppress).await.unwrap();
            }
            _ => {
                let (hash, files) = (format!("r{step}").into(), "[]".to_owned());
                let revision = NewRevision { hash, files, actor: actor(), reason: reason(), at: at(5) };
                ledger.activate_revision(revision).await.unwrap();
            }
        }
        let now = fixture.ledger.change_seq().await.unwrap();
        assert!(now > last, "step {step}");
        assert!(changes.has_changed().unwrap(), "step {step}");
        assert_eq!(*changes.borrow_and_update(), now);
        last = now;
    }
    let job = fixture.job("a").await.id;
    fixture.attempt(job, 1, sluice_domain::job::JobState::Succeeded).await;
    assert_eq!(fixture.ledger.change_seq().await.unwrap(), last);
    assert!(!changes.has_changed().unwrap());
    let fixture = fixture.reopen().await;
    assert_eq!((fixture.ledger.change_seq().await.unwrap(), *fixture.ledger.changes().borrow()), (last, last));
}

/// An event with a proof that is accepted for ten minutes.
fn proven(key: &str, proof: u8, after: Duration) -> NewEvent {
    let proof = Proof { digest: KeyDigest([proof; 16]), expires_at: START + Duration::from_secs(600) };
    NewEvent { proof: Some(proof), received_at: START + after, ..event(key) }
}

async fn is_used<D: Driver>(fixture: &Fixture<D>, event: NewEvent) -> bool {
    matches!(fixture.ledger.accept(event).await.unwrap(), Acceptance::ProofUsed)
}

pub(crate) async fn a_proof_counts_for_one_request<D: Driver>() {
    let fixture = open::<D>();
    let now = Duration::ZERO;
    assert!(!is_used(&fixture, proven("a", 1, now)).await);
    assert!(is_used(&fixture, proven("b", 1, now)).await, "another event");
    let forged = NewEvent { fingerprint: [9; 16], ..proven("a", 1, now) };
    assert!(is_used(&fixture, forged).await, "another body under the key of the first");
    assert_eq!(fixture.ledger.event_count().await.unwrap(), 1, "nothing was written");
    fixture.repeat(proven("a", 1, now)).await;
    assert!(!is_used(&fixture, proven("b", 2, now)).await, "another proof");
    let fixture = fixture.reopen().await;
    assert!(is_used(&fixture, proven("c", 1, now)).await, "over a restart");
    let late = Duration::from_secs(600);
    let prune = Prune { bodies_before: Time(0), events_before: Time(0), rows_max: 10, at: START + late };
    assert!(!is_used(&fixture, proven("d", 3, now)).await);
    assert_eq!(fixture.ledger.prune(prune).await.unwrap(), Pruned { rows: 3, more: false });
    assert!(
        !is_used(&fixture, proven("e", 1, late)).await,
        "an expired proof is rejected by its time, not by the ledger"
    );
}

pub(crate) async fn the_events_of_one_request_share_a_proof<D: Driver>() {
    let fixture = open::<D>();
    let both = || vec![proven("a", 1, Duration::ZERO), proven("b", 1, Duration::ZERO)];
    let first = fixture.ledger.accept_all(both()).await.unwrap();
    assert!(first.iter().all(|one| matches!(one, Acceptance::Accepted(_))), "{first:?}");
    let again = fixture.ledger.accept_all(both()).await.unwrap();
    assert!(again.iter().all(|one| matches!(one, Acceptance::Duplicate(_))), "{again:?}");
    let forged = NewEvent { fingerprint: [9; 16], ..proven("b", 1, Duration::ZERO) };
    let forged = fixture.ledger.accept_all(vec![proven("a", 1, Duration::ZERO), forged]).await.unwrap();
    assert!(forged.iter().all(|one| matches!(one, Acceptance::ProofUsed)), "{forged:?}");
    let other = vec![proven("c", 1, Duration::ZERO), proven("a", 1, Duration::ZERO)];
    let other = fixture.ledger.accept_all(other).await.unwrap();
    assert!(other.iter().all(|one| matches!(one, Acceptance::ProofUsed)), "{other:?}");
}

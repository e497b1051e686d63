//! A command with an idempotency key is done once, over restarts too.

use sluice_domain::idempotent_command::{Claim, CommandResponse, KEPT};
use sluice_ledger::{ClaimCommand, FinishCommand, Prune};

use crate::driver::{Driver, Fixture, open};
use crate::fixtures::START;

fn claim<D: Driver>(fixture: &Fixture<D>, key: u8, request: u8) -> ClaimCommand {
    let (term, at) = (fixture.ledger.term(), fixture.clock.now());
    ClaimCommand { key: [key; 32], request: [request; 32], term, at }
}

async fn claimed<D: Driver>(fixture: &Fixture<D>, key: u8, request: u8) -> Claim {
    fixture.ledger.claim_command(claim(fixture, key, request)).await.unwrap()
}

fn response() -> CommandResponse {
    CommandResponse { status: 200, content_type: "application/json".into(), body: Some(b"{\"id\":7}".to_vec()) }
}

async fn finish<D: Driver>(fixture: &Fixture<D>, key: u8, response: Option<CommandResponse>) {
    fixture.ledger.finish_command(FinishCommand { key: [key; 32], response }).await.unwrap();
}

pub(crate) async fn a_response_is_kept_over_a_restart_and_belongs_to_one_request<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(claimed(&fixture, 1, 7).await, Claim::First);
    assert_eq!(claimed(&fixture, 1, 7).await, Claim::InProgress);
    assert_eq!(claimed(&fixture, 1, 8).await, Claim::OtherRequest);
    assert_eq!(claimed(&fixture, 2, 8).await, Claim::First);
    finish(&fixture, 1, Some(response())).await;
    finish(&fixture, 2, Some(CommandResponse { body: None, ..response() })).await;
    let fixture = fixture.reopen().await;
    assert_eq!(claimed(&fixture, 1, 7).await, Claim::Done(response()));
    assert_eq!(claimed(&fixture, 1, 8).await, Claim::OtherRequest);
    assert_eq!(claimed(&fixture, 2, 8).await, Claim::Done(CommandResponse { body: None, ..response() }));
}

pub(crate) async fn a_command_that_a_dead_process_served_is_in_doubt<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(claimed(&fixture, 1, 7).await, Claim::First);
    let fixture = fixture.reopen().await;
    assert_eq!(claimed(&fixture, 1, 7).await, Claim::InDoubt);
    assert_eq!(claimed(&fixture, 1, 7).await, Claim::InDoubt, "it stays so");
}

pub(crate) async fn a_key_is_free_after_a_failure_and_after_its_time<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(claimed(&fixture, 1, 7).await, Claim::First);
    finish(&fixture, 1, None).await;
    finish(&fixture, 9, Some(response())).await;
    assert_eq!(claimed(&fixture, 1, 8).await, Claim::First);
    finish(&fixture, 1, Some(response())).await;
    let now = fixture.clock.advance(i64::try_from(KEPT.as_millis()).unwrap());
    let prune = |rows_max| Prune { bodies_before: START, events_before: START, rows_max, at: now };
    assert_eq!(claimed(&fixture, 1, 7).await, Claim::First, "expired, although it is there");
    assert_eq!(fixture.ledger.prune(prune(100)).await.unwrap().rows, 0, "it was claimed again");
    fixture.clock.advance(i64::try_from(KEPT.as_millis()).unwrap());
    let later = Prune { at: fixture.clock.now(), ..prune(100) };
    fixture.ledger.prune(later).await.unwrap();
    assert_eq!(fixture.ledger.pruned_totals().await.unwrap().get("command"), Some(&1));
}

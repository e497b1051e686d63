//! Identify: makes the lookups of quarantined events, and releases those whose identity is found.
//!
//! In: a timer; quarantined events of the ledger whose lookups are due.
//! Out: events released with their identity and the outputs of their lookups; or when the lookups are made again.
//! Touches: lookups, revisions (read); ledger: events, their jobs, identify.
//! Never: a destination other than through a lookup; deciding whether an identity was found (that is `domain::run::IdentitySearch`).
//! If the process dies here: outputs are recorded in the transaction that releases the event. Before it nothing has happened, and the
//! lookups are made again at the next start; after it the released jobs find them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use sluice_domain::contact::{ContactId, SuppliedIdentity};
use sluice_domain::run::{FoundIdentity, IdentitySearch, QuarantinedEvent, SearchCommand, search_again_at};
use sluice_ledger::{Error, EventSeq, Identified, IdentifyEvent, IdentityLookupEnded};
use tokio::sync::watch;

use crate::work::WorkContext;

const INTERVAL: Duration = Duration::from_secs(1);
/// Events that are looked up at once; further ones wait in the ledger.
const EVENTS_MAX: usize = 16;
/// Events that are read at once.
const PAGE: u32 = 64;

/// Makes what is due until `stop`.
pub(crate) async fn run(context: WorkContext, mut stop: watch::Receiver<bool>) {
    loop {
        let looked = tokio::select! {
            looked = look(&context) => looked,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let has_more = match looked {
            Ok(has_more) => has_more,
            Err(Error::Failed) => return,
            Err(error) => {
                tracing::warn!(%error, "identities of quarantined events are not looked up; retrying at the next interval");
                false
            }
        };
        if has_more {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Makes the lookups of the events that are due. Returns whether more are due, and can be made at once.
async fn look(context: &WorkContext) -> Result<bool, Error> {
    let due = context.ledger.due_identity_lookups(context.clock.ledger_time(), PAGE).await?;
    let mut has_more = due.len() == PAGE as usize;
    let mut searches = stream::iter(due).map(|(seq, tries)| search(context, seq, tries)).buffer_unordered(EVENTS_MAX);
    while let Some(searched) = searches.next().await {
        match searched {
            Err(Error::Failed) => return Err(Error::Failed),
            // One event that cannot be read does not hold up the others.
            Err(error) => {
                has_more = false;
                tracing::warn!(%error, "the identity of a quarantined event is not looked up; retrying at the next interval")
            }
            Ok(()) => {}
        }
    }
    Ok(has_more)
}

async fn search(context: &WorkContext, seq: EventSeq, tries: u32) -> Result<(), Error> {
    let tries = tries + 1;
    let quarantined = match quarantined(context, seq).await? {
        Ok(quarantined) => quarantined,
        Err(because) => return end(context, seq, tries, (because, false)).await,
    };
    let (id, revision) = (quarantined.event.id, quarantined.event.revision.clone());
    let Some(live) = context.revisions.get(&revision, &context.ledger).await else {
        return end(context, seq, tries, ("revision-lost", false)).await;
    };
    let live = live.for_run(context.revisions.pseudonyms());
    let started = IdentitySearch::start(quarantined, live, context.ledger.term(), context.clock.ledger_time());
    let (mut search, mut command) = match started {
        Ok(started) => started,
        Err(because) => return end(context, seq, tries, (because, false)).await,
    };
    let ended = loop {
        for made in search.take_made() {
            context.metrics.lookup(made.action, made.result);
        }
        command = match command {
            SearchCommand::LookUp(lookup) => search.looked_up(&context.lookups.look_up(*lookup, &revision).await),
            SearchCommand::Release(found) => match release(context, seq, *found).await? {
                Ok(contact) => {
                    tracing::info!(event = %id, %contact, tries, "a lookup identified a quarantined event");
                    return Ok(());
                }
                Err(because) => break (because, false),
            },
            SearchCommand::End { because, may_pass } => break (because, may_pass),
        };
    };
    tracing::info!(event = %id, tries, result = ended.0, "lookups found no identity for a quarantined event");
    end(context, seq, tries, ended).await
}

/// The event with its jobs, or why it cannot be looked up.
async fn quarantined(context: &WorkContext, seq: EventSeq) -> Result<Result<QuarantinedEvent, &'static str>, Error> {
    let Some((event, body)) = context.ledger.events(vec![seq]).await?.pop() else { return Ok(Err("event-removed")) };
    let Some(body) = body else { return Ok(Err("body-removed")) };
    let jobs = context.ledger.jobs_of_event(event.clone()).await?;
    Ok(Ok(QuarantinedEvent { event: Arc::new(event), body: Arc::new(body), jobs }))
}

/// Releases the event and returns its contact; or says why it stays quarantined.
async fn release(
    context: &WorkContext,
    seq: EventSeq,
    found: FoundIdentity,
) -> Result<Result<ContactId, &'static str>, Error> {
    let FoundIdentity { observation, identity, by, mapping_version, contact, outputs } = found;
    let kind = by.kind();
    let supplied = SuppliedIdentity { identity, by, mapping_version, at: context.clock.ledger_time() };
    let identify = IdentifyEvent { seq, observation, supplied, contact, outputs };
    Ok(match context.ledger.identify(identify).await? {
        Identified::Done(contact) => {
            context.metrics.released(kind, 1);
            Ok(contact)
        }
        Identified::NotFound => Err("event-removed"),
        Identified::NotWaiting => Err("not-waiting"),
        Identified::Conflict(_) => Err("identity-conflict"),
    })
}

/// Records that no identity was found, and when the lookups are made again.
async fn end(
    context: &WorkContext,
    seq: EventSeq,
    tries: u32,
    (because, may_pass): (&'static str, bool),
) -> Result<(), Error> {
    let due_at = search_again_at(may_pass, tries, context.clock.ledger_time());
    let ended = IdentityLookupEnded { seq, tries, due_at, last: because.to_owned() };
    context.ledger.identity_lookup_ended(ended).await.map(drop)
}

//! How many events a second the ledger accepts, with bodies of 1 KB, from this many senders at once.
//!
//! `cargo run --release -p sluice-ledger --example accept -- [SECONDS] [SENDERS] [PERSONS] [KEPT]`; the data of
//! no person when 0; with KEPT, contacts are kept as well: three identifiers and six fields of each person.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_domain::contact::identity::Identifier;
use sluice_domain::contact::{Observation, ObservedValue};
use sluice_domain::key::KeyDigest;
use sluice_domain::time::Time;
use sluice_ledger::{ClashPolicy, EventBody, Ledger, LedgerOptions, NewEvent, NewJob, RootKey};

const START: Time = Time(1_772_323_200_000);

/// What an event says about the contact with this number.
fn observation(person: u64) -> Observation {
    let identifier = |kind: &str| Identifier {
        kind: kind.to_owned(),
        digest: KeyDigest::new("default", kind, &person.to_string()),
        single: false,
    };
    let value = |name: &str| ObservedValue {
        field: format!("attributes.{name}"),
        value: format!("{name} of {person}").into(),
        trust: 50,
        guarded: false,
    };
    Observation {
        identifiers: ["external_id", "email", "phone"].map(identifier).to_vec(),
        values: ["first_name", "last_name", "company", "title", "city", "campaign"].map(value).to_vec(),
        source: "website".into(),
        occurred_at: None,
        received_at: START,
        ..Observation::default()
    }
}

fn event(n: u64, contacts: u64, kept: bool) -> NewEvent {
    let key_text = format!("lead-{n:012}");
    let raw = format!("{{\"id\":\"{key_text}\",\"text\":\"{}\"}}", "x".repeat(980));
    NewEvent {
        key: KeyDigest::new("default", "leads", &key_text),
        key_text,
        expires_at: START + Duration::from_secs(30 * 86_400),
        flow: "leads".into(),
        source: "website".into(),
        event_type: "lead.created".into(),
        entity: n,
        received_at: START,
        occurred_at: None,
        verified_by: Some("primary".into()),
        revision: "r1".into(),
        trace: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
        fingerprint: KeyDigest::new("content", "leads", &n.to_string()).0,
        body: Arc::new(EventBody {
            headers: "{\"content-type\":\"application/json\",\"user-agent\":\"bench\"}".into(),
            normalized: raw.clone(),
            raw: raw.into_bytes(),
            ..EventBody::default()
        }),
        jobs: vec![NewJob::new("crm", "default")],
        adjacent_keys: vec![],
        clash: ClashPolicy::Drop,
        signed_content: None,
        content_window: None,
        quarantine: None,
        proof: None,
        warnings: vec![],
        observation: n.checked_rem(contacts).filter(|_| kept).map(|person| Box::new(observation(person))),
        contact: n.checked_rem(contacts).map(|contact| KeyDigest::new("default", "contact", &contact.to_string())),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let mut next = |otherwise| arguments.next().unwrap_or(Ok(otherwise));
    let (seconds, senders, contacts, kept) = (next(10)?, next(256)?, next(0)?, next(0)? > 0);
    let directory = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    runtime.block_on(async {
        let ledger = Ledger::open(
            directory.path(),
            LedgerOptions::quiet(Arc::new(|| START)).with_root_key(RootKey::generate()),
        )?;
        let (sent, started) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..senders {
            let (ledger, sent) = (ledger.clone(), sent.clone());
            tasks.spawn(async move {
                while started.elapsed() < Duration::from_secs(seconds) {
                    ledger.accept(event(sent.fetch_add(1, Ordering::Relaxed), contacts, kept)).await?;
                }
                Ok::<(), sluice_ledger::Error>(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        let elapsed = started.elapsed();
        let events = ledger.event_count().await?;
        let (busy, batches) =
            (ledger.stats().commit_micros.load(Ordering::Relaxed), ledger.stats().batches.load(Ordering::Relaxed));
        println!(
            "{events} events in {elapsed:.1?}: {:.0}/s, {:.1} µs of the writer each, {:.0} in a batch",
            events as f64 / elapsed.as_secs_f64(),
            busy as f64 / events as f64,
            events as f64 / batches as f64
        );
        ledger.close().await;
        Ok(())
    })
}

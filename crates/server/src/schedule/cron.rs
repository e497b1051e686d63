//! Workers that run by the clock: each moment of a schedule is an event of its own, accepted once.
//!
//! The key of a firing is the worker and the moment, so the ledger decides whether it is the first: a restart, a clock that
//! jumps or a second look cannot fire twice. What was missed while nothing ran is made up for by the newest moment alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};
use sluice_domain::cron::Schedule;
use sluice_domain::event::{Audit, Event};
use sluice_domain::key::{self, KeyDigest, TENANT};
use sluice_domain::time::Time;
use sluice_domain::worker::Worker;
use sluice_ledger::{Acceptance, EventDraft, Ledger, NewEvent};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::pauses;
use crate::revisions::{LoadedRevision, Revisions};

/// The source of events that the clock brings.
pub(crate) const SOURCE: &str = "schedule";
pub(crate) const EVENT_TYPE: &str = "schedule.fired";
/// However far the next moment is: the wall clock may jump, and the configuration may change.
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(15);
/// A key must outlive every look at its moment.
const KEY_LIFE_MIN: Duration = Duration::from_secs(7 * 86_400);

/// Fires what is due until it is told to stop.
pub(crate) async fn run(ledger: Ledger, revisions: Revisions, clock: Clock, mut stop: watch::Receiver<bool>) {
    let mut firing = CronRunner { ledger, clock: clock.clone(), known: BTreeMap::new() };
    loop {
        let live = revisions.current();
        let next = match firing.fire_due(&live).await {
            Ok(next) => next,
            Err(sluice_ledger::Error::Failed) => return,
            Err(error) => {
                tracing::warn!(%error, "a scheduled worker could not be started; trying again");
                None
            }
        };
        let wait = next.map_or(LOOK_AGAIN_MAX, |next| next.since(clock.wall())).min(LOOK_AGAIN_MAX);
        tokio::select! {
            () = tokio::time::sleep(wait.max(Duration::from_millis(10))) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

struct CronRunner {
    ledger: Ledger,
    clock: Clock,
    /// Of each worker: its schedule, since when it has had it, and the moment that was fired last.
    known: BTreeMap<String, (Schedule, Time, Option<Time>)>,
}

impl CronRunner {
    /// Fires what is due. Answers the next moment of any worker.
    async fn fire_due(&mut self, live: &LoadedRevision) -> Result<Option<Time>, sluice_ledger::Error> {
        let scheduled: Vec<(&Arc<Worker>, &Schedule)> =
            live.config.workers.values().filter_map(|worker| Some((worker, worker.schedule.as_ref()?))).collect();
        if scheduled.is_empty() {
            return Ok(None);
        }
        let paused = pauses::workers(&live.config, &self.ledger.pauses().await?);
        let mut nearest: Option<Time> = None;
        for (worker, schedule) in scheduled {
            let now = self.clock.wall();
            if let Some(next) = schedule.next(now) {
                nearest = Some(nearest.map_or(next, |nearest| nearest.min(next)));
            }
            let (since, fired) = self.since(worker, schedule, now).await?;
            let due = schedule.last(now).filter(|slot| *slot > since && Some(*slot) != fired);
            if let Some(slot) = due.filter(|_| !paused.contains(&worker.name)) {
                let event = event(live, worker, schedule, slot, self.clock.ledger_time());
                if let Acceptance::Accepted(accepted) = self.ledger.accept(event).await? {
                    tracing::info!(worker = %worker.name, event = %accepted.id, %slot, "a scheduled worker is due");
                }
                if let Some(known) = self.known.get_mut(&worker.name) {
                    known.2 = Some(slot);
                }
            }
        }
        Ok(nearest)
    }

    async fn since(
        &mut self,
        worker: &Worker,
        schedule: &Schedule,
        now: Time,
    ) -> Result<(Time, Option<Time>), sluice_ledger::Error> {
        if let Some((known, since, fired)) = self.known.get(&worker.name)
            && known == schedule
        {
            return Ok((*since, *fired));
        }
        let since = self
            .ledger
            .schedule(sluice_ledger::Schedule {
                worker: worker.name.clone(),
                rule: schedule.text().to_owned(),
                at: now,
            })
            .await?;
        self.known.insert(worker.name.clone(), (schedule.clone(), since, None));
        Ok((since, None))
    }
}

/// The event that a moment is, accepted at a time of the ledger's clock.
fn event(live: &LoadedRevision, worker: &Worker, schedule: &Schedule, slot: Time, now: Time) -> NewEvent {
    let key_text = format!("schedule:{}:{slot}", worker.name);
    let flow = format!("schedule:{}", worker.name);
    let digest = KeyDigest::new(TENANT, &flow, &key_text);
    let body = json!({ "worker": worker.name, "slot": slot });
    let mut audit = Audit { received_at: now, mapping_version: "1".into(), ..Audit::default() };
    audit.locate(EventDraft::event_id(&flow, &key_text));
    let normalized = Event {
        schema_version: "1.0".into(),
        event_id: key_text.clone(),
        event_type: EVENT_TYPE.into(),
        source: SOURCE.into(),
        occurred_at: Some(slot),
        idempotency_key: key_text.clone(),
        identity: Map::new(),
        attributes: body.as_object().cloned().unwrap_or_default(),
        routing: Map::new(),
        audit,
    };
    let gap = schedule.next(slot).map_or(Duration::ZERO, |next| next.since(slot));
    let event = NewEvent::new(EventDraft {
        flow: &flow,
        source: &Arc::from(SOURCE),
        expires_at: now.max(slot) + (gap * 3).max(KEY_LIFE_MIN),
        revision: &live.revision,
        trace: &data_encoding::HEXLOWER.encode(&digest.0),
        fingerprint: key::fingerprint_digest(&body, &[]),
        headers: "{}".to_owned(),
        raw: body.to_string().into_bytes(),
        event: &normalized,
        jobs: vec![worker.new_job()],
    });
    // Firings of one worker run one after the other, never two at once.
    NewEvent { entity: KeyDigest::new(TENANT, SOURCE, &worker.name).prefix(), ..event }
}

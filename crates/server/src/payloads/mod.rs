//! Payloads: looks at accepted requests after their commit, and learns what senders send.
//!
//! In: a timer; events after the last one that was looked at.
//! Out: learned shapes, notices of drift, a log line for each member that a flow does not use.
//! Touches: ledger: stored requests (read), shapes; flows (read); metrics.
//! Never: the path of a request: under load requests are left out. Decides what drift is (that is `domain::drift`).
//! If the process dies here: shapes are written with the last event that they contain, so the next start continues from there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_domain::drift::{MappedPersonalPaths, PayloadSample, Shapes};
use sluice_domain::flow::Flow;
use sluice_domain::mask;
use sluice_domain::time::Time;
use sluice_ledger::{EventSeq, KeepShapes, Ledger, ShapeRecord, StoredEvent, StoredQuery};
use tokio::sync::watch;

use crate::observe::Metrics;
use crate::observe::metrics::SourceLabels;
use crate::revisions::{LoadedRevision, Revisions};

const INTERVAL: Duration = Duration::from_secs(1);
/// Requests of one look: at most so many per second are learned.
const LOOK_EVENTS: u32 = 200;
const LOOK_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Events behind the newest one from which the oldest are left out.
const BEHIND_MAX: EventSeq = 2_000;
/// What is learned is written this often, and at once when a notice is raised or closed.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// Learns from accepted requests.
#[derive(Debug)]
pub(crate) struct Payloads {
    ledger: Ledger,
    revisions: Revisions,
    metrics: Metrics,
}

/// What is learned and not written yet.
#[derive(Debug)]
struct Learning {
    /// As the ledger has it.
    stored: Option<EventSeq>,
    seen: EventSeq,
    shapes: Shapes,
    versions: BTreeMap<(String, String), u64>,
    changed: BTreeSet<(String, String)>,
    is_urgent: bool,
    written: Instant,
}

impl Payloads {
    pub(crate) fn new(ledger: Ledger, revisions: Revisions, metrics: Metrics) -> Payloads {
        Payloads { ledger, revisions, metrics }
    }

    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut learning = None;
        loop {
            let stopped = tokio::select! {
                () = tokio::time::sleep(INTERVAL) => false,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            learning = match self.look(learning.take(), stopped).await {
                Ok(learning) => learning,
                Err(sluice_ledger::Error::Failed) => return,
                Err(error) => {
                    tracing::warn!(%error, "payloads could not be looked at; looking again");
                    None
                }
            };
            if stopped {
                return;
            }
        }
    }

    /// Learns from the next requests. Returns `None` if the ledger has changed meanwhile, so that it is read again.
    async fn look(&self, learning: Option<Learning>, is_last: bool) -> Result<Option<Learning>, sluice_ledger::Error> {
        let mut learning = match learning {
            Some(learning) => learning,
            None => self.load().await?,
        };
        let query = StoredQuery { after: learning.seen, limit: LOOK_EVENTS, body_bytes_max: LOOK_BYTES_MAX };
        let page = self.ledger.events_after(query).await?;
        if let Some(newest) = page.last().map(|stored| stored.event.seq) {
            let (live, metrics) = (self.revisions.current(), self.metrics.clone());
            let learned = tokio::task::spawn_blocking(move || {
                page.iter().for_each(|stored| learning.learn(stored, &live, &metrics));
                learning
            });
            let Ok(learned) = learned.await else {
                // Reading them again would fail again, and no later payload would be learned.
                tracing::warn!(until = newest, "payloads could not be learned and are passed over");
                return Ok(Some(Learning { seen: newest, ..self.load().await? }));
            };
            learning = learned;
            let last = self.ledger.event_span(Time(0)).await?.map_or(newest, |(_, last)| last);
            learning.seen = newest.max(last - BEHIND_MAX);
        }
        let is_due = learning.is_urgent || learning.written.elapsed() >= WRITE_INTERVAL || is_last;
        let is_changed = learning.stored != Some(learning.seen);
        match is_due && is_changed {
            true => self.write(learning).await,
            false => Ok(Some(learning)),
        }
    }

    async fn load(&self) -> Result<Learning, sluice_ledger::Error> {
        let stored = self.ledger.payloads_seen().await?;
        let records = self.ledger.shapes(None).await?;
        let seen = match stored {
            Some(seen) => seen,
            // A ledger from before shapes were learned: the newest requests teach them.
            None => self.ledger.event_span(Time(0)).await?.map_or(0, |(_, last)| (last - BEHIND_MAX).max(0)),
        };
        let key = |record: &ShapeRecord| (record.source.clone(), record.event_type.clone());
        Ok(Learning {
            stored,
            seen,
            versions: records.iter().map(|record| (key(record), record.version)).collect(),
            shapes: Shapes { shapes: records.into_iter().map(|record| (key(&record), record.shape)).collect() },
            changed: BTreeSet::new(),
            is_urgent: false,
            written: Instant::now(),
        })
    }

    async fn write(&self, mut learning: Learning) -> Result<Option<Learning>, sluice_ledger::Error> {
        let version = |key: &(String, String)| learning.versions.get(key).copied().unwrap_or(0);
        let record = |key: &(String, String)| {
            let shape = learning.shapes.shapes.get(key)?.clone();
            Some(ShapeRecord { source: key.0.clone(), event_type: key.1.clone(), version: version(key), shape })
        };
        let shapes: Vec<ShapeRecord> = learning.changed.iter().filter_map(record).collect();
        let keep = KeepShapes { after: learning.stored, seen: learning.seen, shapes };
        if !self.ledger.keep_shapes(keep).await? {
            return Ok(None);
        }
        for key in std::mem::take(&mut learning.changed) {
            *learning.versions.entry(key).or_default() += 1;
        }
        learning.stored = Some(learning.seen);
        (learning.is_urgent, learning.written) = (false, Instant::now());
        Ok(Some(learning))
    }
}

impl Learning {
    fn learn(&mut self, stored: &StoredEvent, live: &LoadedRevision, metrics: &Metrics) {
        let event = &stored.event;
        // Events of other origin have no flow: alerts, schedules, steps that enqueue.
        let Some(flow) = live.config.flows.get(&*event.flow) else { return };
        let Some(body) = stored.body.as_ref().filter(|body| !body.is_removed()) else { return };
        let Ok(payload) = serde_json::from_slice::<Value>(&body.raw) else { return };
        let personal = MappedPersonalPaths::of(&flow.event);
        let sample = PayloadSample { payload: &payload, at: event.received_at, personal: &personal };
        let unknown = flow.admission.unknown_fields(&payload);
        if !unknown.is_empty() {
            let labels = SourceLabels { source: flow.source.clone() };
            metrics.unknown_fields.get_or_create(&labels).inc_by(unknown.len() as u64);
        }
        let Some(learned) = self.shapes.learn(&event.source, &event.event_type, sample) else { return };
        let key = (event.source.to_string(), event.event_type.clone());
        self.is_urgent |= learned.is_urgent || !self.versions.contains_key(&key) && !self.changed.contains(&key);
        self.changed.insert(key);
        for name in learned.new_members.iter().filter(|name| unknown.contains(&name.as_str())) {
            log_unknown(flow, name);
        }
        for notice in &learned.notices {
            tracing::warn!(source = %event.source, event_type = %mask::text(&event.event_type), field = %mask::text(&notice.path), "payload drift: {notice}; see `sluice sources show {} --shape`", event.source);
        }
    }
}

fn log_unknown(flow: &Arc<Flow>, name: &str) {
    tracing::warn!(source = %flow.source, flow = %flow.name, field = %mask::text(name), "unknown field in payload, ignored; add it to the schema or the mapping");
}

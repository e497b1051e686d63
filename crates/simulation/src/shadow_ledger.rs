//! The real ledger beside the simulated one: it is given every operation that became durable, and must answer and hold the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

use sluice_domain::event::EventId;
use sluice_domain::job::JobId;
use sluice_domain::respond::ResponseClock;
use sluice_domain::time::Time;
use sluice_ledger::memory::Store;
use sluice_ledger::{Acceptance, Edited, Error, Inspector, JobFilter, JobRecord, Ledger, NewRevision, Page, RootKey};

use super::invariants::Invariant;
use super::ops::{SimOp, SimReply};

/// Operations that gather before they are written at the latest.
const GATHERED_MAX: usize = 512;
/// So few that keys are moved out of memory and merged all the time.
const RECENT_KEYS_MAX: usize = 64;
/// So few that the log is reset again and again.
const WAL_PAGES_MAX: u64 = 400;
const PAGE: u32 = 5_000;

/// Where the real ledger lies.
pub trait Ground: Send {
    /// The data directory.
    fn directory(&self) -> &Path;
    /// The process dies, while the ledger is open: what was not synced may be gone.
    fn crash(&mut self);
}

/// A directory of its own, where the process is stopped and started, and the system lives on.
pub fn scratch() -> std::io::Result<Box<dyn Ground>> {
    Ok(Box::new(Scratch(tempfile::tempdir()?)))
}

struct Scratch(tempfile::TempDir);

impl Ground for Scratch {
    fn directory(&self) -> &Path {
        self.0.path()
    }

    fn crash(&mut self) {}
}

pub(super) struct ShadowLedger {
    ground: Box<dyn Ground>,
    runtime: tokio::runtime::Runtime,
    ledger: Option<Ledger>,
    clock: Arc<AtomicI64>,
    gathered: Vec<(SimOp, SimReply)>,
    at: Time,
    /// What events are called there: names are made with a key that only the ledger on disk has.
    names: BTreeMap<EventId, EventId>,
    /// Jobs of edited events. An edit moves their marks to keys that are made of these names, and runs of the simulation have others:
    /// who owns such a mark is not compared.
    edited: BTreeSet<JobId>,
}

impl fmt::Debug for ShadowLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Twin").field("gathered", &self.gathered.len()).finish_non_exhaustive()
    }
}

impl ShadowLedger {
    /// A new ledger.
    pub(crate) fn new(ground: std::io::Result<Box<dyn Ground>>) -> Result<ShadowLedger, String> {
        let ground = ground.map_err(|error| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let mut shadow = ShadowLedger {
            ground,
            runtime,
            ledger: None,
            clock: Arc::default(),
            gathered: Vec::new(),
            at: Time(0),
            names: BTreeMap::new(),
            edited: BTreeSet::new(),
        };
        shadow.open()?;
        Ok(shadow)
    }

    fn open(&mut self) -> Result<Ledger, String> {
        if let Some(ledger) = &self.ledger {
            return Ok(ledger.clone());
        }
        let clock = self.clock.clone();
        let options = sluice_ledger::LedgerOptions {
            recent_keys_max: Some(RECENT_KEYS_MAX),
            wal_pages_max: Some(WAL_PAGES_MAX),
            root_key: RootKey::parse(&"5a".repeat(32)).ok(),
            ..sluice_ledger::LedgerOptions::quiet(Arc::new(move || Time(clock.load(Ordering::SeqCst))))
        };
        let ledger = Ledger::open(self.ground.directory(), options).map_err(|error| error.to_string())?;
        Ok(self.ledger.insert(ledger).clone())
    }

    /// An operation became durable at this time, and this was the answer.
    pub(crate) fn wrote(&mut self, at: Time, op: SimOp, reply: &SimReply) -> Result<(), String> {
        if at != self.at || self.gathered.len() >= GATHERED_MAX {
            self.flush()?;
        }
        self.at = at;
        self.gathered.push((op, reply.clone()));
        Ok(())
    }

    /// Writes what has gathered, and compares.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let ledger = self.open()?;
        self.clock.store(self.at.0, Ordering::SeqCst);
        let gathered = std::mem::take(&mut self.gathered);
        let replies = self.runtime.block_on(submit_all(&ledger, gathered.iter().map(|(op, _)| op.clone())));
        for ((op, expected), reply) in gathered.into_iter().zip(replies) {
            let found = reply.map_err(|error| format!("{op:?} failed: {error}"))?;
            if let SimReply::Edited(Edited::Done { jobs, .. }) = &expected {
                self.edited.extend(jobs.iter().map(|(job, _)| *job));
            }
            if matches!(&op, SimOp::SetMark(mark) if self.edited.contains(&mark.result.job)) {
                continue;
            }
            let ((wanted_name, wanted), (name, found)) = (without_id(expected), without_id(found));
            let same_name = match (wanted_name, name) {
                (Some(wanted), Some(name)) => *self.names.entry(wanted).or_insert(name) == name,
                (wanted, name) => wanted == name,
            };
            if !same_name || found != wanted {
                return Err(format!("{op:?} was answered\n{name:?} {found}, and in memory\n{wanted_name:?} {wanted}"));
            }
        }
        Ok(())
    }

    /// The process dies. Everything that was answered is there afterwards.
    pub(crate) fn crash(&mut self) -> Result<(), String> {
        self.flush()?;
        self.ground.crash();
        if let Some(ledger) = self.ledger.take() {
            self.runtime.block_on(ledger.close());
        }
        self.open().map(drop)
    }

    /// Both hold the same, and the file is whole.
    pub(crate) fn compare(&mut self, store: &Store, revisions: Vec<Arc<str>>) -> Result<(), String> {
        self.crash()?;
        let ledger = self.open()?;
        let differs = self.runtime.block_on(async {
            keep(&ledger, revisions).await?;
            difference(&ledger, store).await
        });
        if let Some(differs) = differs.map_err(|error| error.to_string())? {
            return Err(differs);
        }
        let inspector = Inspector::open(self.ground.directory()).map_err(|error| error.to_string())?;
        let found = inspector.verify(|_, _| {}).map_err(|error| error.to_string())?;
        // Keys of effects are made from the names of events, which the simulation has others for.
        match found.broken.iter().find(|broken| broken.number != Invariant::StableKeys.number()) {
            Some(broken) => Err(format!("{}: {}", broken.invariant, broken.row)),
            None => Ok(()),
        }
    }
}

/// A reply as text, and apart from it the id of its event. Entities differ too: on disk they are keyed digests.
fn without_id(mut reply: SimReply) -> (Option<EventId>, String) {
    let id = match &mut reply {
        SimReply::Accepted(Acceptance::Accepted(accepted)) => {
            Some(std::mem::replace(&mut accepted.id, EventId([0; 16])))
        }
        SimReply::Accepted(Acceptance::Duplicate(duplicate)) => {
            duplicate.jobs.iter_mut().for_each(|job| job.entity = 0);
            Some(std::mem::replace(&mut duplicate.id, EventId([0; 16])))
        }
        _ => None,
    };
    (id, format!("{reply:?}"))
}

/// Submits writes in their order, so that they are committed in it, and waits for all replies.
async fn submit_all(ledger: &Ledger, ops: impl Iterator<Item = SimOp>) -> Vec<Result<SimReply, Error>> {
    let mut pending: Vec<_> = ops.map(|op| Box::pin(op.submit(ledger))).map(Some).collect();
    let mut replies: Vec<Option<Result<SimReply, Error>>> = pending.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, reply) in pending.iter_mut().zip(&mut replies) {
            if let Some(waiting) = future
                && let Poll::Ready(ready) = waiting.as_mut().poll(context)
            {
                (*future, *reply) = (None, Some(ready));
            }
        }
        if pending.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    replies.into_iter().flatten().collect()
}

/// The simulation does not write revisions down; a node does.
async fn keep(ledger: &Ledger, revisions: Vec<Arc<str>>) -> Result<(), Error> {
    for hash in revisions {
        let (files, actor, reason) = ("[]".to_owned(), "simulation".to_owned(), String::new());
        ledger.activate_revision(NewRevision { hash, files, actor, reason, at: Time(0) }).await?;
    }
    Ok(())
}

/// What one holds and the other does not.
async fn difference(ledger: &Ledger, store: &Store) -> Result<Option<String>, Error> {
    let (mut after, mut jobs) = (JobId(0), 0);
    let (mut lanes, mut lanes_on_disk) = (BTreeMap::new(), BTreeMap::new());
    loop {
        let ids = ledger.matching_jobs(JobFilter::default(), after, PAGE).await?;
        let Some(last) = ids.last() else { break };
        after = *last;
        jobs += ids.len() as u64;
        for id in ids {
            let (found, wanted) = (ledger.job(id).await?, store.job(id).cloned());
            if let (Some(found), Some(wanted)) = (&found, &wanted)
                && (*lanes.entry(wanted.entity).or_insert(found.entity) != found.entity
                    || *lanes_on_disk.entry(found.entity).or_insert(wanted.entity) != wanted.entity)
            {
                return Ok(Some(format!("{id} shares its lane with other jobs than in memory")));
            }
            let nobody = |job: JobRecord| JobRecord { entity: 0, ..job };
            let (found, wanted) = (found.map(nobody), wanted.map(nobody));
            if found != wanted {
                return Ok(Some(format!("{id} is {found:?}, and in memory {wanted:?}")));
            }
            let effects = ledger.effects(id).await?;
            let found: BTreeMap<_, _> = effects.iter().map(|effect| (effect.key.0, effect.state)).collect();
            let wanted: BTreeMap<_, _> = store.effect_states(id).map(|effect| (effect.key.0, effect.state)).collect();
            if found != wanted {
                return Ok(Some(format!("the effects of {id} are {found:?}, and in memory {wanted:?}")));
            }
        }
    }
    let (found, wanted) = (ledger.alerts().await?, store.alerts());
    if found != wanted {
        return Ok(Some(format!("the alerts are {found:?}, and in memory {wanted:?}")));
    }
    let page = Page { after: None, limit: u32::MAX };
    // Ids of events differ: on disk they are keyed digests.
    let nameless = |clock: ResponseClock| ResponseClock { event_id: EventId([0; 16]), ..clock };
    let found: Vec<ResponseClock> = ledger.responses(page).await?.into_iter().map(nameless).collect();
    let wanted: Vec<ResponseClock> = store.responses(page).into_iter().map(nameless).collect();
    if found != wanted {
        return Ok(Some(format!("the response clocks are {found:?}, and in memory {wanted:?}")));
    }
    let page = Page { after: None, limit: PAGE };
    let (found, wanted) = (ledger.contacts(false, page).await?, store.contacts(false, page));
    if found != wanted {
        return Ok(Some(format!("contacts are {found:?}, and in memory {wanted:?}")));
    }
    let found = (ledger.event_count().await?, jobs);
    let wanted = (store.event_count(), store.jobs().count() as u64);
    Ok((found != wanted).then(|| format!("{found:?} events and jobs, and in memory {wanted:?}")))
}

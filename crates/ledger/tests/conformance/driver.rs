//! A ledger under test, whichever driver it has.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use sluice_domain::job::{EffectKey, EffectState, JobId, JobState, Term};
use sluice_domain::outcome::{EffectClass, Failure, FailureClass};
use sluice_domain::policy::CapReservation;
use sluice_domain::schedule::backlog::BacklogQuery;
use sluice_domain::time::Time;
use sluice_domain::worker::LaneOrder;
use sluice_ledger::{
    Acceptance, Accepted, AttemptKind, AttemptSettlement, Begin, BeginResult, CappedBeginResult, ChangedJob,
    ChargeResult, ClockFn, Duplicate, EffectSettlement, EventRecord, Fence, JobRecord, JobUpdate, Ledger,
    LedgerOptions, LoadedJob, NewEvent, Page, Settle, Settlement,
};

use crate::fixtures::{START, alone, event, fence, root_key};

/// One way to keep a ledger.
pub(crate) trait Driver: Send + Sync + 'static {
    /// Where the ledger lies; gone when this is dropped.
    type Place: Send + Sync;
    /// An empty place.
    fn place() -> Self::Place;
    /// Opens what is there, or begins anew.
    fn open(place: &Self::Place, options: LedgerOptions) -> Result<Ledger, sluice_ledger::Error>;
}

/// The embedded driver.
pub(crate) struct Sqlite;

impl Driver for Sqlite {
    type Place = tempfile::TempDir;

    fn place() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn open(place: &tempfile::TempDir, options: LedgerOptions) -> Result<Ledger, sluice_ledger::Error> {
        Ledger::open(place.path(), options.with_root_key(root_key()))
    }
}

/// The driver without a disk.
pub(crate) struct Memory;

impl Driver for Memory {
    type Place = sluice_ledger::memory::StoreHandle;

    fn place() -> sluice_ledger::memory::StoreHandle {
        sluice_ledger::memory::StoreHandle::new()
    }

    fn open(
        place: &sluice_ledger::memory::StoreHandle,
        options: LedgerOptions,
    ) -> Result<Ledger, sluice_ledger::Error> {
        Ledger::in_memory(place, options)
    }
}

/// A clock that stands still until it is moved.
#[derive(Clone)]
pub(crate) struct StillClock(Arc<AtomicI64>);

impl StillClock {
    pub(crate) fn new() -> StillClock {
        StillClock(Arc::new(AtomicI64::new(START.0)))
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(&self, millis: i64) -> Time {
        Time(self.0.fetch_add(millis, Ordering::SeqCst) + millis)
    }

    pub(crate) fn for_ledger(&self) -> ClockFn {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

/// While it is shut the writer stands still after its next announcement.
#[derive(Default)]
pub(crate) struct Gate {
    shut: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn shut(&self) {
        *self.shut.lock().unwrap() = true;
    }

    pub(crate) fn open(&self) {
        *self.shut.lock().unwrap() = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        drop(self.changed.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap());
    }
}

pub(crate) struct Fixture<D: Driver> {
    pub ledger: Ledger,
    pub place: D::Place,
    pub clock: StillClock,
    pub gate: Arc<Gate>,
    /// Every job that was announced, in order, each batch on its own.
    pub announced: tokio::sync::mpsc::UnboundedReceiver<Vec<LoadedJob>>,
    /// Every job that was released from quarantine, each batch on its own.
    pub requeued: tokio::sync::mpsc::UnboundedReceiver<Vec<ChangedJob>>,
    /// Workers whose jobs nobody wants to hear of.
    pub unwanted: Arc<Mutex<HashSet<String>>>,
    recent_keys_max: Option<usize>,
}

pub(crate) fn open<D: Driver>() -> Fixture<D> {
    open_at(D::place(), StillClock::new(), None)
}

/// With so few keys in memory that they are moved elsewhere all the time.
pub(crate) fn open_with_few_recent_keys<D: Driver>(recent_keys_max: usize) -> Fixture<D> {
    open_at(D::place(), StillClock::new(), Some(recent_keys_max))
}

fn open_at<D: Driver>(place: D::Place, clock: StillClock, recent_keys_max: Option<usize>) -> Fixture<D> {
    let (announce, announced) = tokio::sync::mpsc::unbounded_channel();
    let (release, requeued) = tokio::sync::mpsc::unbounded_channel();
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    let unwanted = Arc::new(Mutex::new(HashSet::new()));
    let asked = unwanted.clone();
    let options = LedgerOptions {
        wants_new_jobs: Box::new(move |worker| !asked.lock().unwrap().contains(worker)),
        on_new_jobs: Box::new(move |fresh| {
            let _ = announce.send(fresh);
            passed.pass();
        }),
        on_requeued: Box::new(move |jobs| {
            let _ = release.send(jobs);
        }),
        on_fatal: Box::new(|message| panic!("the ledger failed: {message}")),
        recent_keys_max,
        ..LedgerOptions::quiet(clock.for_ledger())
    };
    let ledger = D::open(&place, options).unwrap();
    Fixture { ledger, place, clock, gate, announced, requeued, unwanted, recent_keys_max }
}

impl<D: Driver> Fixture<D> {
    /// Closed and opened again, as on a restart.
    pub(crate) async fn reopen(self) -> Fixture<D> {
        self.ledger.close().await;
        open_at(self.place, self.clock, self.recent_keys_max)
    }

    /// Blocks the writer behind a first commit until the gate opens. The event of that commit is accepted then.
    pub(crate) async fn block_writer(&mut self) -> tokio::task::JoinHandle<Accepted> {
        self.gate.shut();
        let ledger = self.ledger.clone();
        let blocker = tokio::spawn(async move {
            match ledger.accept(event("blocker")).await.unwrap() {
                Acceptance::Accepted(accepted) => accepted,
                other => panic!("not accepted: {other:?}"),
            }
        });
        self.announced.recv().await.unwrap();
        blocker
    }

    pub(crate) async fn accept(&self, key: &str) -> Accepted {
        self.accept_event(event(key)).await
    }

    pub(crate) async fn accept_event(&self, event: NewEvent) -> Accepted {
        match self.ledger.accept(event).await.unwrap() {
            Acceptance::Accepted(accepted) => accepted,
            other => panic!("not accepted: {other:?}"),
        }
    }

    pub(crate) async fn repeat(&self, event: NewEvent) -> Duplicate {
        match self.ledger.accept(event).await.unwrap() {
            Acceptance::Duplicate(duplicate) => duplicate,
            other => panic!("not a duplicate: {other:?}"),
        }
    }

    /// Accepts an event and answers with its only job.
    pub(crate) async fn job(&self, key: &str) -> JobRecord {
        let accepted = self.accept(key).await;
        self.jobs_of(&accepted).await.remove(0)
    }

    pub(crate) async fn event(&self, accepted: &Accepted) -> EventRecord {
        self.ledger.events(vec![accepted.seq]).await.unwrap().remove(0).0
    }

    pub(crate) async fn jobs_of(&self, accepted: &Accepted) -> Vec<JobRecord> {
        let event = self.event(accepted).await;
        self.ledger.jobs_of_event(event).await.unwrap()
    }

    pub(crate) async fn read(&self, job: JobId) -> JobRecord {
        self.ledger.job(job).await.unwrap().unwrap()
    }

    /// What the owner of this ledger believes if it has just loaded the job.
    pub(crate) async fn fence(&self, job: JobId) -> Fence {
        let expected = self.ledger.job(job).await.unwrap().map_or(Term(0), |job| job.term);
        Fence { owner: self.ledger.term(), expected }
    }

    pub(crate) async fn begin(&self, job: JobId, n: u32) -> BeginResult {
        self.begin_with(begin(job, n)).await
    }

    /// Begins as an owner that has just loaded the job.
    pub(crate) async fn begin_with(&self, begin: Begin) -> BeginResult {
        match self.begin_under(begin, &[]).await {
            CappedBeginResult::Begun(result) => result,
            CappedBeginResult::Refused(cap) => panic!("cap {cap} refuses"),
        }
    }

    /// The same under caps.
    pub(crate) async fn begin_under(&self, begin: Begin, caps: &[CapReservation]) -> CappedBeginResult {
        let begin = Begin { fence: self.fence(begin.job).await, ..begin };
        self.ledger.begin(begin, caps.to_vec()).await.unwrap()
    }

    pub(crate) async fn settle(&self, job: JobId, n: u32, state: JobState) -> bool {
        self.settle_with(settlement(job, n, state)).await
    }

    /// Settles as an owner that has just loaded the job.
    pub(crate) async fn settle_with(&self, settlement: Settlement) -> bool {
        self.settle_all(alone(settlement)).await == ChargeResult::Settled
    }

    /// The same with a charge or a begin.
    pub(crate) async fn settle_all(&self, mut settle: Settle) -> ChargeResult {
        let fence = self.fence(settle.settlement.job).await;
        settle.settlement.fence = fence;
        if let Some(begin) = &mut settle.begin {
            begin.fence = fence;
        }
        self.ledger.settle(settle).await.unwrap()
    }

    pub(crate) async fn begin_and_settle(&self, job: JobId, n: u32, state: JobState) -> bool {
        let begin = Some(begin(job, n));
        let settle = Settle { begin, ..alone(settlement(job, n, state)) };
        self.settle_all(settle).await == ChargeResult::Settled
    }

    /// One attempt from its beginning to this end.
    pub(crate) async fn attempt(&self, job: JobId, n: u32, state: JobState) {
        assert_eq!(self.begin(job, n).await, BeginResult::Go);
        assert!(self.settle(job, n, state).await);
    }

    /// A new job that has come to this end by one attempt.
    pub(crate) async fn job_that_is(&self, key: &str, state: JobState) -> JobRecord {
        let job = self.job(key).await;
        self.attempt(job.id, 1, state).await;
        self.read(job.id).await
    }

    /// Ids of the queued and running jobs of a worker and a destination.
    pub(crate) async fn live(&self, worker: &str, destination: &str) -> Vec<JobId> {
        let page = self.ledger.backlog(backlog(worker, destination, JobId(0), 10_000)).await.unwrap();
        page.queued.into_iter().chain(page.due).map(|job| job.id).collect()
    }

    pub(crate) async fn effect_state(&self, job: JobId) -> EffectState {
        self.ledger.effects(job).await.unwrap()[0].state
    }

    /// The audit trail from its beginning, as `actor action object detail`.
    pub(crate) async fn audit_lines(&self) -> Vec<String> {
        let mut lines = self.ledger.audit_trail(Page { after: None, limit: 1000 }).await.unwrap();
        lines.reverse();
        lines
            .into_iter()
            .map(|line| format!("{} {} {} {}", line.actor, line.action, line.object, line.detail))
            .collect()
    }
}

/// Everything that is due at any time.
pub(crate) fn backlog(worker: &str, destination: &str, after: JobId, limit: usize) -> BacklogQuery {
    BacklogQuery { worker: worker.into(), destination: destination.into(), after, due_by: Time::NEVER, limit }
}

/// The key of the only effect of a job.
pub(crate) fn effect_key(job: JobId) -> EffectKey {
    EffectKey([u8::try_from(job.0 % 251).unwrap(); 16])
}

/// The attempt at the first step.
pub(crate) fn begin(job: JobId, n: u32) -> Begin {
    Begin {
        identity: None,
        job,
        n,
        fence: fence(1, u32::from(n > 1)),
        step: 0,
        step_id: "create".into(),
        key: effect_key(job),
        class: EffectClass::Keyed,
        action: "http.post",
        destination: "crm".into(),
        at: at(n),
    }
}

/// A different time for each try.
pub(crate) fn at(n: u32) -> Time {
    Time(START.0 + i64::from(n) * 1000)
}

pub(crate) fn failure() -> Failure {
    Failure::new(FailureClass::Permanent, "no-such-field", "the destination does not know the field")
}

/// How an attempt at the first step leads to this state.
pub(crate) fn settlement(job: JobId, n: u32, state: JobState) -> Settlement {
    let (effect, outcome) = match state {
        JobState::Succeeded => (EffectState::Applied, "done"),
        JobState::Noop => (EffectState::Skipped, "noop"),
        JobState::Unknown => (EffectState::Unknown, "unsure"),
        _ => (EffectState::NotApplied, "retry"),
    };
    let finished = matches!(state, JobState::Succeeded | JobState::Noop);
    Settlement {
        job,
        n,
        fence: fence(1, u32::from(n > 0)),
        effect: Some(EffectSettlement {
            key: effect_key(job),
            step: 0,
            state: effect,
            result: None,
            absent_reads: 0,
            reads: 0,
            late_until: None,
        }),
        attempt: Some(AttemptSettlement {
            step_id: "create".into(),
            kind: AttemptKind::Call,
            started_at: at(n),
            outcome,
            failure: (!finished).then(failure),
        }),
        write: None,
        next: JobUpdate {
            state,
            step: u32::from(finished),
            attempts: n,
            due_at: Time(at(n).0 + 500),
            verifying: false,
            failure: (!finished).then(failure),
            dead_letter_queue: (state == JobState::Dead).then(|| "leads-dead".to_owned()),
            result: finished.then(|| serde_json::json!({ "id": "003" }).into()),
            destination: if state.is_live() { "crm".into() } else { "".into() },
            order: LaneOrder::Fifo,
        },
        at: Time(at(n).0 + 100),
    }
}

//! What is done to the ledger while its disk fails: some of everything, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_domain::event::EventId;
use sluice_domain::job::{EffectKey, JobId, JobState, Term};
use sluice_domain::key::KeyDigest;
use sluice_domain::outcome::EffectClass;
use sluice_domain::time::Time;
use sluice_ledger::{
    Acceptance, AuditEntry, Begin, DropJobs, Error, Fence, Inspector, Ledger, LedgerOptions, NewEvent, NewRevision,
    Pause, Prune, Replay, Resume, Settlement,
};

use crate::fixtures::{DAY, START, alone, event, root_key, settled};

/// So few that keys are moved out of memory and merged within the script.
const RECENT_KEYS_MAX: usize = 6;
/// So few that the log is reset within the script.
const WAL_PAGES_MAX: u64 = 60;
/// These are pruned: they may be gone.
pub(crate) const OLD: u32 = 6;

/// One thing that is asked of the ledger. Numbers are events; each has one job with the same number, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Accept(u32),
    AcceptAll(u32, u32),
    Begin(u32),
    Succeed(u32),
    Die(u32),
    Replay(u32),
    Drop(u32),
    Pause,
    Resume,
    Revision,
    Audit,
    Prune,
    RotateTenant,
    Rewrap,
    Read,
    Reopen,
}

/// What lies in the ledger before anything fails.
pub(crate) fn before() -> Vec<Step> {
    let mut steps = vec![Step::Revision];
    steps.extend((0..OLD).flat_map(|n| [Step::Accept(n), Step::Begin(n), Step::Succeed(n)]));
    steps.push(Step::AcceptAll(OLD, 20));
    steps
}

/// What is done while something fails.
pub(crate) fn script() -> Vec<Step> {
    use Step::{
        Accept, AcceptAll, Audit, Begin, Die, Drop, Pause, Prune, Read, Reopen, Replay, Resume, Rewrap, RotateTenant,
        Succeed,
    };
    vec![
        Accept(20),
        Accept(3),
        Begin(20),
        Succeed(20),
        AcceptAll(18, 26),
        Begin(21),
        Die(21),
        Read,
        Pause,
        Replay(21),
        Begin(22),
        Die(22),
        Drop(22),
        RotateTenant,
        Accept(26),
        Rewrap,
        AcceptAll(27, 30),
        Resume,
        Audit,
        Prune,
        Accept(30),
        Begin(30),
        Succeed(30),
        Reopen,
        Accept(30),
        Accept(31),
        Read,
    ]
}

/// A ledger, and what it has said.
pub(crate) struct Stage {
    directory: PathBuf,
    ledger: Option<Ledger>,
    fatal: Arc<AtomicU64>,
    /// Events that were acknowledged, and their names.
    pub acknowledged: BTreeMap<u32, EventId>,
    /// What the ledger said that jobs have come to.
    states: BTreeMap<u32, JobState>,
    /// Jobs whose last step nobody has heard of.
    doubtful: BTreeSet<u32>,
}

/// What a step came to.
#[derive(Debug)]
pub(crate) enum Came {
    Done,
    /// Nothing was written; it may be asked again.
    NotNow,
    /// Nobody knows, and the ledger has stopped.
    Stopped,
}

impl Stage {
    pub(crate) fn new(directory: &Path) -> Stage {
        Stage {
            directory: directory.to_owned(),
            ledger: None,
            fatal: Arc::default(),
            acknowledged: BTreeMap::new(),
            states: BTreeMap::new(),
            doubtful: BTreeSet::new(),
        }
    }

    /// The same knowledge about another ledger.
    pub(crate) fn again(&self, directory: &Path) -> Stage {
        Stage {
            acknowledged: self.acknowledged.clone(),
            states: self.states.clone(),
            doubtful: self.doubtful.clone(),
            ..Stage::new(directory)
        }
    }

    pub(crate) fn open(&mut self) -> Result<(), Error> {
        self.fatal = Arc::default();
        let fatal = self.fatal.clone();
        let options = LedgerOptions {
            on_fatal: Box::new(move |_| {
                fatal.fetch_add(1, Ordering::SeqCst);
            }),
            recent_keys_max: Some(RECENT_KEYS_MAX),
            wal_pages_max: Some(WAL_PAGES_MAX),
            ..LedgerOptions::quiet(Arc::new(|| START))
        };
        self.ledger = Some(Ledger::open(&self.directory, options.with_root_key(root_key()))?);
        Ok(())
    }

    pub(crate) async fn close(&mut self) {
        if let Some(ledger) = self.ledger.take() {
            ledger.close().await;
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn is_open(&self) -> bool {
        self.ledger.is_some()
    }

    fn ledger(&self) -> &Ledger {
        self.ledger.as_ref().expect("the ledger is open")
    }

    /// Does one step.
    pub(crate) async fn take(&mut self, step: Step) -> Came {
        if step == Step::Reopen {
            self.close().await;
            return self.open().map_or(Came::NotNow, |()| Came::Done);
        }
        let error = match self.ask(step).await {
            Ok(()) => return Came::Done,
            Err(error) => error,
        };
        let fatal = || self.fatal.load(Ordering::SeqCst);
        match error {
            Error::DiskFull => {
                assert_eq!(fatal(), 0, "a full disk is not the end");
                Came::NotNow
            }
            Error::InDoubt { .. } | Error::Failed => {
                assert!(matches!(self.ledger().accept(new(99)).await, Err(Error::Failed)), "nothing more is written");
                assert_eq!(fatal(), 1, "its owner is told once");
                self.doubt(step);
                Came::Stopped
            }
            // A read that failed.
            Error::Read { .. } => Came::NotNow,
            error => panic!("{step:?} was answered with {error:?}"),
        }
    }

    /// Nobody knows whether this has happened.
    pub(crate) fn doubt(&mut self, step: Step) {
        if let Step::Begin(n) | Step::Succeed(n) | Step::Die(n) | Step::Replay(n) | Step::Drop(n) = step {
            self.doubtful.insert(n);
        }
    }

    async fn ask(&mut self, step: Step) -> Result<(), Error> {
        let ledger = self.ledger().clone();
        let (actor, reason, at) = ("somebody".to_owned(), "a reason".to_owned(), Time(START.0 + DAY));
        let jobs = |n: u32| vec![id(n)];
        let state = match step {
            Step::Accept(n) => {
                let acceptance = ledger.accept(new(n)).await?;
                self.acknowledge(n, &acceptance);
                None
            }
            Step::AcceptAll(from, to) => {
                let all = ledger.accept_all((from..to).map(new).collect()).await?;
                (from..to).zip(&all).for_each(|(n, acceptance)| self.acknowledge(n, acceptance));
                None
            }
            Step::Begin(n) => {
                let fence = fence(&ledger, n).await?;
                ledger.begin(Begin { fence, ..begin(n, self.acknowledged[&n]) }, vec![]).await?;
                Some((n, JobState::Running))
            }
            Step::Succeed(n) => {
                let fence = fence(&ledger, n).await?;
                let settlement = settle(n, self.acknowledged[&n], JobState::Succeeded);
                ledger.settle(alone(Settlement { fence, ..settlement })).await?;
                Some((n, JobState::Succeeded))
            }
            Step::Die(n) => {
                let fence = fence(&ledger, n).await?;
                let settlement = settle(n, self.acknowledged[&n], JobState::Dead);
                ledger.settle(alone(Settlement { fence, ..settlement })).await?;
                Some((n, JobState::Dead))
            }
            Step::Replay(n) => {
                ledger.replay(Replay { jobs: jobs(n), actor, reason, revision: None, at }).await?;
                Some((n, JobState::Queued))
            }
            Step::Drop(n) => {
                ledger.drop_jobs(DropJobs { jobs: jobs(n), actor, reason, at }).await?;
                Some((n, JobState::Dropped))
            }
            Step::Pause => {
                let target = "destination:crm".into();
                ledger.pause(Pause { target, actor, reason, at }).await.map(|()| None)?
            }
            Step::Resume => {
                let target = "destination:crm".into();
                ledger.resume(Resume { target, actor, reason: String::new(), at }).await.map(|()| None)?
            }
            Step::Revision => {
                let (hash, reason) = ("r1".into(), "why not".into());
                let revision = NewRevision { hash, files: "[]".into(), actor, reason, at };
                ledger.activate_revision(revision).await.map(|()| None)?
            }
            Step::Audit => {
                let (action, object, detail) = ("looked".into(), "ledger".into(), String::new());
                ledger.audit(AuditEntry { at, actor, action, object, detail }).await.map(|()| None)?
            }
            Step::Prune => {
                let at = Time(START.0 + 2 * DAY);
                ledger.prune(Prune { bodies_before: at, events_before: at, rows_max: 100, at }).await?;
                None
            }
            Step::RotateTenant => ledger.rotate_tenant(actor, at).await.map(|_| None)?,
            Step::Rewrap => ledger.rewrap_contacts(100, at).await.map(|_| None)?,
            Step::Read => ledger.job_counts().await.map(|_| None)?,
            Step::Reopen => unreachable!("taken above"),
        };
        if let Some((n, state)) = state {
            self.states.insert(n, state);
            self.doubtful.remove(&n);
        }
        Ok(())
    }

    fn acknowledge(&mut self, n: u32, acceptance: &Acceptance) {
        let (name, is_new) = match acceptance {
            Acceptance::Accepted(accepted) => (accepted.id, true),
            Acceptance::Duplicate(repeat) => (repeat.id, false),
            Acceptance::ProofUsed => panic!("event {n} has no proof"),
        };
        match self.acknowledged.insert(n, name) {
            Some(first) => {
                assert!(n < OLD || !is_new, "event {n} was acknowledged and is gone");
                assert_eq!(first, name, "event {n} has another name than its sender was told");
            }
            None => assert!(is_new || n >= OLD, "event {n} is a repeat of something"),
        }
    }

    /// Everything that was said is so, and the file is whole.
    pub(crate) async fn check(&mut self) {
        let mine: Vec<u32> = self.acknowledged.keys().copied().filter(|n| *n >= OLD).collect();
        let repeats = self.ledger().accept_all(mine.iter().map(|n| new(*n)).collect()).await.unwrap();
        for (n, repeat) in mine.iter().zip(repeats) {
            match repeat {
                Acceptance::Duplicate(repeat) => assert_eq!(repeat.id, self.acknowledged[n]),
                _ => panic!("event {n} was acknowledged and is gone"),
            }
        }
        for (n, state) in self.states.iter().filter(|(n, _)| **n >= OLD && !self.doubtful.contains(n)) {
            let job = self.ledger().job(id(*n)).await.unwrap().expect("a job of an acknowledged event");
            assert_eq!(job.state, *state, "job {n}");
        }
        let found =
            Inspector::open(&self.directory).unwrap().with_root_key(root_key()).unwrap().verify(|_, _| {}).unwrap();
        assert_eq!(found.broken, [], "of {} checks", found.checks);
        let file = rusqlite::Connection::open(self.directory.join("ledger.db")).unwrap();
        let verdict: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
        let doubles = "SELECT count(*) - count(DISTINCT key) FROM event";
        assert_eq!(file.query_row(doubles, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "a key has two owners");
    }
}

/// What an owner believes that has just loaded the job.
async fn fence(ledger: &Ledger, n: u32) -> Result<Fence, Error> {
    let expected = ledger.job(id(n)).await?.map_or(Term(0), |job| job.term);
    Ok(Fence { owner: ledger.term(), expected })
}

fn id(n: u32) -> JobId {
    JobId(i64::from(n) + 1)
}

fn new(n: u32) -> NewEvent {
    let days = if n < OLD { 1 } else { 30 };
    NewEvent {
        contact: Some(KeyDigest::new("tenant", "contact", &(n % 7).to_string())),
        expires_at: Time(START.0 + days * DAY),
        ..event(&format!("key {n}"))
    }
}

fn begin(n: u32, event: EventId) -> Begin {
    Begin {
        identity: None,
        job: id(n),
        n: 1,
        fence: Fence::default(),
        step: 0,
        step_id: "create".into(),
        key: EffectKey::new(event, "crm", "create"),
        class: EffectClass::Keyed,
        action: "http.post",
        destination: "crm".into(),
        at: START,
    }
}

fn settle(n: u32, event: EventId, state: JobState) -> Settlement {
    settled(id(n), EffectKey::new(event, "crm", "create"), state)
}

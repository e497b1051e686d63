//! The world around a node: time, random numbers, and the agenda of what happens.

use std::time::Duration;

use sluice_domain::job::{JobId, JobState};
use sluice_domain::ledger_clock::{Observation, Steady};
use sluice_domain::random::Random;
use sluice_domain::record::JobRecord;
use sluice_domain::run::StepCall;
use sluice_domain::time::Time;
use sluice_ledger::memory::Store;

use super::accounts::Accounts;
use super::agenda::Agenda;
use super::checker::Checker;
use super::coverage::{Coverage, Fault};
use super::destinations::Destinations;
use super::fault_rates::FaultRates;
use super::invariants::Invariant;
use super::node::SimNode;
use super::operators::OperatorAction;
use super::ops::{SimOp, SimReply};
use super::plan::{DESTINATIONS, SimPlan};
use super::promises::PromiseLog;
use super::senders::Senders;
use super::shadow_ledger::{Ground, ShadowLedger};
use super::trace::{About, Trace};
use super::{Options, Report, Violation};

/// 2026-03-01: when every run begins.
const START: i64 = 1_772_323_200_000;
/// Every job must have ended this long after the last fault.
const CONVERGENCE_MS_MAX: i64 = 4 * 86_400_000;
/// Of so many finished jobs one is replayed at the end of most worlds.
const REPLAYED_PART: u64 = 5;
/// Bound on the entries of the agenda, so that a livelock is a violation.
const STEPS_PER_EVENT_MAX: u64 = 5_000;

/// An entry of the agenda. Entries with the epoch of an ended process are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimEvent {
    /// A sender has a new event.
    Arrive,
    /// A request reaches intake.
    Request {
        webhook: u32,
        variant: bool,
    },
    /// A sender checks whether it was answered.
    Impatience {
        webhook: u32,
    },
    Commit {
        epoch: u32,
    },
    /// The writer replies.
    Reply {
        epoch: u32,
        slot: u32,
    },
    /// Live jobs are read.
    Load {
        epoch: u32,
        slot: u32,
    },
    /// The backlogs in the ledger are read.
    FindBacklogs {
        epoch: u32,
    },
    /// A job is read again for the scheduler.
    ReadAgain {
        epoch: u32,
        job: i64,
    },
    /// The scheduler gets the jobs that were read.
    Loaded {
        epoch: u32,
        slot: u32,
    },
    Wake {
        epoch: u32,
    },
    /// A call takes longer than its intents may stay unrecorded.
    RecordSlow {
        epoch: u32,
        group: u32,
    },
    /// A call has ended.
    CallAnswered {
        epoch: u32,
        group: u32,
    },
    /// A read-back has ended.
    Answered {
        epoch: u32,
        run: u32,
    },
    /// The scheduler is told that a run has ended.
    Finished {
        epoch: u32,
        run: u32,
    },
    /// A settlement is tried again.
    SettleAgain {
        epoch: u32,
        run: u32,
    },
    /// A write of a process that has ended arrives.
    LateWrite {
        index: u32,
    },
    Operator,
    Disturb,
    Upkeep,
    /// The node looks at itself: alerts and response clocks.
    Watch,
    /// Searches for lanes with late writes.
    Stragglers,
    /// A call that was given up is applied all the same.
    Lands {
        index: u32,
    },
    Boot,
    Heal,
}

#[derive(Debug)]
pub(super) struct Simulation {
    pub options: Options,
    /// The true time.
    pub now: i64,
    /// Difference of the wall clock from the true time.
    pub clock_error: i64,
    /// Number of the last start of the machine, and its time.
    boot: u64,
    booted_at: i64,
    /// The ledger's time, as the last process knew it.
    pub last_ledger_time: Time,
    pub random: Random,
    pub rates: FaultRates,
    pub plan: SimPlan,
    pub store: Store,
    /// The real ledger, when one runs beside.
    shadow: Option<Box<ShadowLedger>>,
    pub node: Option<Box<SimNode>>,
    pub epoch: u32,
    pub crashes: u64,
    pub senders: Senders,
    pub destinations: Destinations,
    pub accounts: Accounts,
    /// Writes of processes that have ended.
    pub late_writes: Vec<Option<SimOp>>,
    /// Calls that are applied after they were given up.
    pub stragglers: Vec<StepCall>,
    pub disk_full_until: i64,
    pub disk_full_for_all_until: i64,
    pub checker: Checker,
    pub promises: PromiseLog,
    pub coverage: Coverage,
    pub trace: Trace,
    healing_since: Option<i64>,
    agenda: Agenda,
}

impl Simulation {
    pub(crate) fn new(options: Options, keep_trace: bool) -> Simulation {
        let mut random = Random::seeded(options.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x051c_e000);
        let rates = FaultRates::of(options.profile, &mut random);
        let plan = SimPlan::new(&mut random);
        Simulation {
            options,
            now: START,
            clock_error: 0,
            boot: 1,
            booted_at: START - 3_600_000,
            last_ledger_time: Time(START),
            senders: Senders::new(&mut random),
            random,
            rates,
            plan,
            store: Store::new(),
            shadow: None,
            node: None,
            epoch: 0,
            crashes: 0,
            destinations: Destinations::default(),
            accounts: Accounts::default(),
            late_writes: Vec::new(),
            stragglers: Vec::new(),
            disk_full_until: 0,
            disk_full_for_all_until: 0,
            checker: Checker::default(),
            promises: PromiseLog::default(),
            coverage: Coverage::default(),
            trace: Trace::new(keep_trace),
            healing_since: None,
            agenda: Agenda::default(),
        }
    }

    /// Gives everything that becomes durable to a real ledger as well.
    pub(crate) fn attach_shadow(&mut self, ground: std::io::Result<Box<dyn Ground>>) {
        match ShadowLedger::new(ground) {
            Ok(shadow) => self.shadow = Some(Box::new(shadow)),
            Err(detail) => self.differs(Err(detail)),
        }
    }

    /// Calls `act` with the real ledger, if there is one.
    fn with_shadow(&mut self, act: impl FnOnce(&mut ShadowLedger, &Store) -> Result<(), String>) {
        let Some(shadow) = &mut self.shadow else { return };
        let result = act(shadow, &self.store);
        self.differs(result);
    }

    fn differs(&mut self, result: Result<(), String>) {
        if let Err(detail) = result {
            self.checker.fail(self.now, Invariant::SameInSqlite, About::Nothing, || detail);
        }
    }

    /// An operation becomes durable.
    pub(crate) fn make_durable(&mut self, op: SimOp) -> SimReply {
        let at = self.ledger_time();
        let copy = self.shadow.is_some().then(|| op.clone());
        let reply = op.apply(&mut self.store, at);
        if let Some(copy) = copy {
            self.with_shadow(|shadow, _| shadow.wrote(at, copy, &reply));
        }
        reply
    }

    /// The real ledger ends with the process.
    pub(crate) fn crash_shadow(&mut self) {
        self.with_shadow(|shadow, _| shadow.crash());
    }

    /// At the end both ledgers must have the same content.
    pub(crate) fn compare_shadow(&mut self) {
        let revisions: Vec<_> = self.plan.revisions.iter().map(|revision| revision.run.name.clone()).collect();
        self.with_shadow(|shadow, store| shadow.compare(store, revisions));
    }

    /// Adds an entry to the agenda.
    pub(crate) fn plan_in(&mut self, ms: i64, what: SimEvent) {
        self.agenda.push(self.now + ms, what);
    }

    /// The wall clock's time.
    pub(crate) fn wall(&self) -> Time {
        Time(self.now + self.clock_error)
    }

    /// The ledger's time.
    pub(crate) fn ledger_time(&self) -> Time {
        self.node.as_ref().map_or(self.last_ledger_time, |node| node.clock.reading().time)
    }

    /// Both clocks of the machine.
    pub(crate) fn observation(&self) -> Observation {
        let elapsed = Duration::from_millis((self.now - self.booted_at).unsigned_abs());
        Observation { wall: self.wall(), steady: Steady { boot: self.boot, elapsed } }
    }

    /// Restarts the machine.
    pub(crate) fn reboot(&mut self) {
        (self.boot, self.booted_at) = (self.boot + 1, self.now);
        self.checker.counted_calls.forget();
        self.happened(Fault::Reboot);
    }

    /// The node reads both clocks.
    fn observe_clocks(&mut self) {
        let observation = self.observation();
        if let Some(node) = &mut self.node {
            let reading = node.clock.observe(observation);
            if reading.time < self.last_ledger_time {
                let detail = || "the ledger's time went back".to_owned();
                self.checker.fail(self.now, Invariant::NothingPrunedEarly, About::Nothing, detail);
            }
            self.last_ledger_time = reading.time;
        }
    }

    /// Whether no call that was made before the end of all faults can end or be applied any more.
    pub(crate) fn has_settled(&self) -> bool {
        self.healing_since.is_some_and(|since| self.now > since + 600_000)
    }

    /// Time since the end of all faults.
    pub(crate) fn healed_for(&self) -> i64 {
        self.healing_since.map_or(0, |since| self.now - since)
    }

    pub(crate) fn is_healing(&self) -> bool {
        self.healing_since.is_some()
    }

    /// A random number of milliseconds below `bound`.
    pub(crate) fn some_ms(&mut self, bound: u64) -> i64 {
        self.random.below(bound) as i64
    }

    /// Counts a fault.
    pub(crate) fn happened(&mut self, fault: Fault) {
        self.coverage.fault(fault);
        self.trace.note(self.now, fault.as_str(), About::Nothing, 0);
    }

    /// Runs the world to its end and checks it.
    pub(crate) fn play(&mut self) {
        self.begin();
        self.until_nothing_is_left();
        // A replay of everything costs as much as the rest of the world: one world in eight replays all of its finished jobs, and
        // that twice. The others replay a part, each another one.
        let (replays, part) = if self.options.seed.is_multiple_of(8) { (2, 1) } else { (1, REPLAYED_PART) };
        for _ in 0..replays {
            if self.checker.broken.is_none() {
                let shown = self.checker.shown_total();
                self.replay_finished(part);
                self.until_nothing_is_left();
                self.checker.expect_unchanged(self.now, shown);
            }
        }
        if self.checker.broken.is_none() {
            self.final_checks();
        }
    }

    /// Starts the process and the periodic entries of the agenda.
    pub(crate) fn begin(&mut self) {
        self.boot();
        self.plan_in(0, SimEvent::Arrive);
        self.plan_in(1_000, SimEvent::Disturb);
        self.plan_in(2_000, SimEvent::Operator);
        self.plan_in(600_000, SimEvent::Upkeep);
        self.plan_in(20_000, SimEvent::Stragglers);
        self.plan_in(5_000, SimEvent::Watch);
    }

    /// Runs the agenda until a time. Faults and causes stay as they are.
    #[cfg(test)]
    pub(crate) fn play_until(&mut self, until: i64) {
        while self.agenda.next_at().is_some_and(|at| at <= until) && self.checker.broken.is_none() {
            let Some((at, what)) = self.agenda.pop() else { return };
            self.now = at;
            self.observe_clocks();
            if what != SimEvent::Heal {
                self.perform(what);
            }
        }
        self.now = until;
        self.observe_clocks();
    }

    /// Moves the start of the world, before anything has happened.
    #[cfg(test)]
    pub(crate) fn start_later(&mut self, ms: i64) {
        (self.now, self.booted_at) = (self.now + ms, self.booted_at + ms);
        self.last_ledger_time = Time(self.now);
    }

    fn until_nothing_is_left(&mut self) {
        let steps_max = self.agenda.planned() + 1_000_000 + u64::from(self.options.events) * STEPS_PER_EVENT_MAX;
        while let Some((at, what)) = self.agenda.pop() {
            self.now = at;
            self.observe_clocks();
            self.perform(what);
            if self.checker.broken.is_some() {
                return;
            }
            let late = self.healing_since.is_some_and(|since| self.now > since + CONVERGENCE_MS_MAX);
            if late {
                break;
            }
            if self.agenda.planned() > steps_max {
                let detail = || "the agenda does not end".to_owned();
                return self.checker.fail(self.now, Invariant::NothingStuck, About::Nothing, detail);
            }
        }
        let alive = self.store.live_count();
        if alive > 0 {
            let first = self.store.jobs().find(|job| job.state.is_live());
            let about = first.map_or(About::Nothing, |job| About::Job(job.id));
            let first = first.map_or_else(String::new, |job| {
                let why = job.failure.as_ref().map_or("", |failure| failure.code.as_str());
                format!("{} at step {} ({why}), due {}", job.state.as_str(), job.step, job.due_at)
            });
            self.checker.fail(self.now, Invariant::NothingStuck, about, || {
                format!("{alive} jobs are still alive long after every fault has ended; the first is {first}")
            });
        }
    }

    fn perform(&mut self, what: SimEvent) {
        match what {
            SimEvent::Arrive => self.arrive(),
            SimEvent::Request { webhook, variant } => self.request(webhook, variant),
            SimEvent::Impatience { webhook } => self.impatience(webhook),
            SimEvent::Commit { epoch } if epoch == self.epoch => self.commit(),
            SimEvent::Reply { epoch, slot } if epoch == self.epoch => self.reply(slot),
            SimEvent::Load { epoch, slot } if epoch == self.epoch => self.load(slot),
            SimEvent::Loaded { epoch, slot } if epoch == self.epoch => self.loaded(slot),
            SimEvent::FindBacklogs { epoch } if epoch == self.epoch => self.find_backlogs(),
            SimEvent::ReadAgain { epoch, job } if epoch == self.epoch => self.read_again(JobId(job)),
            SimEvent::Wake { epoch } if epoch == self.epoch => self.wake(),
            SimEvent::Answered { epoch, run } if epoch == self.epoch => self.answered(run),
            SimEvent::Finished { epoch, run } if epoch == self.epoch => self.finished(run),
            SimEvent::SettleAgain { epoch, run } if epoch == self.epoch => self.settle_again(run),
            SimEvent::RecordSlow { epoch, group } if epoch == self.epoch => self.record_slow(group),
            SimEvent::CallAnswered { epoch, group } if epoch == self.epoch => self.call_answered(group),
            SimEvent::LateWrite { index } => self.late_write(index),
            SimEvent::Operator => self.operate(),
            SimEvent::Disturb => self.disturb(),
            SimEvent::Upkeep => self.prune(),
            SimEvent::Stragglers => self.look_for_stragglers(),
            SimEvent::Watch => self.watch(),
            SimEvent::Lands { index } => self.lands(index),
            SimEvent::Boot => self.boot(),
            SimEvent::Heal => self.heal(),
            // Of an ended process.
            _ => {}
        }
    }

    /// About once a minute while faults happen.
    fn disturb(&mut self) {
        if self.is_healing() {
            return;
        }
        let next = 20_000 + self.some_ms(80_000);
        self.plan_in(next, SimEvent::Disturb);
        let destination = self.random.below(DESTINATIONS as u64) as usize;
        if self.random.chance(self.rates.outage) {
            let length = 1_000 + self.some_ms(600_000);
            let flaps = self.random.chance(0.3);
            self.happened(if flaps { Fault::Flapping } else { Fault::Outage });
            let destination = &mut self.destinations.0[destination];
            let until = if flaps { &mut destination.flaps_until } else { &mut destination.down_until };
            *until = self.now + length;
        } else if self.rates.outage > 0.0
            && self.random.chance(0.3)
            && self.destinations.0[destination].down_until > self.now
        {
            self.destinations.0[destination].down_until = 0;
            self.happened(Fault::OutageEnds);
        }
        if self.random.chance(self.rates.unauthorized) {
            self.destinations.0[destination].unauthorized = true;
            self.happened(Fault::CredentialsBroken);
        }
        if self.random.chance(self.rates.disk_full) {
            self.disk_full_until = self.now + 1_000 + self.some_ms(30_000);
            self.happened(Fault::DiskFull);
            if self.random.chance(0.3) {
                self.disk_full_for_all_until = self.now + 1_000 + self.some_ms(5_000);
                self.happened(Fault::DiskFullForAll);
            }
        }
        if self.random.chance(self.rates.clock) {
            self.set_clock();
        } else if self.clock_error != 0 && self.random.chance(0.2) {
            self.clock_error = 0;
            self.happened(Fault::ClockReturns);
        }
        if self.random.chance(self.rates.crash_idle) {
            self.crash(Fault::CrashIdle);
        }
    }

    /// The wall clock jumps: a little, by hours, or by months.
    fn set_clock(&mut self) {
        const MONTHS_MS: i64 = 120 * 86_400_000;
        let (jump, fault) = match self.random.below(6) {
            0 | 1 => (1_000 + self.some_ms(600_000), Fault::ClockForward),
            2 => (1_000 + self.some_ms(86_400_000), Fault::ClockForward),
            3 => (MONTHS_MS, Fault::ClockFarAhead),
            4 => (-1_000 - self.some_ms(3_600_000), Fault::ClockBack),
            _ => (-MONTHS_MS, Fault::ClockFarBack),
        };
        self.clock_error += jump;
        self.happened(fault);
    }

    /// No more faults: from here on every job must come to an end.
    fn heal(&mut self) {
        self.healing_since = Some(self.now);
        self.rates = FaultRates::calm();
        for destination in &mut self.destinations.0 {
            (destination.down_until, destination.flaps_until, destination.unauthorized) = (0, 0, false);
        }
        (self.disk_full_until, self.disk_full_for_all_until) = (0, 0);
        self.clock_error = 0;
        self.trace.note(self.now, "heal", About::Nothing, 0);
        self.resume_everything();
    }

    /// Submits a replay of one finished job in so many.
    fn replay_finished(&mut self, part: u64) {
        let is_chosen = |job: &&JobRecord| (job.id.0 as u64).wrapping_add(self.options.seed / 8).is_multiple_of(part);
        let finished = self.store.jobs().filter(|job| matches!(job.state, JobState::Succeeded | JobState::Noop));
        let jobs = finished.filter(is_chosen).map(|job| job.id).collect();
        self.act(OperatorAction::Replay { latest_config: false }, jobs);
    }

    pub(crate) fn report(self, violation: Option<Violation>) -> Report {
        Report {
            seed: self.options.seed,
            events: u64::from(self.senders.made()),
            requests: self.promises.requests,
            calls: self.checker.calls,
            crashes: self.crashes,
            doubled_by_lies: self.checker.doubled_by_lies,
            steps: self.trace.steps(),
            simulated_ms: self.now - START,
            hash: self.trace.hash(),
            coverage: self.coverage,
            violation,
        }
    }
}

//! Random inputs, delayed in every way: every job runs to its end, lanes keep their order, limits hold, memory is bounded.

use std::collections::{BTreeMap, BTreeSet};

use super::backlog::{BacklogPage, BacklogQuery};
use super::test_world::{FakeLedger, configured, name, with_batches};
use super::*;
use crate::settle::DestinationHealth;

const CONCURRENCY: u32 = 3;
const WORKERS: [&str; 2] = ["w", "v"];
const PAUSABLE: [&str; 2] = ["crm", "ads"];

/// Something that is under way and happens at a random time.
#[derive(Clone, Debug)]
enum Event {
    Read(BacklogQuery),
    Deliver(Input),
    FindBacklogs,
    /// A run ends and its result becomes durable.
    End(JobId),
    Reload(JobId),
    Reroute(PendingJob),
    /// An operator ends the wait of a job.
    DueNow(JobId),
}

struct Plan {
    steps: Vec<Arc<str>>,
    requeued: bool,
}

struct Model {
    random: Random,
    scheduler: Scheduler,
    limits: Limits,
    ledger: FakeLedger,
    now: i64,
    wake: Option<Time>,
    events: Vec<Event>,
    notices: VecDeque<Vec<PendingJob>>,
    plans: BTreeMap<JobId, Plan>,
    /// Jobs in memory as the loop knows them.
    cache: BTreeMap<JobId, PendingJob>,
    running: BTreeMap<JobId, PendingJob>,
    paused: BTreeSet<String>,
    healing: bool,
}

impl Model {
    fn new(seed: u64, limits: Limits) -> Model {
        Model {
            random: Random::seeded(seed),
            scheduler: Scheduler::with_limits(Random::seeded(seed ^ 1), limits),
            limits,
            ledger: FakeLedger::default(),
            now: 0,
            wake: None,
            events: vec![],
            notices: VecDeque::new(),
            plans: BTreeMap::new(),
            cache: BTreeMap::new(),
            running: BTreeMap::new(),
            paused: BTreeSet::new(),
            healing: false,
        }
    }

    fn accept(&mut self, id: JobId, entities: u64) {
        let mut steps: Vec<Arc<str>> = ["", "crm", "ads"].map(name).into();
        steps.retain(|_| self.random.chance(0.5));
        if steps.is_empty() {
            steps.push(name("crm"));
        }
        let job = PendingJob {
            id,
            worker: name(WORKERS[self.random.below(2) as usize]),
            destination: steps[0].clone(),
            order: if self.random.chance(0.9) { LaneOrder::Fifo } else { LaneOrder::None },
            entity: self.random.below(entities),
            due: PendingJob::AT_ONCE,
            interrupted: false,
            alone: false,
            traffic: Default::default(),
        };
        self.plans.insert(id, Plan { steps, requeued: false });
        self.ledger.live.insert(id, job.clone());
        if self.scheduler.defers_new(&job.worker, &job.destination) {
            return;
        }
        self.notices.push_back(vec![job]);
    }

    fn step(&mut self, input: Input) {
        let offered: Vec<PendingJob> = match &input {
            Input::Accepted(jobs) => jobs.clone(),
            Input::Loaded { page, .. } => page.queued.iter().chain(&page.due).cloned().collect(),
            Input::Settled { after: AfterRun::Live(job) | AfterRun::Moved(job), .. } => vec![job.clone()],
            Input::Reloaded { found, .. } => found.iter().cloned().collect(),
            _ => vec![],
        };
        if let Input::Settled { job, .. } | Input::RunLost(job) | Input::Reloaded { job, .. } = &input {
            self.running.remove(job);
            if !matches!(input, Input::Settled { after: AfterRun::Released { .. }, .. }) {
                self.cache.remove(job);
            }
        }
        for job in offered {
            self.cache.entry(job.id).or_insert(job);
        }
        let mut actions = Vec::new();
        self.scheduler.step(Time(self.now), input, &mut actions);
        self.wake = None;
        for action in actions {
            self.perform(action);
        }
        let scheduler = &self.scheduler;
        self.cache.retain(|id, _| scheduler.holds(*id));
        assert!(scheduler.jobs.len() + scheduler.reserved <= self.limits.jobs, "memory is bounded");
        assert!(scheduler.in_flight <= self.limits.in_flight);
        assert!(scheduler.backlogs.iter().all(|backlog| backlog.in_flight <= CONCURRENCY), "more calls than slots");
    }

    fn perform(&mut self, action: SchedulerAction) {
        match action {
            SchedulerAction::Run(jobs) => jobs.into_iter().for_each(|id| self.start(id)),
            SchedulerAction::Load(query) => self.events.push(Event::Read(query)),
            SchedulerAction::FindBacklogs => self.events.push(Event::FindBacklogs),
            SchedulerAction::Reload(id) => self.events.push(Event::Reload(id)),
            SchedulerAction::Reroute(job) => self.events.push(Event::Reroute(job)),
            SchedulerAction::WakeAt(at) => self.wake = Some(at),
            SchedulerAction::Gate(..) | SchedulerAction::Charge(..) | SchedulerAction::Postpone(_) => {}
        }
    }

    fn start(&mut self, id: JobId) {
        let job = self.cache.get(&id).unwrap_or_else(|| panic!("{id} runs and is not in memory")).clone();
        assert!(self.ledger.live.contains_key(&id), "{id} runs and is finished");
        assert!(!self.running.contains_key(&id), "{id} runs twice");
        let other = self.running.values().find(|other| same_lane(&job, other));
        assert!(other.is_none(), "{id} and {other:?} of one lane run at once");
        if !job.interrupted {
            self.check_order(&job);
        }
        self.running.insert(id, job);
        self.events.push(Event::End(id));
    }

    /// Jobs that never leave their first lane run in the order of their ids.
    fn check_order(&self, job: &PendingJob) {
        let stays = |id: &JobId| self.plans[id].steps.len() == 1 && !self.plans[id].requeued;
        if !stays(&job.id) {
            return;
        }
        let older = self.ledger.live.range(..job.id).map(|(_, other)| other);
        let mut older = older.filter(|other| same_lane(job, other) && job.worker == other.worker);
        let other = older.find(|other| stays(&other.id));
        assert!(other.is_none(), "{} runs before {other:?} of its lane", job.id);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(input) => self.step(input),
            Event::Read(query) if !self.healing && self.random.chance(0.1) => {
                let BacklogQuery { worker, destination, .. } = query;
                self.step(Input::LoadFailed { worker, destination });
            }
            Event::Read(query) => {
                let page: BacklogPage<PendingJob> = self.ledger.backlog(&query);
                self.events.push(Event::Deliver(Input::Loaded { query, page }));
            }
            Event::FindBacklogs if !self.healing && self.random.chance(0.1) => self.step(Input::FindFailed),
            Event::FindBacklogs => {
                let found = self.ledger.backlogs();
                self.events.push(Event::Deliver(Input::BacklogsFound(found)));
            }
            Event::Reload(job) if !self.healing && self.random.chance(0.1) => self.step(Input::ReloadFailed(job)),
            Event::Reload(job) => {
                let found = self.ledger.live.get(&job).cloned();
                self.step(Input::Reloaded { job, found });
            }
            Event::Reroute(job) if !self.healing && self.random.chance(0.1) => self.step(Input::RerouteFailed(job.id)),
            Event::Reroute(job) => {
                let id = job.id;
                self.ledger.live.insert(id, job);
                self.events.push(Event::Deliver(Input::Rerouted(id)));
            }
            Event::End(id) => self.end(id),
            Event::DueNow(id) => {
                let now = Time(self.now);
                let job = self.ledger.live.get_mut(&id).filter(|job| job.due > now);
                if let Some(job) = job {
                    job.due = now;
                    let worker = job.worker.clone();
                    self.events.push(Event::Deliver(Input::DueNow { job: id, worker }));
                }
            }
        }
    }

    fn end(&mut self, id: JobId) {
        let job = self.running[&id].clone();
        if !job.interrupted && !job.destination.is_empty() && self.random.chance(0.1) {
            let after = AfterRun::Released { alone: self.random.chance(0.5) };
            return self.events.push(Event::Deliver(Input::Settled { job: id, health: None, took: None, after }));
        }
        let (mut health, mut moved) = (DestinationHealth::Healthy, false);
        let mut next = Some(PendingJob { due: PendingJob::AT_ONCE, interrupted: false, ..job.clone() });
        if job.interrupted || self.random.chance(0.3) {
            health = if self.random.chance(0.5) { DestinationHealth::Failing } else { DestinationHealth::Silent };
            let long = !self.healing && self.random.chance(0.3);
            let wait = if long { 30_000 + self.random.below(100_000) } else { self.random.below(20_000) };
            next.iter_mut().for_each(|job| job.due = Time(self.now + wait as i64));
            if self.random.chance(0.2) {
                self.events.push(Event::DueNow(id));
            }
        } else if !self.healing && self.random.chance(0.1) {
            // The run is lost, before or after its intent became durable.
            if self.random.chance(0.5) {
                let interrupted = PendingJob { interrupted: true, due: PendingJob::AT_ONCE, ..job };
                self.ledger.live.insert(id, interrupted);
            }
            return self.events.push(Event::Deliver(Input::RunLost(id)));
        } else {
            let steps = &self.plans[&id].steps;
            let place = steps.iter().position(|step| *step == job.destination).expect("a step of its plan");
            moved = job.destination.is_empty() && self.random.chance(0.7);
            let destination = steps.get(place + 1);
            next = next.zip(destination).map(|(job, next)| PendingJob { destination: next.clone(), ..job });
        }
        let after = match next {
            Some(next) if moved => AfterRun::Moved(next),
            Some(next) => {
                self.ledger.live.insert(id, next.clone());
                AfterRun::Live(next)
            }
            None => {
                self.ledger.live.remove(&id);
                self.maybe_requeue(id, &job);
                AfterRun::Finished
            }
        };
        self.events.push(Event::Deliver(Input::Settled { job: id, health: Some(health), took: None, after }));
    }

    /// An operator replays a finished job, perhaps before the scheduler hears of its end.
    fn maybe_requeue(&mut self, id: JobId, job: &PendingJob) {
        if self.random.chance(0.1)
            && let Some(plan) = self.plans.get_mut(&id)
            && !std::mem::replace(&mut plan.requeued, true)
        {
            let destination = plan.steps[0].clone();
            let worker = job.worker.clone();
            let due = PendingJob::AT_ONCE;
            self.ledger.live.insert(id, PendingJob { destination, due, interrupted: false, ..job.clone() });
            self.events.push(Event::Deliver(Input::Requeued { worker, first: id }));
        }
    }

    fn toggle_pause(&mut self) {
        let pausable = ["d:crm", "d:ads", "w:w", "w:v"];
        let target = pausable[self.random.below(4) as usize].to_owned();
        let input = match self.paused.remove(&target) {
            true => Input::Resume(pause_target(&target)),
            false => Input::Pause(pause_target(&target)),
        };
        if matches!(input, Input::Pause(_)) {
            self.paused.insert(target);
        }
        self.step(input);
    }

    /// The process dies and another one starts. Runs whose intent was durable are interrupted.
    fn restart(&mut self) {
        let ended: BTreeSet<JobId> = self
            .events
            .iter()
            .filter_map(|event| match event {
                Event::End(id) => Some(*id),
                _ => None,
            })
            .collect();
        for id in ended {
            if self.random.chance(0.5)
                && let Some(job) = self.ledger.live.get_mut(&id)
            {
                (job.due, job.interrupted) = (PendingJob::AT_ONCE, true);
            }
        }
        self.events.clear();
        self.notices.clear();
        self.cache.clear();
        self.running.clear();
        self.scheduler = Scheduler::with_limits(Random::seeded(self.random.next_u64()), self.limits);
        for target in self.paused.clone() {
            self.step(Input::Pause(pause_target(&target)));
        }
        self.step(with_batches(configured(CONCURRENCY), 4));
    }

    fn heal(&mut self) {
        self.healing = true;
        for target in std::mem::take(&mut self.paused) {
            self.step(Input::Resume(pause_target(&target)));
        }
    }

    fn anything(&mut self) {
        let events = self.events.len() as u64;
        if events > 0 && self.random.chance(0.8) {
            let event = self.events.swap_remove(self.random.below(events) as usize);
            self.happen(event);
        } else if let Some(notice) = self.notices.pop_front() {
            self.step(Input::Accepted(notice));
        } else if events == 0 || self.random.chance(0.3) {
            let until = self.wake.map_or(self.now + 1_000, |at| at.0.clamp(self.now + 1, self.now + 40_000));
            self.now = until;
            self.step(Input::Tick);
        }
    }
}

fn same_lane(a: &PendingJob, b: &PendingJob) -> bool {
    let fifo = a.order == LaneOrder::Fifo && b.order == LaneOrder::Fifo;
    fifo && a.entity == b.entity
        && a.destination == b.destination
        && (!a.destination.is_empty() || a.worker == b.worker)
}

fn pause_target(text: &str) -> PauseTarget {
    match text.split_once(':') {
        Some(("d", destination)) if PAUSABLE.contains(&destination) => PauseTarget::Destination(name(destination)),
        Some((_, worker)) => PauseTarget::Worker(name(worker)),
        None => unreachable!("every target has a kind"),
    }
}

fn run(seed: u64, jobs: i64, entities: u64, limits: Limits) {
    let mut model = Model::new(seed, limits);
    model.step(with_batches(configured(CONCURRENCY), 4));
    let mut accepted = 0;
    while accepted < jobs {
        match model.random.below(100) {
            0..10 => {
                accepted += 1;
                model.accept(JobId(accepted), entities);
            }
            10 => model.toggle_pause(),
            11 if model.random.chance(0.1) => model.restart(),
            _ => model.anything(),
        }
    }
    model.heal();
    for _ in 0..jobs * 2_000 {
        if model.ledger.live.is_empty() && model.events.is_empty() {
            break;
        }
        model.anything();
    }
    assert!(
        model.ledger.live.is_empty(),
        "never finished: {:?}",
        model.ledger.live.values().take(5).collect::<Vec<_>>()
    );
    assert_eq!((model.scheduler.in_flight, model.scheduler.calls.len()), (0, 0));
    assert_eq!(model.scheduler.jobs.len(), 0, "{:?}", model.scheduler.jobs);
}

/// The same worlds in every run, so that a failure is found again by its seed.
#[test]
fn every_job_runs_to_its_end_in_order_and_within_limits() {
    for seed in 0..400 {
        let mut random = Random::seeded(seed);
        let mut within = |from: u64, to: u64| from + random.below(to - from);
        let (jobs, entities) = (within(1, 300) as i64, within(1, 40));
        let (memory, lane_jobs) = (within(4, 64) as usize, within(1, 8) as usize);
        let limits = Limits { jobs: memory, lane_jobs, load_jobs: memory.div_ceil(4), in_flight: 16 };
        println!("seed {seed}: {jobs} jobs of {entities} entities, {limits:?}");
        run(seed, jobs, entities, limits);
    }
}

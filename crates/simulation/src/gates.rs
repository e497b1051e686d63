//! Independent model of each gate, worker and lane: finds runs that the scheduler must not have started.

use sluice_domain::destination::GateSettings;
use sluice_domain::job::JobId;
use sluice_domain::schedule::gate::GateChange;

use super::checker::Checker;
use super::invariants::Invariant;
use super::people::{LANES, lane_number};
use super::plan::{DESTINATIONS, WORKERS};
use super::trace::About;

#[derive(Clone, Debug, Default)]
struct ObservedGate {
    settings: GateSettings,
    in_flight: u32,
    paused: bool,
    not_before: i64,
    open_until: i64,
    is_closed: bool,
    probe: Option<JobId>,
    tokens: f64,
    filled_at: i64,
}

/// One worker: its jobs running at each destination, and at internal steps.
#[derive(Clone, Copy, Debug, Default)]
struct ObservedWorker {
    running: [u32; DESTINATIONS + 1],
    concurrency: u32,
    paused: bool,
}

/// Everything that limits what runs.
#[derive(Debug)]
pub(super) struct Gates {
    gates: [ObservedGate; DESTINATIONS],
    workers: [ObservedWorker; WORKERS],
    lanes: Vec<Option<JobId>>,
}

impl Default for Gates {
    fn default() -> Gates {
        Gates {
            gates: std::array::from_fn(|_| ObservedGate { is_closed: true, ..ObservedGate::default() }),
            workers: [ObservedWorker { concurrency: 1, ..ObservedWorker::default() }; WORKERS],
            lanes: vec![None; (DESTINATIONS + WORKERS) * LANES as usize],
        }
    }
}

/// Where a job wants to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimSlot {
    pub job: JobId,
    pub worker: usize,
    /// `None` for a job that no destination has to be asked about.
    pub destination: Option<usize>,
    /// Whose lane, where order matters.
    pub lane: Option<u64>,
}

impl SimSlot {
    /// Lanes of internal steps belong to their worker.
    fn lane_index(&self) -> Option<usize> {
        let group = self.destination.unwrap_or(DESTINATIONS + self.worker);
        Some(group * LANES as usize + lane_number(self.lane?) as usize)
    }

    /// Which of the worker's slots: each destination has its own, and so have internal steps.
    fn pair(&self) -> usize {
        self.destination.unwrap_or(DESTINATIONS)
    }
}

impl Gates {
    /// A new process knows nothing of what the last one was told.
    pub(crate) fn forget(&mut self) {
        *self = Gates::default();
    }

    pub(crate) fn configure(&mut self, now: i64, workers: [u32; WORKERS], gates: &[GateSettings; DESTINATIONS]) {
        for (sight, concurrency) in self.workers.iter_mut().zip(workers) {
            sight.concurrency = concurrency;
        }
        for (sight, settings) in self.gates.iter_mut().zip(gates) {
            sight.settings = settings.clone();
            (sight.tokens, sight.filled_at) = (f64::from(settings.burst), now);
        }
    }

    pub(crate) fn pause_destination(&mut self, destination: usize, paused: bool) {
        self.gates[destination].paused = paused;
    }

    pub(crate) fn pause_worker(&mut self, worker: usize, paused: bool) {
        self.workers[worker].paused = paused;
    }

    /// The end of a run is durable: its lane may move on.
    pub(crate) fn release_lane(&mut self, slot: SimSlot) {
        if let Some(lane) = slot.lane_index()
            && self.lanes[lane] == Some(slot.job)
        {
            self.lanes[lane] = None;
        }
    }

    /// The scheduler hears that the last run of a call has ended, and what the destination asked for.
    pub(crate) fn ended(&mut self, now: i64, slot: SimSlot, asked_ms: Option<i64>, unauthorized: bool) {
        let running = &mut self.workers[slot.worker].running[slot.pair()];
        *running = running.saturating_sub(1);
        let Some(destination) = slot.destination else { return };
        let gate = &mut self.gates[destination];
        gate.in_flight = gate.in_flight.saturating_sub(1);
        if gate.probe == Some(slot.job) {
            gate.probe = None;
        }
        gate.paused |= unauthorized;
        if let Some(asked) = asked_ms {
            gate.not_before = gate.not_before.max(now + asked);
        }
    }

    /// The scheduler says that a gate has changed. `shift` is how far its clock is ahead of the true time.
    pub(crate) fn changed(&mut self, destination: usize, change: &GateChange, shift: i64) {
        let gate = &mut self.gates[destination];
        match change {
            GateChange::Opened(until) => (gate.is_closed, gate.open_until, gate.probe) = (false, until.0 - shift, None),
            GateChange::HalfOpen => gate.is_closed = false,
            GateChange::Closed => gate.is_closed = true,
            GateChange::AuthPaused => gate.paused = true,
        }
    }
}

impl Checker {
    /// The scheduler starts the runs of one call.
    pub(crate) fn started(&mut self, now: i64, slots: &[SimSlot]) {
        let Some(slot) = slots.first().copied() else { return };
        slots.iter().for_each(|slot| self.lane_taken(now, *slot));
        let about = About::Job(slot.job);
        let worker = &mut self.gates.workers[slot.worker];
        worker.running[slot.pair()] += 1;
        let (in_flight, concurrency, paused) = (worker.running[slot.pair()], worker.concurrency, worker.paused);
        if paused {
            self.fail(now, Invariant::WaitingIsFree, about, || "it runs while its worker is paused".into());
        }
        if in_flight > concurrency {
            self.fail(now, Invariant::GateRespected, about, || {
                format!("{in_flight} calls of a worker are in flight, {concurrency} may be")
            });
        }
        let Some(destination) = slot.destination else { return };
        let gate = &mut self.gates.gates[destination];
        gate.in_flight += 1;
        let mut problem = None;
        if gate.in_flight > gate.settings.concurrency_max {
            problem = Some((Invariant::GateRespected, "more calls are in flight than may be"));
        }
        if let Some(rate) = gate.settings.rate {
            let per_ms = 1.0 / (rate.interval().as_secs_f64() * 1e3);
            let passed = (now - gate.filled_at) as f64;
            gate.tokens = (gate.tokens + passed * per_ms).min(f64::from(gate.settings.burst)) - 1.0;
            gate.filled_at = now;
            if gate.tokens < -0.01 {
                problem = Some((Invariant::GateRespected, "calls leave faster than the rate allows"));
            }
        }
        if now < gate.not_before {
            problem = Some((Invariant::GateRespected, "it runs before the destination wanted to be asked again"));
        }
        if !gate.is_closed {
            if now < gate.open_until {
                problem = Some((Invariant::GateRespected, "it runs while the breaker is open"));
            } else if gate.probe.is_some() {
                problem = Some((
                    Invariant::GateRespected,
                    "a second call goes out while the first one tries the destination",
                ));
            }
            gate.probe = Some(slot.job);
        }
        if gate.paused {
            problem = Some((Invariant::WaitingIsFree, "it runs while its destination is paused"));
        }
        if let Some((invariant, words)) = problem {
            self.fail(now, invariant, about, || words.into());
        }
    }

    fn lane_taken(&mut self, now: i64, slot: SimSlot) {
        if let Some(lane) = slot.lane_index() {
            if let Some(other) = self.gates.lanes[lane] {
                self.fail(now, Invariant::OneRunnerPerLane, About::Job(slot.job), || {
                    format!("it runs before the end of {other} is durable")
                });
            }
            self.gates.lanes[lane] = Some(slot.job);
        }
    }
}

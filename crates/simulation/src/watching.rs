//! The watch of a simulated node: alerts and response clocks, and whether every change is told once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sluice_domain::alert::signal::conditions;
use sluice_domain::alert::watch::{WatchCommand, commands};
use sluice_domain::alert::{Alert, AlertSettings, NoticeEvent, Signals};
use sluice_domain::job::JobState;
use sluice_domain::path::Path;
use sluice_domain::record::{EventSeq, NewEvent};
use sluice_domain::respond::{self, ClockStart, ResponseCommand, ResponseRule, ResponseState, escalation};
use sluice_domain::schedule::gate::PauseReason;
use sluice_domain::time::Time;
use sluice_ledger::{Acceptance, Page};

use super::coverage::Fault;
use super::invariants::Invariant;
use super::node::Waiter;
use super::observed::ObservedAccept;
use super::ops::{SimOp, SimReply};
use super::plan::WORKER_NAMES;
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// Between two looks of the node.
const LOOK_MS: i64 = 15_000;
/// Looks end this long after the last fault: a clock that stands still would keep them on.
const LOOKS_MS_MAX: i64 = 2 * 3_600_000;
/// Of so many events one starts a clock: most clocks of a world with faults end with an escalation, which is an event of its own.
const CLOCKS: u32 = 9;
/// Clocks that are looked at at once.
const DUE_MAX: u32 = 64;

/// Writes of a look that wait for the one before them.
pub(super) type WatchQueue = VecDeque<SimOp>;

/// What was told, observed in what became durable.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// How often each notice and each escalation was accepted, by its key.
    accepted: BTreeMap<String, u32>,
    is_planned: bool,
    /// States of the clocks.
    clocks: BTreeMap<EventSeq, ResponseState>,
}

/// The rule of the simulated flow: half of its clocks end with an effect, half with a job.
pub(super) fn response_rule(key: u32) -> ResponseRule {
    ResponseRule {
        within: Duration::from_secs(60),
        start: ClockStart::Receipt,
        warn_before: Duration::from_secs(30),
        age_max: Duration::from_secs(3_600),
        worker: Arc::from(WORKER_NAMES[0]),
        step: key.is_multiple_of(2).then(|| Arc::from("upsert")),
        fields: vec![Path::parse("who").expect("it is a path")],
        masked: true,
    }
}

/// The event of a sender with the clock of its flow.
pub(super) fn with_clock(event: NewEvent, key: u32) -> NewEvent {
    if !key.is_multiple_of(CLOCKS) {
        return event;
    }
    let response = response_rule(key).start(event.received_at, None, &event.jobs);
    NewEvent { response: response.map(Box::new), ..event }
}

impl Simulation {
    /// The node looks at itself.
    pub(super) fn watch(&mut self) {
        self.checker.told.is_planned = false;
        if !self.has_settled() || self.is_watch_needed() && self.healed_for() < LOOKS_MS_MAX {
            self.plan_watch();
        }
        let Some(node) = &self.node else { return };
        if !node.watching.is_empty() || node.is_watch_waiting {
            return;
        }
        let (now, steady) = (self.ledger_time(), node.steady(self.now));
        let view = node.scheduler.view(steady);
        let open = view.gates.iter().filter(|(_, gate)| gate.breaker != "closed");
        let rejected = view.gates.iter().filter(|(_, gate)| gate.paused == Some(PauseReason::Auth));
        let unknown = self.store.job_counts().into_iter().filter(|(state, _)| *state == JobState::Unknown);
        let signals = Signals {
            open_breakers: open.map(|(name, _)| (name.clone(), None)).collect(),
            unauthorized: rejected.map(|(name, _)| name.clone()).collect(),
            unknown_outcomes: unknown.map(|(_, count)| count).sum(),
            ..Signals::default()
        };
        let settings = AlertSettings::default();
        let mut writes = WatchQueue::new();
        for command in commands(&self.store.alerts(), &conditions(&signals, &settings.rules), &settings.rules, now) {
            writes.push_back(match command {
                WatchCommand::Keep(changes) => SimOp::KeepAlerts(changes),
                WatchCommand::Notify(notice) => self.accept_notice(&notice.event(&settings), now),
            });
        }
        for due in self.store.due_responses(now, DUE_MAX) {
            for command in respond::commands(&due, true, now) {
                writes.push_back(match command {
                    ResponseCommand::Keep(change) => SimOp::KeepResponse(change),
                    ResponseCommand::Escalate(clock) => {
                        self.accept_notice(&escalation(&clock, &response_rule(0), None, now), now)
                    }
                });
            }
        }
        if let Some(node) = &mut self.node {
            node.watching = writes;
        }
        self.write_next_watch();
    }

    /// Looks end with everything else, and begin again with a late event.
    fn plan_watch(&mut self) {
        if !std::mem::replace(&mut self.checker.told.is_planned, true) {
            self.plan_in(LOOK_MS, SimEvent::Watch);
        }
    }

    fn accept_notice(&self, notice: &NoticeEvent, now: Time) -> SimOp {
        let revision = &self.plan.active().run;
        SimOp::Accept(Box::new(notice.accept(&revision.config, &revision.name, now)))
    }

    /// Whether something is still to be told.
    fn is_watch_needed(&self) -> bool {
        let clocks = self.store.responses(Page { after: None, limit: u32::MAX });
        let is_waiting = clocks.iter().any(|clock| clock.state == ResponseState::Waiting);
        self.store.alerts().iter().any(Alert::is_to_notify) || is_waiting
    }

    /// A clock whose time to tell has come, and whose state says that nobody was told.
    fn untold_clock(&self) -> Option<EventSeq> {
        let clocks = self.store.responses(Page { after: None, limit: u32::MAX });
        let now = self.ledger_time();
        clocks
            .iter()
            .find(|clock| clock.state == ResponseState::Waiting && clock.risk_at <= now)
            .map(|clock| clock.event)
    }

    fn write_next_watch(&mut self) {
        let next = self.node.as_mut().and_then(|node| node.watching.pop_front());
        if let Some(node) = &mut self.node {
            node.is_watch_waiting = next.is_some();
        }
        if let Some(op) = next {
            self.submit(op, Waiter::Watch);
        }
    }

    /// A write of a look is durable; after one that failed the rest is dropped, and the next look makes it.
    pub(super) fn watched(&mut self, reply: Option<SimReply>) {
        if let (Some(node), true) = (&mut self.node, reply.is_none()) {
            node.watching.clear();
        }
        self.write_next_watch();
    }

    /// An event that the node itself accepted is durable.
    pub(super) fn observe_notice(&mut self, event: &ObservedAccept, acceptance: &Acceptance) {
        if event.has_clock {
            self.plan_watch();
        }
        let (Some((event_type, key_text)), Acceptance::Accepted(_)) = (&event.notice, acceptance) else { return };
        // The parts of a key that name what is told.
        let parts = if event_type == respond::EVENT_TYPE { 2 } else { 5 };
        let key = key_text.split(':').take(parts).collect::<Vec<_>>().join(":");
        self.happened(match parts {
            2 => Fault::Escalated,
            // The changes of an alert are numbered from one: it fires with the odd ones.
            _ if key.split(':').nth(3).and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n % 2 == 1) => {
                Fault::AlertFired
            }
            _ => Fault::AlertRecovered,
        });
        let times = self.checker.told.accepted.entry(key.clone()).or_default();
        *times += 1;
        if *times > 1 {
            let detail = || format!("{key} was told twice");
            self.checker.fail(self.now, Invariant::ToldOnce, About::Nothing, detail);
        }
    }

    /// States of alerts are durable: what is recorded as notified was accepted.
    pub(super) fn observe_alerts(&mut self) {
        for alert in self.store.alerts().into_iter().filter(|alert| alert.notified > 0) {
            let key = format!("alert:{}:{}:{}:", alert.kind.name(), alert.subject, alert.notified);
            let found = self.checker.told.accepted.range(key.clone()..).next();
            if !found.is_some_and(|(other, _)| other.starts_with(&key)) {
                let detail = || format!("{key} is recorded as notified, and nobody was told");
                self.checker.fail(self.now, Invariant::NothingUntold, About::Nothing, detail);
            }
        }
    }

    /// The state of a clock is durable: a person was told before.
    pub(super) fn observe_response(&mut self, clock: &respond::ResponseClock) {
        match clock.state {
            ResponseState::Met => self.happened(Fault::ResponseMet),
            ResponseState::Missed => self.happened(Fault::ResponseMissed),
            _ => {}
        }
        let before = self.checker.told.clocks.insert(clock.event, clock.state).unwrap_or(ResponseState::Waiting);
        let is_told = matches!(clock.state, ResponseState::AtRisk | ResponseState::Late);
        let key = format!("response:{}", clock.event_id);
        if before == ResponseState::Waiting && is_told && !self.checker.told.accepted.contains_key(&key) {
            let detail = || format!("{key} is recorded as told, and nobody was");
            self.checker.fail(self.now, Invariant::NothingUntold, About::Nothing, detail);
        }
    }

    /// In the end everything was told.
    pub(super) fn check_told(&mut self) {
        let untold = self.store.alerts().into_iter().find(Alert::is_to_notify);
        if let Some(alert) = untold {
            let detail = || format!("a change of {} {} was never notified", alert.kind.name(), alert.subject);
            self.checker.fail(self.now, Invariant::NothingUntold, About::Nothing, detail);
        }
        if let Some(event) = self.untold_clock() {
            let detail = || format!("event {event} was never told to a person");
            self.checker.fail(self.now, Invariant::NothingUntold, About::Nothing, detail);
        }
    }
}

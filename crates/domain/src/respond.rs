//! Response clocks: a deadline from an event to the effect that answers it, and a second path to a person when it is at risk.
//!
//! A clock starts with its event, in the same transaction. When the effect is not done some time before the deadline, an event of type
//! `response.at_risk` is accepted, which playbooks handle: once, because its key is the event's. The first path continues.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::alert::NoticeEvent;
use crate::event::EventId;
use crate::job::{EffectState, JobId, JobState};
use crate::mask;
use crate::mutant::Mutant;
use crate::path::Path;
use crate::record::{EventSeq, NewJob};
use crate::time::Time;
use crate::unit::format_duration;

/// Type of the events that tell a person; a playbook with `on: response.at_risk` sends them.
pub const EVENT_TYPE: &str = "response.at_risk";
/// Between two looks at a clock whose deadline is over: as long as it has been over, within these bounds. A long outage with many
/// clocks must not keep the ledger busy.
const LATE_INTERVAL_MIN: Duration = Duration::from_secs(10);
const LATE_INTERVAL_MAX: Duration = Duration::from_secs(15 * 60);
/// A clock that nobody answers is given up after this.
const GIVEN_UP: Duration = Duration::from_secs(7 * 86_400);

/// `respond_within` of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseRule {
    pub within: Duration,
    pub start: ClockStart,
    /// How long before the deadline a person is told.
    pub warn_before: Duration,
    /// Events that are older when they are accepted have no clock: imports and late deliveries of old events.
    pub age_max: Duration,
    /// Worker whose job answers the event.
    pub worker: Arc<str>,
    /// Step whose effect is the answer; `None`: the whole job.
    pub step: Option<Arc<str>>,
    /// Fields of the event that the person is told.
    pub fields: Vec<Path>,
    /// Whether personal data in these fields is masked.
    pub masked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockStart {
    /// When the request was received.
    Receipt,
    /// By the sender's clock; receipt where the event has no such time, or one in the future.
    Occurred,
}

/// A clock that starts with its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewResponse {
    pub worker: Arc<str>,
    pub step: Option<Arc<str>>,
    /// When a person is told.
    pub risk_at: Time,
    pub deadline: Time,
}

impl ResponseRule {
    /// The clock of an event with these jobs. `None` if the event is too old, or if no job of it answers. A deadline that is over at
    /// acceptance is a clock too: the person is told at once.
    pub fn start(&self, received_at: Time, occurred_at: Option<Time>, jobs: &[NewJob]) -> Option<NewResponse> {
        let from = match (self.start, occurred_at) {
            (ClockStart::Occurred, Some(occurred_at)) => occurred_at.min(received_at),
            _ => received_at,
        };
        let age = received_at.since(occurred_at.unwrap_or(received_at));
        if age > self.age_max || !jobs.iter().any(|job| job.worker == self.worker) {
            return None;
        }
        let deadline = from + self.within;
        let risk_at = deadline - self.warn_before;
        Some(NewResponse { worker: self.worker.clone(), step: self.step.clone(), risk_at, deadline })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResponseState {
    Waiting,
    /// A person was told, and the deadline is not over.
    AtRisk,
    /// A person was told, and the deadline is over.
    Late,
    /// Done before the deadline.
    Met,
    /// Done after the deadline.
    Missed,
    /// Nothing answers any more: the job was dropped, the clock was removed from the flow, or nobody answered for a week.
    GivenUp,
}

impl ResponseState {
    pub const ALL: [ResponseState; 6] = [
        ResponseState::Waiting,
        ResponseState::AtRisk,
        ResponseState::Late,
        ResponseState::Met,
        ResponseState::Missed,
        ResponseState::GivenUp,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ResponseState::Waiting => "waiting",
            ResponseState::AtRisk => "at_risk",
            ResponseState::Late => "late",
            ResponseState::Met => "met",
            ResponseState::Missed => "missed",
            ResponseState::GivenUp => "given_up",
        }
    }

    pub fn parse(word: &str) -> Option<ResponseState> {
        ResponseState::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether the clock still runs.
    pub fn is_open(self) -> bool {
        matches!(self, ResponseState::Waiting | ResponseState::AtRisk | ResponseState::Late)
    }
}

/// A clock as it is stored. It is removed with its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseClock {
    pub event: EventSeq,
    pub event_id: EventId,
    pub flow: Arc<str>,
    /// The job of its worker.
    pub job: JobId,
    pub worker: Arc<str>,
    pub step: Option<Arc<str>>,
    pub received_at: Time,
    pub risk_at: Time,
    pub deadline: Time,
    pub state: ResponseState,
    /// When the clock is looked at next.
    pub look_at: Time,
}

/// An event that wants an answer.
#[derive(Clone, Debug)]
pub struct AwaitedEvent {
    pub seq: EventSeq,
    pub id: EventId,
    pub flow: Arc<str>,
    /// The job of the worker that answers.
    pub job: JobId,
    pub received_at: Time,
}

impl ResponseClock {
    pub fn new(event: AwaitedEvent, new: &NewResponse) -> ResponseClock {
        let AwaitedEvent { seq, id, flow, job, received_at } = event;
        ResponseClock {
            event: seq,
            event_id: id,
            flow,
            job,
            worker: new.worker.clone(),
            step: new.step.clone(),
            received_at,
            risk_at: new.risk_at,
            deadline: new.deadline,
            state: ResponseState::Waiting,
            look_at: new.risk_at,
        }
    }
}

/// Whether the event of a clock was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Open,
    Done(Time),
    /// There is nothing that could answer any more.
    Gone,
}

impl Progress {
    /// From the job of the clock's worker, and the effect of its step where one is named. A job that ended without the effect, such
    /// as one whose policy denied it, has nothing left to do.
    pub fn of(job: Option<(JobState, Time)>, effect: Option<(EffectState, Time)>) -> Progress {
        match (job, effect) {
            (_, Some((EffectState::Applied, at))) => Progress::Done(at),
            (Some((JobState::Succeeded | JobState::Noop, at)), _) => Progress::Done(at),
            (None | Some((JobState::Dropped, _)), _) => Progress::Gone,
            (Some(_), _) => Progress::Open,
        }
    }
}

/// A clock with what became of its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueResponse {
    pub clock: ResponseClock,
    pub progress: Progress,
}

/// A clock after a look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseChange {
    pub clock: ResponseClock,
    /// Time from the start to the answer, for one that was answered.
    pub took: Option<Duration>,
}

/// Results that a change counts: that a person was told, and how the clock ended.
pub fn counted(before: ResponseState, after: ResponseState) -> impl Iterator<Item = &'static str> {
    let is_told = before == ResponseState::Waiting && matches!(after, ResponseState::AtRisk | ResponseState::Late);
    let told = is_told.then_some("escalated");
    told.into_iter().chain((before.is_open() && !after.is_open()).then_some(after.as_str()))
}

/// One write. The next one is made once this one is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseCommand {
    /// Accept the event that tells a person.
    Escalate(ResponseClock),
    Keep(ResponseChange),
}

/// What is written for a clock that is due. The person is told before the state is stored: after a crash between the two the event is
/// accepted again under the same key, which is a duplicate.
pub fn commands(due: &DueResponse, has_rule: bool, now: Time) -> Vec<ResponseCommand> {
    let DueResponse { clock, progress } = due;
    let change = |state: ResponseState, look_at: Time, took: Option<Duration>| {
        ResponseCommand::Keep(ResponseChange { clock: ResponseClock { state, look_at, ..clock.clone() }, took })
    };
    match progress {
        _ if !clock.state.is_open() => vec![],
        Progress::Done(at) => {
            let state = if *at <= clock.deadline { ResponseState::Met } else { ResponseState::Missed };
            vec![change(state, Time::NEVER, Some(at.since(clock.received_at)))]
        }
        Progress::Gone => vec![change(ResponseState::GivenUp, Time::NEVER, None)],
        Progress::Open if !has_rule || now.since(clock.deadline) > GIVEN_UP => {
            vec![change(ResponseState::GivenUp, Time::NEVER, None)]
        }
        Progress::Open if now < clock.risk_at => vec![],
        Progress::Open => {
            let is_late = now >= clock.deadline;
            let (state, look_at) = match is_late {
                true => {
                    let interval = now.since(clock.deadline).clamp(LATE_INTERVAL_MIN, LATE_INTERVAL_MAX);
                    (ResponseState::Late, now + interval)
                }
                false => (ResponseState::AtRisk, clock.deadline),
            };
            let keep = change(state, look_at, None);
            match clock.state {
                ResponseState::Waiting if Mutant::ResponseKeptBeforeEscalation.is_on() => {
                    vec![keep, ResponseCommand::Escalate(clock.clone())]
                }
                ResponseState::Waiting => vec![ResponseCommand::Escalate(clock.clone()), keep],
                _ => vec![keep],
            }
        }
    }
}

/// The event that tells a person. `event` is the event of the clock as expressions see it; `None` if its body is gone.
pub fn escalation(clock: &ResponseClock, rule: &ResponseRule, event: Option<&Value>, now: Time) -> NoticeEvent {
    let lead = lead(rule, event);
    let said: Vec<String> = lead.iter().map(|(name, value)| format!("{name}: {}", said(value))).collect();
    let id = clock.event_id.to_string();
    let left = match clock.deadline > now {
        true => format!("{} are left", format_duration(whole_seconds(clock.deadline.since(now)))),
        false => format!("the deadline was {} ago", format_duration(whole_seconds(now.since(clock.deadline)))),
    };
    let title = format!("No response yet to an event of {}: {left}", clock.flow);
    let mut lines = vec![format!("{title}.")];
    lines.extend((!said.is_empty()).then(|| said.join(", ")));
    lines.push(format!("Details: sluice events show {id}"));
    NoticeEvent {
        event_type: EVENT_TYPE,
        key_text: format!("response:{id}"),
        lane: format!("response:{id}"),
        occurred_at: None,
        attributes: json!({
            "flow": clock.flow,
            "worker": clock.worker,
            "about": id,
            "received_at": clock.received_at,
            "deadline": clock.deadline,
            "since": clock.risk_at.max(clock.received_at),
            "lead": lead,
            "state": "firing",
            "severity": "critical",
            "subject": clock.flow,
            "alias": format!("sluice:response:{id}"),
            "title": title,
            "text": lines.join("\n"),
        }),
        is_told: true,
    }
}

fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

/// The fields that the rule names, by the last part of their path.
fn lead(rule: &ResponseRule, event: Option<&Value>) -> Map<String, Value> {
    let found = rule.fields.iter().filter_map(|path| {
        let value = path.find(event?)?;
        let name = path.to_string();
        let name = name.rsplit('.').next().unwrap_or(&name).to_owned();
        let value = if rule.masked { mask::field(&name, value) } else { value.clone() };
        Some((name, value))
    });
    found.collect()
}

fn said(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const START: Time = Time(1_772_323_200_000);

    fn rule() -> ResponseRule {
        ResponseRule {
            within: 5 * MINUTE,
            start: ClockStart::Receipt,
            warn_before: MINUTE,
            age_max: 60 * MINUTE,
            worker: "to-crm".into(),
            step: None,
            fields: vec![Path::parse("last_name").unwrap(), Path::parse("email").unwrap()],
            masked: true,
        }
    }

    fn jobs() -> Vec<NewJob> {
        vec![NewJob::new("to-crm", "leads")]
    }

    fn clock() -> ResponseClock {
        let new = rule().start(START, None, &jobs()).unwrap();
        let (id, job, flow) = (EventId([1; 16]), JobId(9), "website".into());
        ResponseClock::new(AwaitedEvent { seq: 7, id, flow, job, received_at: START }, &new)
    }

    fn after(minutes: u32) -> Time {
        START + MINUTE * minutes
    }

    fn states(clock: &ResponseClock, progress: Progress, now: Time) -> Vec<&'static str> {
        let due = DueResponse { clock: clock.clone(), progress };
        let name = |command: &ResponseCommand| match command {
            ResponseCommand::Escalate(_) => "escalate",
            ResponseCommand::Keep(change) => change.clock.state.as_str(),
        };
        commands(&due, true, now).iter().map(name).collect()
    }

    #[test]
    fn person_is_told_once_when_the_deadline_is_at_risk() {
        let waiting = clock();
        assert_eq!((waiting.risk_at, waiting.deadline), (after(4), after(5)));
        assert!(states(&waiting, Progress::Open, after(3)).is_empty());
        assert_eq!(states(&waiting, Progress::Open, after(4)), ["escalate", "at_risk"]);
        let at_risk = ResponseClock { state: ResponseState::AtRisk, ..waiting.clone() };
        assert_eq!(states(&at_risk, Progress::Open, after(5)), ["late"]);
        let late = ResponseClock { state: ResponseState::Late, ..waiting.clone() };
        assert_eq!(states(&late, Progress::Open, after(6)), ["late"]);
        assert_eq!(states(&late, Progress::Open, after(5 + 7 * 1_440 + 1)), ["given_up"]);
        assert_eq!(states(&waiting, Progress::Open, after(9)), ["escalate", "late"], "the node was down");
    }

    #[test]
    fn late_clock_is_looked_at_less_and_less() {
        let mut clock = clock();
        let mut looks = 0;
        let mut now = clock.deadline;
        while now < clock.deadline + Duration::from_secs(86_400) {
            let due = DueResponse { clock: clock.clone(), progress: Progress::Open };
            let Some(ResponseCommand::Keep(change)) = commands(&due, true, now).pop() else { panic!() };
            clock = change.clock;
            assert!(clock.look_at > now);
            now = clock.look_at;
            looks += 1;
        }
        assert!(looks < 110, "{looks} looks in a day");
    }

    #[test]
    fn answered_event_is_met_or_missed_by_the_time_of_its_effect() {
        let waiting = clock();
        assert_eq!(states(&waiting, Progress::Done(after(5)), after(90)), ["met"], "looked at late");
        let late = ResponseClock { state: ResponseState::Late, ..waiting.clone() };
        assert_eq!(states(&late, Progress::Done(after(6)), after(7)), ["missed"]);
        assert_eq!(states(&waiting, Progress::Gone, after(4)), ["given_up"], "an operator dropped the job");
        let done = ResponseClock { state: ResponseState::Met, ..waiting };
        assert!(states(&done, Progress::Open, after(9)).is_empty(), "a replay starts no clock again");
    }

    #[test]
    fn removed_rule_ends_its_clocks_without_a_notice() {
        let due = DueResponse { clock: clock(), progress: Progress::Open };
        let [ResponseCommand::Keep(change)] = &commands(&due, false, after(4))[..] else { panic!() };
        assert_eq!(change.clock.state, ResponseState::GivenUp);
    }

    #[test]
    fn clock_starts_by_the_rule() {
        let rule = ResponseRule { start: ClockStart::Occurred, ..rule() };
        let start = |occurred: i64| {
            let occurred = Time(START.0 + occurred * 60_000);
            rule.start(START, Some(occurred), &jobs()).map(|new| new.deadline)
        };
        assert_eq!(start(-2), Some(after(3)));
        assert_eq!(start(-60), Some(Time(START.0 - 55 * 60_000)), "late on arrival: told at once");
        assert_eq!(start(-61), None, "old: an import");
        assert_eq!(start(30), Some(after(5)), "a clock of the sender that is ahead");
        assert_eq!(rule.start(START, None, &[NewJob::new("other", "leads")]), None, "no job answers it");
    }

    #[test]
    fn progress_follows_the_effect_or_the_job() {
        let at = START;
        assert_eq!(Progress::of(Some((JobState::Running, at)), Some((EffectState::Applied, at))), Progress::Done(at));
        assert_eq!(Progress::of(Some((JobState::Noop, at)), None), Progress::Done(at));
        assert_eq!(Progress::of(Some((JobState::Dead, at)), Some((EffectState::Intent, at))), Progress::Open);
        assert_eq!(Progress::of(Some((JobState::Unknown, at)), None), Progress::Open);
        assert_eq!(Progress::of(Some((JobState::Dropped, at)), None), Progress::Gone);
        assert_eq!(Progress::of(None, None), Progress::Gone);
    }

    #[test]
    fn lead_is_masked_unless_the_rule_says_otherwise() {
        let event = json!({ "last_name": "Lovelace", "email": "ada@example.com", "company": "Analytical" });
        let told = |rule: &ResponseRule| escalation(&clock(), rule, Some(&event), after(4)).attributes;
        let masked = told(&rule());
        let text = masked["text"].as_str().unwrap();
        assert!(!masked.to_string().contains("ada@") && !masked.to_string().contains("Lovelace"), "{masked}");
        assert!(text.starts_with("No response yet to an event of website: 1m are left."), "{text}");
        let plain = told(&ResponseRule { masked: false, ..rule() });
        assert_eq!(plain["lead"], json!({ "last_name": "Lovelace", "email": "ada@example.com" }));
        let again = escalation(&clock(), &rule(), None, after(9));
        assert_eq!(again.key_text, escalation(&clock(), &rule(), Some(&event), after(4)).key_text);
    }
}

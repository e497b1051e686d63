//! Destinations with faults: what becomes of a call, and what the destination shows afterwards.

use sluice_domain::hash::Set;
use sluice_domain::job::EffectKey;
use sluice_domain::outcome::EffectClass;
use sluice_domain::random::Random;

use super::coverage::Fault;
use super::fault_rates::FaultRates;
use super::plan::{DESTINATIONS, STRAGGLER_HORIZON, VISIBILITY_TIMEOUT_MS};

/// How an attempt ends, as the connector sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Noop,
    Refused,
    Away,
    /// Asks everybody to wait, for so many seconds if it says so.
    Throttled(Option<u32>),
    ServerError,
    Cut,
    /// Nothing came within the time that an attempt may take.
    TimedOut,
    Conflict,
    Rejected,
    Unauthorized,
    /// The connector panicked after the bytes had left.
    Panicked,
}

/// What a read-back finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Present,
    Absent,
    Unreadable,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub answer: Answer,
    pub after_ms: i64,
    pub applied: bool,
    /// How long after it was given up the call is applied all the same.
    pub lands_after_ms: Option<i64>,
    pub fault: Option<Fault>,
}

/// What becomes of one call in a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub answer: Answer,
    pub applied: bool,
}

/// What becomes of the calls of one request.
#[derive(Debug)]
pub(super) struct Items {
    pub each: Vec<Item>,
    /// The request is answered as a whole, or not at all.
    pub is_whole: bool,
    pub fault: Option<Fault>,
}

/// How long after it was applied a destination may not show an effect yet. Two reads four seconds apart outlast it.
pub(super) const LAG_MS_MAX: u64 = 3_000;

/// How long after it was given up a call may still be applied.
const LATE_MS_MAX: u64 = STRAGGLER_HORIZON.as_millis() as u64;

/// One destination.
#[derive(Debug, Default)]
pub(super) struct Destination {
    /// Refuses every connection until then.
    pub down_until: i64,
    /// Goes up and down every three seconds until then.
    pub flaps_until: i64,
    /// Refuses the node's credentials until an operator replaces them.
    pub unauthorized: bool,
    /// Keys that it has seen, if it keeps them.
    keys: Set<EffectKey>,
}

#[derive(Debug, Default)]
pub(super) struct Destinations(pub [Destination; DESTINATIONS]);

impl Destinations {
    /// The key has expired at the destination.
    pub(crate) fn forget(&mut self, key: EffectKey) {
        for destination in &mut self.0 {
            destination.keys.remove(&key);
        }
    }
}

impl Destination {
    fn is_down(&self, now: i64) -> bool {
        now < self.down_until || (now < self.flaps_until && (now / 3_000) % 2 == 0)
    }

    /// Whether applying this changes anything here.
    pub(crate) fn apply(&mut self, class: EffectClass, key: EffectKey, shown: u16) -> bool {
        match class {
            EffectClass::Natural => shown == 0,
            EffectClass::Keyed | EffectClass::Transactional => self.keys.insert(key),
            EffectClass::Verifiable | EffectClass::Blind => true,
        }
    }

    /// Decides what becomes of a call.
    pub(crate) fn call(&self, now: i64, may_land_late: bool, rates: &FaultRates, random: &mut Random) -> Sent {
        let quick = 5 + random.below(200) as i64;
        let plain = |answer, applied, fault| Sent {
            answer,
            after_ms: quick,
            applied,
            lands_after_ms: None,
            fault: Some(fault),
        };
        if self.is_down(now) {
            return plain(Answer::Refused, false, Fault::CallRefused);
        }
        if self.unauthorized {
            return plain(Answer::Unauthorized, false, Fault::CallUnauthorized);
        }
        if !random.chance(rates.call_fails) {
            let fault = None;
            return if random.chance(rates.noop) {
                plain(Answer::Noop, false, Fault::CallNoop)
            } else {
                Sent { answer: Answer::Done, after_ms: quick, applied: true, lands_after_ms: None, fault }
            };
        }
        let silent = |applied, fault| Sent {
            answer: Answer::TimedOut,
            after_ms: VISIBILITY_TIMEOUT_MS,
            applied,
            lands_after_ms: None,
            fault: Some(fault),
        };
        match rates.pick_call(random) {
            0 => plain(Answer::Refused, false, Fault::CallRefused),
            1 => silent(false, Fault::CallTimedOutUnapplied),
            2 => silent(true, Fault::CallTimedOutApplied),
            3 => plain(Answer::Cut, true, Fault::CallCutApplied),
            4 => plain(Answer::ServerError, false, Fault::CallServerErrorUnapplied),
            5 => plain(Answer::ServerError, true, Fault::CallServerErrorApplied),
            6 => plain(Answer::Away, false, Fault::CallAway),
            7 => plain(Answer::Throttled(None), false, Fault::CallThrottled),
            8 => plain(Answer::Throttled(Some(1 + random.below(30) as u32)), false, Fault::CallThrottledUntil),
            9 => plain(Answer::Throttled(Some(86_400)), false, Fault::CallThrottledAbsurdly),
            10 => plain(Answer::Conflict, false, Fault::CallConflict),
            11 => plain(Answer::Rejected, false, Fault::CallRejected),
            12 => silent(true, Fault::CallSlow),
            13 if may_land_late => {
                let lands_after_ms = Some(random.below(LATE_MS_MAX) as i64);
                Sent { lands_after_ms, ..silent(false, Fault::CallLandsLate) }
            }
            13 => silent(false, Fault::CallTimedOutUnapplied),
            _ => plain(Answer::Panicked, random.chance(0.5), Fault::CallPanics),
        }
    }

    /// Decides what becomes of each call in a request. A destination that answers may refuse single calls; one whose answer is lost may have
    /// applied all, some or none of them.
    pub(crate) fn items(&self, sent: Sent, calls: usize, rates: &FaultRates, random: &mut Random) -> Items {
        let whole = Item { answer: sent.answer, applied: sent.applied };
        let mut items = Items { each: vec![whole; calls], is_whole: true, fault: None };
        if calls < 2 {
            return items;
        }
        match sent.answer {
            Answer::Done => {
                items.is_whole = false;
                for item in &mut items.each {
                    if random.chance(rates.call_fails) {
                        let answer = [Answer::Conflict, Answer::Rejected, Answer::Noop][random.below(3) as usize];
                        *item = Item { answer, applied: false };
                        items.fault = Some(Fault::BatchItemRefused);
                    }
                }
            }
            Answer::TimedOut | Answer::Cut | Answer::ServerError | Answer::Panicked
                if sent.applied && random.chance(0.5) =>
            {
                items.fault = Some(Fault::BatchPartlyApplied);
                items.each.iter_mut().for_each(|item| item.applied = random.chance(0.5));
            }
            Answer::Rejected => items.fault = Some(Fault::BatchRejected),
            _ => {}
        }
        items
    }

    /// Decides what a read-back finds of an effect that is there, and visible from then on; `None` if it is not.
    pub(crate) fn look(
        &self,
        now: i64,
        visible_at: Option<i64>,
        rates: &FaultRates,
        random: &mut Random,
    ) -> (Look, Option<Fault>) {
        if self.is_down(now) || self.unauthorized || random.chance(rates.read_fails) {
            return (Look::Unreadable, Some(Fault::ReadUnreadable));
        }
        match visible_at {
            Some(_) if random.chance(rates.lies) => (Look::Absent, Some(Fault::ReadLies)),
            Some(at) if at > now => (Look::Absent, Some(Fault::ReadLagging)),
            Some(_) => (Look::Present, None),
            None => (Look::Absent, None),
        }
    }
}

/// The kinds of call that [`Destination::call`] can make fail.
pub(super) const CALL_FAULTS: usize = 15;

//! What was promised to senders, kept apart from the ledger, and whether the ledger keeps it.

use std::collections::BTreeMap;

use sluice_domain::event::EventId;
use sluice_domain::hash::Set;
use sluice_domain::job::JobState;
use sluice_domain::ledger_clock::CORRECTION_MAX;
use sluice_domain::time::Time;
use sluice_ledger::{Acceptance, EventSeq};

use super::invariants::Invariant;
use super::node::Waiter;
use super::plan::KEY_LIFETIME;
use super::trace::About;
use super::world::Simulation;

/// What is known of one key.
#[derive(Clone, Copy, Debug, Default)]
struct ObservedKey {
    /// Who owns it by the answers and commits so far: its name, its generation and until when.
    owner: Option<(EventId, u32, Time)>,
    /// The newest id that a 202 named, and until when it must be the answer.
    answered: Option<EventId>,
}

/// What was promised.
#[derive(Debug, Default)]
pub(super) struct PromiseLog {
    pub requests: u64,
    keys: Vec<ObservedKey>,
    /// Answered since the last check, and when.
    promised: Vec<(u32, EventId, i64)>,
    pruned_at: i64,
    /// When each event that is there was really accepted.
    accepted_at: BTreeMap<EventSeq, i64>,
    accepted: u64,
    duplicates: u64,
    clashes: u64,
    jobs: u64,
    pruned_events: u64,
    pruned_jobs: u64,
}

impl PromiseLog {
    pub(crate) fn new_key(&mut self) {
        self.keys.push(ObservedKey::default());
    }

    pub(crate) fn answered(&mut self, now: i64, key: u32, id: EventId) {
        self.keys[key as usize].answered = Some(id);
        self.promised.push((key, id, now));
    }
}

impl Simulation {
    /// An event was accepted, or recognised as a repeat, and that is durable.
    pub(super) fn check_accept(&mut self, waiter: Waiter, received_at: Time, acceptance: &Acceptance) {
        let index = match waiter {
            Waiter::Sender(index) => index,
            _ => return,
        };
        let key = self.senders.webhooks[index as usize].key;
        let sight = self.promises.keys[key as usize];
        let about = About::Key(key);
        let now = self.now;
        match acceptance {
            Acceptance::Accepted(accepted) => {
                self.trace.note(now, "accepted", about, accepted.seq as u64);
                self.promises.accepted += 1;
                let generation = self.store.event_head(accepted.seq).map_or(0, |event| {
                    self.promises.jobs += u64::from(event.jobs);
                    event.generation
                });
                if let Some((_, before, expires_at)) = sight.owner {
                    if expires_at > received_at {
                        self.checker.fail(now, Invariant::OneOwnerPerKey, about, || {
                            "a repeat was accepted as a new event".into()
                        });
                    } else if generation != before + 1 {
                        self.checker.fail(now, Invariant::OneOwnerPerKey, about, || {
                            format!("generation {generation} follows generation {before}")
                        });
                    }
                }
                self.promises.keys[key as usize].owner = Some((accepted.id, generation, received_at + KEY_LIFETIME));
            }
            Acceptance::Duplicate(duplicate) => {
                self.trace.note(now, "duplicate", about, u64::from(duplicate.clash));
                self.promises.duplicates += 1;
                self.promises.clashes += u64::from(duplicate.clash);
                if sight.owner.is_none_or(|(id, _, _)| id != duplicate.id) {
                    self.checker.fail(now, Invariant::SameAnswer, about, || {
                        format!("a repeat is answered with {}, which does not own the key", duplicate.id)
                    });
                }
            }
            // Simulated requests carry no one-time proof.
            Acceptance::ProofUsed => {}
        }
    }

    /// An event is durable.
    pub(super) fn note_accepted(&mut self, seq: EventSeq) {
        self.promises.accepted_at.insert(seq, self.now);
    }

    /// However often the clock was corrected, the ledger's time advances by at most twice the true time and a bounded correction.
    fn check_pruned_age(&mut self) {
        let gone: Vec<EventSeq> = self.promises.accepted_at.keys().copied().collect();
        for seq in gone.into_iter().filter(|seq| self.store.event_head(*seq).is_none()).collect::<Vec<_>>() {
            let Some(accepted_at) = self.promises.accepted_at.remove(&seq) else { continue };
            let (age, keep) = (self.now - accepted_at, self.keep_ms());
            if 2 * age + (CORRECTION_MAX.as_millis() as i64) < keep {
                let detail = || format!("event {seq} was deleted after {age} ms, and is kept for {keep} ms");
                return self.checker.fail(self.now, Invariant::NothingPrunedEarly, About::Nothing, detail);
            }
        }
    }

    /// Events were removed: what was promised about them has been kept for long enough.
    pub(super) fn note_pruned(&mut self, events: u64, jobs: u64) {
        self.promises.pruned_at = self.now;
        self.promises.pruned_events += events;
        self.promises.pruned_jobs += jobs;
        if events > 0 {
            self.check_pruned_age();
            self.forget_pruned();
        }
        // A key whose event is gone may begin again from its first generation.
        for key in 0..self.promises.keys.len() {
            if let Some((id, _, expires_at)) = self.promises.keys[key].owner
                && expires_at < self.ledger_time()
                && self.store.find(id).is_none()
            {
                self.promises.keys[key].owner = None;
                self.promises.keys[key].answered = None;
            }
        }
    }

    /// After a crash and at the end: every 202 is in the ledger, under the id that it named.
    pub(super) fn check_promises(&mut self) {
        for (key, id, at) in std::mem::take(&mut self.promises.promised) {
            // It may have been pruned between its commit and its answer.
            let forgiven = self.promises.pruned_events > 0 && at < self.promises.pruned_at + 60_000;
            if self.store.find(id).is_none() && !forgiven {
                self.checker.fail(self.now, Invariant::AckMeansDurable, About::Key(key), || {
                    format!("202 was answered with {id}, and the ledger does not know it")
                });
            }
        }
    }

    /// At the end: the ledger by itself, and against what was counted on the way.
    pub(super) fn final_checks(&mut self) {
        self.check_promises();
        let now = self.now;
        let mut jobs_of_events = 0;
        let mut owners = Set::default();
        let mut events = 0;
        for event in self.store.event_heads() {
            events += 1;
            jobs_of_events += u64::from(event.jobs);
            let jobs = self.store.jobs_of(event.seq).filter(|job| job.seq == event.seq).count() as u32;
            if jobs != event.jobs {
                self.checker.fail(now, Invariant::AtomicAccept, About::Nothing, || {
                    format!("{} has {jobs} of its {} jobs", event.id, event.jobs)
                });
            }
            if !owners.insert((event.key_text, event.generation)) || self.store.find(event.id).is_none() {
                self.checker.fail(now, Invariant::OneOwnerPerKey, About::Nothing, || {
                    format!("the key {} has generation {} twice", event.key_text, event.generation)
                });
            }
        }
        let counts = self.store.job_counts();
        let jobs: u64 = counts.iter().map(|(_, count)| count).sum();
        let explained: u64 = counts.iter().filter(|(state, _)| !state.is_live()).map(|(_, count)| count).sum();
        let tallies = self.store.source_day_counts("");
        let tallied: (u64, u64, u64) = tallies
            .iter()
            .fold((0, 0, 0), |sum, tally| (sum.0 + tally.accepted, sum.1 + tally.duplicates, sum.2 + tally.clashes));
        let promises = &self.promises;
        let counted = (promises.accepted, promises.duplicates, promises.clashes);
        let balanced = jobs == jobs_of_events
            && jobs == explained
            && events + promises.pruned_events == tallied.0
            && (counted.0 <= tallied.0 && counted.1 <= tallied.1 && counted.2 <= tallied.2);
        if !balanced {
            let detail = format!(
                "{events} events and {} pruned, {jobs_of_events} jobs by event, {jobs} jobs, {explained} explained; tallied {tallied:?}, counted {counted:?}",
                promises.pruned_events
            );
            self.checker.fail(now, Invariant::NothingDropped, About::Nothing, || detail);
        }
        self.check_dead_letters();
        self.check_told();
        self.check_truth();
        self.check_every_step();
        self.check_edits();
    }

    fn check_dead_letters(&mut self) {
        let parked = |state| matches!(state, JobState::Dead | JobState::Unknown);
        let incomplete = self.store.jobs().filter(|job| parked(job.state)).find(|job| {
            let reason =
                job.failure.as_ref().is_some_and(|failure| !failure.code.is_empty() && !failure.message.is_empty());
            !reason || job.dead_letter_queue.is_none() || job.finished_at.is_none()
        });
        if let Some(id) = incomplete.map(|job| job.id) {
            self.checker.fail(self.now, Invariant::DeadLettersComplete, About::Job(id), || {
                "a dead letter lacks its reason, its queue or its time".into()
            });
        }
    }
}

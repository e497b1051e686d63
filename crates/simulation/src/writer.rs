//! The writer of a simulated node: writes gather, become durable together, are observed, and are replied to a moment later.

use sluice_domain::job::{JobId, JobState};
use sluice_domain::mutant::Mutant;
use sluice_domain::ops::{BeginResult, CappedBeginResult, ChargeResult};
use sluice_domain::record::AttemptKind;
use sluice_ledger::{Acceptance, ContactChange, Edited};

use super::checker::Attempt;
use super::coverage::Fault;
use super::gates::SimSlot;
use super::node::{Waiter, slot_of};
use super::observed::{Observed, ObservedSettle};
use super::ops::{SimOp, SimReply};
use super::trace::About;
use super::world::{SimEvent, Simulation};

/// Writes in one commit, at the most.
const BATCH_OPS_MAX: usize = 512;

impl Simulation {
    /// Submits a write.
    pub(super) fn submit(&mut self, op: SimOp, waiter: Waiter) {
        let Some(node) = &mut self.node else { return };
        node.queue.push_back((op, waiter));
        if !std::mem::replace(&mut node.committing, true) {
            self.plan_commit();
        }
    }

    fn plan_commit(&mut self) {
        let epoch = self.epoch;
        let flush = if self.random.chance(self.rates.commit_stalls) {
            self.happened(Fault::DiskStalls);
            1_000 + self.some_ms(30_000)
        } else {
            1 + self.some_ms(12)
        };
        self.plan_in(flush, SimEvent::Commit { epoch });
    }

    /// Commits the writes that have gathered.
    pub(super) fn commit(&mut self) {
        if self.crashes_at(Fault::CrashBeforeCommit) {
            return;
        }
        let Some(node) = &mut self.node else { return };
        let take = node.queue.len().min(BATCH_OPS_MAX);
        node.committing = node.queue.len() > take;
        if node.committing {
            self.plan_commit();
        }
        if self.random.chance(self.rates.commit_fails) {
            return self.fail_commit(take);
        }
        let mut accepted = Vec::new();
        for _ in 0..take {
            let Some((op, waiter)) = self.node.as_mut().and_then(|node| node.queue.pop_front()) else { break };
            let is_full = self.now < self.disk_full_for_all_until
                || (self.now < self.disk_full_until && matches!(op, SimOp::Accept(_)));
            let reply = if is_full { Err(op) } else { Ok(self.apply(op, waiter)) };
            if let Ok(SimReply::Accepted(Acceptance::Accepted(event))) = &reply {
                accepted.push(event.seq);
            }
            self.plan_reply(waiter, reply);
        }
        self.announce(&accepted);
        self.crashes_at(Fault::CrashAfterCommit);
    }

    /// A failed commit may be on the disk or not: the process must end.
    fn fail_commit(&mut self, take: usize) {
        let Some(node) = &mut self.node else { return };
        let batch: Vec<(SimOp, Waiter)> = node.queue.drain(..take).collect();
        let written = self.random.chance(0.5);
        let fault = if written { Fault::CommitInDoubt } else { Fault::CommitLost };
        if Mutant::FsyncErrorIgnored.is_on() {
            let before = self.store.clone();
            for (op, waiter) in batch {
                let at = self.ledger_time();
                let reply = op.apply(&mut self.store, at);
                self.plan_reply(waiter, Ok(reply));
            }
            self.store = before;
            return;
        }
        if written {
            for (op, waiter) in batch {
                self.apply(op, waiter);
            }
        }
        self.crash(fault);
    }

    /// An operation for which the disk had no room is given back.
    fn plan_reply(&mut self, waiter: Waiter, reply: Result<SimReply, SimOp>) {
        if matches!(waiter, Waiter::Nobody) {
            return;
        }
        let epoch = self.epoch;
        // Operators get their replies in the order of their commits.
        let after = if matches!(waiter, Waiter::Operator(_)) { 1 } else { self.some_ms(4) };
        let Some(node) = &mut self.node else { return };
        let slot = match node.free_replies.pop() {
            Some(slot) => {
                node.replies[slot as usize] = Some((waiter, reply));
                slot
            }
            None => {
                node.replies.push(Some((waiter, reply)));
                (node.replies.len() - 1) as u32
            }
        };
        self.plan_in(after, SimEvent::Reply { epoch, slot });
    }

    /// One write becomes durable, and is observed.
    pub(super) fn apply(&mut self, op: SimOp, waiter: Waiter) -> SimReply {
        if matches!(op, SimOp::Prune(_)) {
            self.check_promises();
        }
        let counts = matches!(op, SimOp::Prune(_)).then(|| (self.store.event_count(), self.job_count()));
        let observed = Observed::of(&op);
        let mut reply = self.make_durable(op);
        if Mutant::DuplicateAnsweredWithAnotherId.is_on()
            && let SimReply::Accepted(Acceptance::Duplicate(duplicate)) = &mut reply
        {
            duplicate.id.0[0] ^= 1;
        }
        if let (Observed::Prune(at), Some((events, jobs))) = (&observed, counts) {
            self.guards_pruned(*at);
            self.note_pruned(events - self.store.event_count(), jobs - self.job_count());
        }
        self.observe(observed, waiter, &reply);
        reply
    }

    fn job_count(&self) -> u64 {
        self.store.job_counts().iter().map(|(_, count)| count).sum()
    }

    fn observe(&mut self, observed: Observed, waiter: Waiter, reply: &SimReply) {
        match (observed, reply) {
            (Observed::Accept(event), SimReply::Accepted(acceptance)) => {
                self.check_accept(waiter, event.received_at, acceptance);
                self.observe_notice(&event, acceptance);
                if let Acceptance::Accepted(accepted) = acceptance {
                    self.note_accepted(accepted.seq);
                    self.note_person(accepted.seq, event.observation);
                    let jobs = self.store.event_head(accepted.seq).map_or(0, |event| i64::from(event.jobs));
                    let last = self.store.last_job().0;
                    (last - jobs + 1..=last).for_each(|job| self.look_at(JobId(job)));
                }
            }
            (Observed::Begin { job, key, at, is_capped }, reply) => {
                if is_capped {
                    self.check_cap(job, key, at, reply);
                }
                if matches!(reply, SimReply::Begun(CappedBeginResult::Begun(BeginResult::IdentityBusy))) {
                    self.coverage.fault(Fault::IdentityBusy);
                }
                self.look_at(job);
            }
            (Observed::Settle(settle), SimReply::Settled(result)) => self.observe_settle(&settle, *result),
            (Observed::Mark(mark), reply) => {
                self.check_mark(mark, reply);
                self.look_at(mark.job);
            }
            (Observed::Alerts, _) => self.observe_alerts(),
            (Observed::Response(clock), SimReply::Kept(true)) => self.observe_response(&clock),
            (Observed::Job(job), _) => self.look_at(job),
            (Observed::Merge { contact, into }, SimReply::ContactChanged(ContactChange::Done)) => {
                self.note_merge(contact, into);
            }
            (Observed::Split(contact), SimReply::ContactChanged(ContactChange::Done)) => self.note_split(contact),
            (Observed::Edit(edit), SimReply::Edited(Edited::Done { revision, jobs })) => {
                self.note_edit(*edit, *revision, jobs);
            }
            (Observed::Recheck, SimReply::Jobs(jobs)) => jobs.iter().for_each(|(job, _)| self.look_at_recheck(*job)),
            (Observed::Requeue, SimReply::Jobs(jobs)) => {
                for (job, _) in jobs {
                    self.look_at(*job);
                    if self.store.job(*job).is_some_and(|job| job.state == JobState::Dropped) {
                        self.marks_dropped(*job);
                    }
                }
            }
            _ => {}
        }
    }

    fn observe_settle(&mut self, settle: &ObservedSettle, result: ChargeResult) {
        let (job, attempt) = (settle.job, settle.attempt.as_ref());
        match (settle.charge, result) {
            (Some(charge), ChargeResult::Settled) => self.check_budget(job, charge, settle.at),
            (Some(_), ChargeResult::Exhausted) => self.coverage.fault(Fault::BudgetUsedUp),
            _ => {}
        }
        let of = |kind| attempt.filter(|attempt| attempt.kind == kind).map(|attempt| attempt.outcome);
        let label = attempt.map(|attempt| attempt.label.clone());
        let label = label.filter(|label| self.plan.facts(label).is_some());
        let attempt = Attempt {
            n: settle.n,
            label,
            call: of(AttemptKind::Call),
            read: of(AttemptKind::Read),
            settled: result != ChargeResult::Stale,
        };
        self.look_at_attempt(job, attempt);
        self.look_at(job);
        self.note_settlement(settle);
        if let Some(slot) = self.running_slot(job) {
            self.checker.gates.release_lane(slot);
        }
    }

    /// Coverage of what a settlement does.
    fn note_settlement(&mut self, settle: &ObservedSettle) {
        let label = settle.attempt.as_ref().map(|attempt| &attempt.label);
        if let Some(facts) = label.and_then(|label| self.plan.facts(label)) {
            let (undo, continues) = (facts.undo, facts.continues);
            if undo {
                self.coverage.fault(Fault::Undoing);
            }
            if continues && settle.state != JobState::Retrying && !settle.has_failed {
                self.coverage.fault(Fault::ContinuedAfterStep);
            }
        }
        if label.is_some_and(|label| label.starts_with("lines")) && settle.state == JobState::Queued {
            self.coverage.fault(Fault::ItemFollows);
        }
        self.trace.note(self.now, "settle", About::Job(settle.job), u64::from(settle.step));
    }

    fn running_slot(&self, id: JobId) -> Option<SimSlot> {
        Some(slot_of(self.node.as_ref()?.cache.get(&id)?, &self.plan))
    }

    /// A caller gets its reply, or its operation back if the disk was full.
    pub(super) fn reply(&mut self, slot: u32) {
        let Some(node) = &mut self.node else { return };
        node.free_replies.push(slot);
        let Some((waiter, reply)) = node.replies[slot as usize].take() else { return };
        let is_settled = matches!(reply, Ok(SimReply::Settled(ChargeResult::Settled)));
        match waiter {
            Waiter::Nobody => {}
            Waiter::Sender(webhook) => match reply {
                Ok(SimReply::Accepted(Acceptance::Accepted(accepted))) => self.answer_sender(webhook, accepted.id),
                Ok(SimReply::Accepted(Acceptance::Duplicate(first))) => self.answer_sender(webhook, first.id),
                _ => self.coverage.fault(Fault::SenderTurnedAway),
            },
            Waiter::Run(run) => self.replied_to_run(run, reply),
            Waiter::Reroute(job) => self.rerouted(job, is_settled),
            Waiter::Postpone(job) => self.postponed(job, is_settled),
            Waiter::Charge(destination) => self.charged(destination, reply.ok()),
            Waiter::Operator(act) => self.acted(act, reply.ok()),
            Waiter::Watch => self.watched(reply.ok()),
        }
    }
}

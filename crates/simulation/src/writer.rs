//! The writer of a simulated node: writes gather, become durable together, are observed, and are replied to a moment later.

use sluice_domain::job::{JobId, JobState};
use sluice_domain::mutant::Mutant;
use sluice_domain::ops::ChargeResult;
use sluice_domain::record::AttemptKind;
use sluice_domain::run::Settle;
use sluice_ledger::{Acceptance, ContactChange};

use super::checker::Attempt;
use super::coverage::Fault;
use super::gates::SimSlot;
use super::node::{Waiter, slot_of};
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
            let reply = (!is_full).then(|| self.apply(op, waiter));
            if let Some(SimReply::Accepted(Acceptance::Accepted(event))) = &reply {
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
                self.plan_reply(waiter, Some(reply));
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

    fn plan_reply(&mut self, waiter: Waiter, reply: Option<SimReply>) {
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
        let observed = op.clone();
        let mut reply = self.make_durable(op);
        if Mutant::DuplicateAnsweredWithAnotherId.is_on()
            && let SimReply::Accepted(Acceptance::Duplicate(duplicate)) = &mut reply
        {
            duplicate.id.0[0] ^= 1;
        }
        self.observe(&observed, waiter, &reply);
        if let (SimOp::Prune(prune), Some((events, jobs))) = (&observed, counts) {
            self.guards_pruned(prune.at);
            self.note_pruned(events - self.store.event_count(), jobs - self.job_count());
        }
        reply
    }

    fn job_count(&self) -> u64 {
        self.store.job_counts().iter().map(|(_, count)| count).sum()
    }

    fn observe(&mut self, op: &SimOp, waiter: Waiter, reply: &SimReply) {
        match (op, reply) {
            (SimOp::Accept(event), SimReply::Accepted(acceptance)) => {
                self.check_accept(waiter, event.received_at, acceptance);
                self.observe_notice(event, acceptance);
                if let Acceptance::Accepted(accepted) = acceptance {
                    self.note_accepted(accepted.seq);
                    self.note_person(accepted.seq, event.observation.as_deref());
                    let jobs = self.store.event_head(accepted.seq).map_or(0, |event| i64::from(event.jobs));
                    let last = self.store.last_job().0;
                    (last - jobs + 1..=last).for_each(|job| self.look_at(JobId(job)));
                }
            }
            (SimOp::Begin(begin, caps), reply) => {
                if !caps.is_empty() {
                    self.check_cap(begin.job, begin.key, begin.at, reply);
                }
                self.look_at(begin.job);
            }
            (SimOp::Settle(settle), SimReply::Settled(result)) => self.observe_settle(settle, *result),
            (SimOp::SetMark(mark), reply) => {
                self.check_mark(mark, reply);
                self.look_at(mark.result.job);
            }
            (SimOp::KeepAlerts(_), _) => self.observe_alerts(),
            (SimOp::KeepResponse(change), SimReply::Kept(true)) => self.observe_response(&change.clock),
            (SimOp::RecordStep(result), _) => self.look_at(result.job),
            (SimOp::Skip(skip), _) => self.look_at(skip.job),
            (SimOp::RequestApproval(request), _) => self.look_at(request.job),
            (SimOp::MergeContacts(merge), SimReply::ContactChanged(ContactChange::Done)) => {
                self.note_merge(merge.contact, merge.into);
            }
            (SimOp::SplitContact(split), SimReply::ContactChanged(ContactChange::Done)) => {
                self.note_split(split.contact)
            }
            (SimOp::Recheck(_), SimReply::Jobs(jobs)) => jobs.iter().for_each(|(job, _)| self.look_at_recheck(*job)),
            (SimOp::Replay(_) | SimOp::Resolve(_) | SimOp::Drop(_), SimReply::Jobs(jobs)) => {
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

    fn observe_settle(&mut self, settle: &Settle, result: ChargeResult) {
        let settlement = &settle.settlement;
        let (job, attempt) = (settlement.job, settlement.attempt.as_ref());
        match (&settle.charge, result) {
            (Some(charge), ChargeResult::Settled) => self.check_budget(job, charge, settlement.at),
            (Some(_), ChargeResult::Exhausted) => self.coverage.fault(Fault::BudgetUsedUp),
            _ => {}
        }
        let of = |kind| attempt.filter(|attempt| attempt.kind == kind).map(|attempt| attempt.outcome);
        let label = attempt.map(|attempt| attempt.step_id.clone());
        let label = label.filter(|label| self.plan.facts(label).is_some());
        let attempt = Attempt {
            n: settlement.n,
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

    /// Coverage of what a settlement does, and the spread of retries.
    fn note_settlement(&mut self, settle: &Settle) {
        let next = &settle.settlement.next;
        let label = settle.settlement.attempt.as_ref().map(|attempt| attempt.step_id.clone());
        if let Some(facts) = label.as_ref().and_then(|label| self.plan.facts(label)) {
            let (undo, continues) = (facts.undo, facts.continues);
            if undo {
                self.coverage.fault(Fault::Undoing);
            }
            if continues && next.state != JobState::Retrying && next.failure.is_none() {
                self.coverage.fault(Fault::ContinuedAfterStep);
            }
        }
        if label.is_some_and(|label| label.starts_with("lines")) && next.state == JobState::Queued {
            self.coverage.fault(Fault::ItemFollows);
        }
        self.trace.note(self.now, "settle", About::Job(settle.settlement.job), u64::from(next.step));
    }

    fn running_slot(&self, id: JobId) -> Option<SimSlot> {
        Some(slot_of(self.node.as_ref()?.cache.get(&id)?, &self.plan))
    }

    /// A caller gets its reply; `None` means that the disk was full.
    pub(super) fn reply(&mut self, slot: u32) {
        let Some(node) = &mut self.node else { return };
        node.free_replies.push(slot);
        let Some((waiter, reply)) = node.replies[slot as usize].take() else { return };
        match waiter {
            Waiter::Nobody => {}
            Waiter::Sender(webhook) => match reply {
                Some(SimReply::Accepted(Acceptance::Accepted(accepted))) => self.answer_sender(webhook, accepted.id),
                Some(SimReply::Accepted(Acceptance::Duplicate(first))) => self.answer_sender(webhook, first.id),
                _ => self.coverage.fault(Fault::SenderTurnedAway),
            },
            Waiter::Run(run) => self.replied_to_run(run, reply),
            Waiter::Reroute(job) => {
                let written = matches!(reply, Some(SimReply::Settled(ChargeResult::Settled)));
                self.rerouted(job, written);
            }
            Waiter::Operator(act) => self.acted(act, reply),
            Waiter::Watch => self.watched(reply),
        }
    }
}

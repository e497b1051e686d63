//! The writer of a node: operations gather, become durable together, and are looked at; who asked hears of it a moment later.

use sluice_domain::job::{JobId, JobState};
use sluice_domain::mutant::Mutant;
use sluice_ledger::memory::{Op, Reply};

use super::checker::Attempt;
use super::coverage::Fault;
use super::gates::SimSlot;
use super::node::{Waiter, slot};
use super::promises::Mark;
use super::world::{SimEvent, Simulation};

/// Operations in one commit, at the most.
const BATCH_OPS_MAX: usize = 512;
impl Simulation {
    /// Hands an operation to the writer.
    pub(super) fn submit(&mut self, op: Op, waiter: Waiter) {
        let Some(node) = &mut self.node else { return };
        node.queue.push_back((op, waiter));
        if !std::mem::replace(&mut node.committing, true) {
            self.plan_commit();
        }
    }

    fn plan_commit(&mut self) {
        let epoch = self.epoch;
        let flush = if self.random.chance(self.weather.commit_stalls) {
            self.happened(Fault::DiskStalls);
            1_000 + self.some_ms(30_000)
        } else {
            1 + self.some_ms(12)
        };
        self.plan_in(flush, SimEvent::Commit { epoch });
    }

    /// The writer commits what has gathered.
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
        if self.random.chance(self.weather.commit_fails) {
            return self.fail_commit(take);
        }
        let mut fresh = Vec::new();
        for _ in 0..take {
            let Some((op, waiter)) = self.take_op() else { break };
            let is_full = self.now < self.disk_full_for_all_until
                || (self.now < self.disk_full_until && matches!(op, Op::Accept(_)));
            let reply = match (is_full, op, waiter) {
                (false, op, _) => Some(self.apply(op, waiter)),
                (true, Op::Settle(settlement), Waiter::Settle(run)) => {
                    self.give_back(run, settlement);
                    None
                }
                (true, Op::SettleWithBudget(within), Waiter::Settle(run)) => {
                    self.give_back(run, Box::new(within.0));
                    None
                }
                (true, ..) => None,
            };
            if let Some(Reply::Accepted(accepted)) = &reply {
                fresh.push(accepted.seq);
            }
            self.plan_reply(waiter, reply);
        }
        self.announce(&fresh);
        self.crashes_at(Fault::CrashAfterCommit);
    }

    /// The first operation that waits for the writer.
    fn take_op(&mut self) -> Option<(Op, Waiter)> {
        self.node.as_mut()?.queue.pop_front()
    }

    /// Nobody knows whether a failed commit is on the disk: the process must end.
    fn fail_commit(&mut self, take: usize) {
        let Some(node) = &mut self.node else { return };
        let batch: Vec<(Op, Waiter)> = node.queue.drain(..take).collect();
        let written = self.random.chance(0.5);
        let fault = if written { Fault::CommitInDoubt } else { Fault::CommitLost };
        if Mutant::FsyncErrorIgnored.is_on() {
            let before = self.store.clone();
            for (op, waiter) in batch {
                let reply = self.store.apply(self.wall(), op);
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

    fn plan_reply(&mut self, waiter: Waiter, reply: Option<Reply>) {
        if matches!(waiter, Waiter::Nobody) {
            return;
        }
        let epoch = self.epoch;
        // Acts of people hear of their commits in their order.
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

    /// One operation becomes durable, and is looked at.
    pub(super) fn apply(&mut self, op: Op, waiter: Waiter) -> Reply {
        if matches!(op, Op::Prune(_)) {
            self.check_promises();
        }
        let mark = Mark::of(&op, self);
        let mut reply = self.make_durable(op);
        match mark {
            Mark::Accept { received_at } => {
                if Mutant::DuplicateAnsweredWithAnotherId.is_on()
                    && let Reply::Duplicate(duplicate) = &mut reply
                {
                    duplicate.id.0[0] ^= 1;
                }
                self.check_accept(waiter, received_at, &reply);
                if let Reply::Accepted(accepted) = &reply {
                    let jobs = self.store.event_head(accepted.seq).map_or(0, |event| i64::from(event.jobs));
                    let last = self.store.last_job().0;
                    (last - jobs + 1..=last).for_each(|job| self.look_at(JobId(job)));
                }
            }
            Mark::Begin { job } => self.look_at(JobId(job)),
            Mark::Inside { job } => self.look_at(JobId(job)),
            Mark::Set { job, key, at, expires_at } => {
                self.check_mark(JobId(job), key, at, expires_at, &reply);
                self.look_at(JobId(job));
            }
            Mark::Capped { job, key, at } => {
                self.check_cap(JobId(job), key, at, &reply);
                self.look_at(JobId(job));
            }
            Mark::Settle { job, n, step, call, read, drawn } => {
                let settled = matches!(reply, Reply::Settled | Reply::Exhausted);
                match (drawn, &reply) {
                    (Some(drawn), Reply::Settled) => self.check_budget(JobId(job), drawn),
                    (Some(_), Reply::Exhausted) => self.coverage.fault(Fault::BudgetUsedUp),
                    _ => {}
                }
                self.look_at_attempt(JobId(job), Attempt { n, step, call, read, settled });
                self.look_at(JobId(job));
                if let Some(slot) = self.running_slot(JobId(job)) {
                    self.checker.gates.release_lane(slot);
                }
            }
            Mark::Jobs => {
                if let Reply::Jobs(jobs) = &reply {
                    for (job, _) in jobs {
                        self.look_at(*job);
                        if self.store.job(*job).is_some_and(|job| job.state == JobState::Dropped) {
                            self.marks_dropped(*job);
                        }
                    }
                }
            }
            Mark::Prune { events, jobs, at } => {
                self.guards_pruned(at);
                let left: u64 = self.store.job_counts().iter().map(|(_, count)| count).sum();
                self.note_pruned(events - self.store.event_count(), jobs - left);
            }
            Mark::Other => {}
        }
        reply
    }

    fn running_slot(&self, id: JobId) -> Option<SimSlot> {
        let (job, place) = self.node.as_ref()?.held.get(&id)?;
        Some(slot(job, *place))
    }

    /// Somebody hears from the writer. `None` means that there was no room.
    pub(super) fn reply(&mut self, slot: u32) {
        let Some(node) = &mut self.node else { return };
        node.free_replies.push(slot);
        let Some((waiter, reply)) = node.replies[slot as usize].take() else { return };
        match waiter {
            Waiter::Nobody => {}
            Waiter::Sender(webhook) => match reply {
                Some(Reply::Accepted(accepted)) => self.answer_sender(webhook, accepted.id),
                Some(Reply::Duplicate(duplicate)) => self.answer_sender(webhook, duplicate.id),
                _ => self.coverage.fault(Fault::SenderTurnedAway),
            },
            Waiter::Begin(run) => self.begun(run, reply),
            Waiter::Settle(run) => self.settled(run, reply),
            Waiter::Inside(run) => self.inside(run, reply),
            Waiter::Operator(act) => self.acted(act, reply),
        }
    }
}

//! Places under caps, consent, suppression, questions and safe mode.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_domain::approval::{ApprovalId, ApprovalState, EXPIRY};
use sluice_domain::job::{EffectKey, EffectState};
use sluice_domain::key::KeyDigest;
use sluice_domain::mutant::Mutant;
use sluice_domain::policy::{CapReservation, ContactFacts};
use sluice_domain::time::Time;

use super::{EffectRow, Store};
use crate::guard::{
    ApprovalFilter, ApprovalRecord, DecideApproval, Decided, GuardOp, GuardReply, RequestApproval, SafeModeRecord,
    SetConsent, SetSafeMode, Skip, Suppress, SuppressionRecord, Unsuppress,
};
use crate::op::{Begin, Reply};
use crate::{BeginResult, Page};

/// Whose effects are counted together.
type Counted = (Arc<str>, Arc<str>, KeyDigest);

/// What the guards remember.
#[derive(Clone, Debug, Default)]
pub(super) struct Guards {
    uses: BTreeMap<Counted, BTreeMap<EffectKey, Use>>,
    consents: BTreeMap<(KeyDigest, Arc<str>), (bool, Time)>,
    suppressed: BTreeMap<(KeyDigest, String), SuppressionRecord>,
    approvals: Vec<ApprovalRecord>,
    safe_modes: BTreeMap<Option<String>, SafeModeRecord>,
}

#[derive(Clone, Copy, Debug)]
struct Use {
    at: Time,
    until: Time,
}

fn counted(reserve: &CapReservation) -> Counted {
    (reserve.policy.clone(), reserve.channel.clone(), reserve.contact)
}

impl Store {
    pub(super) fn guard(&mut self, op: GuardOp) -> GuardReply {
        match op {
            GuardOp::BeginWithin(begin, caps) => self.begin_within(*begin, &caps),
            GuardOp::Skip(skip) => self.skip(*skip),
            GuardOp::Consent(consent) => self.consent(consent),
            GuardOp::Suppress(suppress) => self.suppress(suppress),
            GuardOp::Release(release) => self.release(&release),
            GuardOp::Ask(ask) => self.ask(*ask),
            GuardOp::Decide(decide) => GuardReply::Decided(self.decide(&decide)),
            GuardOp::SafeMode(set) => self.set_safe_mode(set),
        }
    }

    fn begin_within(&mut self, begin: Begin, caps: &[CapReservation]) -> GuardReply {
        let Some(job) = self.jobs.get(&begin.job) else { return GuardReply::Begun(BeginResult::Stale) };
        let current = job.record.state.is_live() && job.record.attempts_total + 1 == begin.n;
        let done = job.effects.iter().any(|effect| effect.begin.key == begin.key && effect.state.is_final());
        if current && !done {
            for (place, cap) in caps.iter().enumerate() {
                let held = self.guards.uses.get(&counted(cap)).is_some_and(|uses| uses.contains_key(&begin.key));
                if !held
                    && !Mutant::CapIgnored.is_on()
                    && self.places_taken(cap, Some(begin.key), begin.at) >= u64::from(cap.cap.max)
                {
                    return GuardReply::Refused(place);
                }
            }
            for cap in caps {
                let uses = self.guards.uses.entry(counted(cap)).or_default();
                let until = begin.at + cap.cap.window;
                let taken = uses.entry(begin.key).or_insert(Use { at: begin.at, until });
                taken.until = taken.until.max(until);
            }
        }
        GuardReply::Begun(match self.begin(begin) {
            Reply::Begun => BeginResult::Go,
            Reply::AlreadyApplied => BeginResult::AlreadyApplied,
            _ => BeginResult::Stale,
        })
    }

    /// An effect that surely did not happen gives its places back.
    pub(super) fn give_back(&mut self, key: EffectKey) {
        for uses in self.guards.uses.values_mut() {
            uses.remove(&key);
        }
    }

    pub(super) fn prune_guards(&mut self, now: Time, limit: usize) -> usize {
        let mut pruned = 0;
        for uses in self.guards.uses.values_mut() {
            let old: Vec<EffectKey> =
                uses.iter().filter(|(_, taken)| taken.until <= now).map(|(key, _)| *key).take(limit - pruned).collect();
            pruned += old.len();
            uses.retain(|key, _| !old.contains(key));
        }
        self.guards.uses.retain(|_, uses| !uses.is_empty());
        self.guards.approvals.retain(|approval| self.jobs.get(&approval.job).is_some());
        pruned
    }

    fn skip(&mut self, skip: Skip) -> GuardReply {
        let Some(job) = self.jobs.get_mut(&skip.job) else { return GuardReply::Stale };
        if !job.record.state.is_live() || job.record.attempts_total != skip.n {
            return GuardReply::Stale;
        }
        let key = skip.key;
        match job.effects.iter_mut().find(|effect| effect.begin.key == key) {
            Some(effect) if effect.state.is_final() => {}
            Some(effect) => {
                (effect.state, effect.last_at, effect.result) =
                    (EffectState::Skipped, skip.at, Some(Arc::new(skip.result)));
                effect.begin.step = skip.step;
            }
            None => {
                let begin = Begin {
                    job: skip.job,
                    n: skip.n,
                    fence: skip.fence,
                    step: skip.step,
                    step_id: skip.step_id,
                    key,
                    class: skip.class,
                    action: skip.action,
                    destination: skip.destination,
                    at: skip.at,
                };
                job.effects.push(EffectRow {
                    begin,
                    state: EffectState::Skipped,
                    attempts: 0,
                    absent_reads: 0,
                    reads: 0,
                    result: Some(Arc::new(skip.result)),
                    first_at: skip.at,
                    last_at: skip.at,
                });
            }
        }
        self.give_back(key);
        GuardReply::Done
    }

    fn consent(&mut self, consent: SetConsent) -> GuardReply {
        let kept =
            self.guards.consents.entry((consent.contact, consent.purpose)).or_insert((consent.granted, consent.at));
        if consent.at >= kept.1 {
            *kept = (consent.granted, consent.at);
        }
        GuardReply::Done
    }

    fn suppress(&mut self, suppress: Suppress) -> GuardReply {
        let Suppress { contacts, channel, actor, reason, at } = suppress;
        let mut changed = 0;
        for (contact, label) in &contacts {
            let record = SuppressionRecord {
                label: label.clone(),
                channel: channel.clone(),
                at,
                actor: actor.clone(),
                reason: reason.clone(),
            };
            changed += u64::from(self.guards.suppressed.insert((*contact, channel.clone()), record).is_none());
        }
        self.log(at, &actor, "suppress", &contacts_in_words(contacts.len(), &channel), &reason);
        GuardReply::Changed(changed)
    }

    fn release(&mut self, release: &Unsuppress) -> GuardReply {
        let before = self.guards.suppressed.len();
        for contact in &release.contacts {
            self.guards.suppressed.remove(&(*contact, release.channel.clone()));
        }
        let changed = (before - self.guards.suppressed.len()) as u64;
        let object = contacts_in_words(release.contacts.len(), &release.channel);
        self.log(release.at, &release.actor, "release", &object, &release.reason);
        GuardReply::Changed(changed)
    }

    fn ask(&mut self, ask: RequestApproval) -> GuardReply {
        if !self.jobs.get(&ask.job).is_some_and(|job| job.record.state.is_live()) {
            return GuardReply::Stale;
        }
        let asked = match self.approval(ask.id) {
            Some(asked) => asked,
            None => {
                let record = ApprovalRecord {
                    n: self.guards.approvals.last().map_or(1, |last| last.n + 1),
                    id: ask.id,
                    job: ask.job,
                    worker: ask.worker.to_string(),
                    step_id: ask.step_id.to_string(),
                    title: ask.title,
                    summary: ask.summary,
                    asked_at: ask.at,
                    expires_at: ask.expires_at,
                    default: ask.default,
                    state: ApprovalState::Pending,
                    decided_at: None,
                    decided_by: None,
                    reason: None,
                };
                self.guards.approvals.push(record.clone());
                record
            }
        };
        if asked.state == ApprovalState::Pending
            && let Some(mut waits) = ask.waits
        {
            waits.next.due_at = waits.next.due_at.min(asked.expires_at);
            if !matches!(self.settle(waits), Reply::Settled) {
                return GuardReply::Stale;
            }
        }
        GuardReply::Asked(Box::new(asked))
    }

    fn decide(&mut self, decide: &DecideApproval) -> Vec<(ApprovalId, Decided)> {
        decide.ids.iter().map(|id| (*id, self.decide_one(*id, decide))).collect()
    }

    fn decide_one(&mut self, id: ApprovalId, decide: &DecideApproval) -> Decided {
        let Some(record) = self.guards.approvals.iter_mut().find(|approval| approval.id == id) else {
            return Decided::Unknown;
        };
        let choice = decide.choice;
        if record.state != ApprovalState::Pending && !Mutant::SecondAnswerCounts.is_on() {
            return if record.state == choice.state() {
                Decided::Same
            } else {
                Decided::Conflict(Box::new(record.clone()))
            };
        }
        if decide.actor != EXPIRY && decide.at >= record.expires_at {
            // The time to answer is over, though nobody has written that down yet.
            let default = record.default;
            let late =
                DecideApproval { choice: default, actor: EXPIRY.into(), reason: String::new(), ..decide.clone() };
            let counts = self.decide_one(id, &late);
            return if default == choice { counts } else { self.decide_one(id, decide) };
        }
        (record.state, record.decided_at) = (choice.state(), Some(decide.at));
        (record.decided_by, record.reason) = (Some(decide.actor.clone()), Some(decide.reason.clone()));
        let job = record.job;
        self.log(decide.at, &decide.actor, choice.as_str(), &id.to_string(), &decide.reason);
        let Some(row) = self.jobs.get_mut(&job) else { return Decided::Unknown };
        if row.record.state == sluice_domain::job::JobState::Waiting {
            (row.record.due_at, row.record.updated_at) = (decide.at, decide.at);
        }
        Decided::Counts(job, row.record.worker.clone())
    }

    fn set_safe_mode(&mut self, set: SetSafeMode) -> GuardReply {
        let SetSafeMode { worker, until, actor, reason, at } = set;
        let object = worker.as_deref().map_or("all".to_owned(), |worker| format!("worker:{worker}"));
        match until {
            Some(until) => {
                self.log(at, &actor, "safe-mode on", &object, &format!("until {until}: {reason}"));
                self.guards.safe_modes.insert(worker.clone(), SafeModeRecord { worker, at, until, actor, reason });
            }
            None => {
                if self.guards.safe_modes.remove(&worker).is_some() {
                    self.log(at, &actor, "safe-mode off", &object, &reason);
                }
            }
        }
        GuardReply::Done
    }

    pub(crate) fn known(&self, contact: KeyDigest, channel: &str, purposes: &[Arc<str>]) -> ContactFacts {
        let consents = purposes.iter().filter_map(|purpose| {
            let (granted, _) = self.guards.consents.get(&(contact, purpose.clone()))?;
            Some((purpose.clone(), *granted))
        });
        let on = |channel: &str| self.guards.suppressed.contains_key(&(contact, channel.to_owned()));
        ContactFacts { consent: consents.collect(), suppressed: on("") || on(channel) }
    }

    pub(crate) fn places_taken(&self, reserve: &CapReservation, but: Option<EffectKey>, now: Time) -> u64 {
        let since = now - reserve.cap.window;
        let uses = self.guards.uses.get(&counted(reserve)).into_iter().flatten();
        uses.filter(|(key, taken)| Some(**key) != but && taken.at > since).count() as u64
    }

    pub(crate) fn suppressions(&self, limit: u32) -> Vec<SuppressionRecord> {
        let mut records: Vec<_> = self.guards.suppressed.values().cloned().collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.at));
        records.truncate(limit as usize);
        records
    }

    /// A question, by its name.
    pub fn approval(&self, id: ApprovalId) -> Option<ApprovalRecord> {
        self.guards.approvals.iter().find(|approval| approval.id == id).cloned()
    }

    pub(crate) fn approvals(&self, filter: &ApprovalFilter, page: Page) -> Vec<ApprovalRecord> {
        let newest_first = self.guards.approvals.iter().rev();
        let after = newest_first.filter(|approval| page.after.is_none_or(|after| approval.n < after));
        after.filter(|approval| filter.matches(approval)).take(page.limit as usize).cloned().collect()
    }

    /// Every question that was asked.
    pub fn questions(&self) -> &[ApprovalRecord] {
        &self.guards.approvals
    }

    /// Where safe mode is on, or was.
    pub fn safe_modes(&self) -> Vec<SafeModeRecord> {
        self.guards.safe_modes.values().cloned().collect()
    }
}

/// How many contacts an act was about; who they are does not stand in the audit trail.
pub(crate) fn contacts_in_words(count: usize, channel: &str) -> String {
    let contacts = if count == 1 { "1 contact".to_owned() } else { format!("{count} contacts") };
    if channel.is_empty() { contacts } else { format!("{contacts} ({channel})") }
}

//! Caps, consent, suppression and safe mode.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_domain::job::EffectKey;
use sluice_domain::key::KeyDigest;
use sluice_domain::policy::{CapReservation, ContactFacts};
use sluice_domain::time::Time;

use super::Store;
use crate::filter::Page;
use crate::op::{Begin, SetConsent, SetSafeMode, Suppress, Unsuppress};
use crate::record::{SafeModeRecord, SuppressionRecord, describe_contacts};

/// Policy, channel and contact: effects that are counted together.
type Counted = (Arc<str>, Arc<str>, KeyDigest);

#[derive(Clone, Debug, Default)]
pub(super) struct Policies {
    uses: BTreeMap<Counted, BTreeMap<EffectKey, Use>>,
    consents: BTreeMap<(KeyDigest, Arc<str>), (bool, Time)>,
    suppressed: BTreeMap<(KeyDigest, String), SuppressionRecord>,
    last_suppression: i64,
    safe_modes: BTreeMap<Option<String>, SafeModeRecord>,
}

#[derive(Clone, Copy, Debug)]
struct Use {
    at: Time,
    until: Time,
}

fn counted(cap: &CapReservation) -> Counted {
    (cap.policy.clone(), cap.channel.clone(), cap.contact)
}

impl Store {
    /// Index of the first cap that has no room for this effect.
    pub(super) fn exhausted_cap(&self, begin: &Begin, caps: &[CapReservation]) -> Option<usize> {
        caps.iter().position(|cap| {
            let held = self.policies.uses.get(&counted(cap)).is_some_and(|uses| uses.contains_key(&begin.key));
            !held && cap.is_exhausted(self.cap_used(cap, begin.at))
        })
    }

    pub(super) fn use_caps(&mut self, begin: &Begin, caps: &[CapReservation]) {
        for cap in caps {
            let uses = self.policies.uses.entry(counted(cap)).or_default();
            let until = begin.at + cap.cap.window;
            let used = uses.entry(begin.key).or_insert(Use { at: begin.at, until });
            used.until = used.until.max(until);
        }
    }

    /// An effect that was surely not applied does not count.
    pub(super) fn release_caps(&mut self, key: EffectKey) {
        for uses in self.policies.uses.values_mut() {
            uses.remove(&key);
        }
    }

    pub(super) fn prune_policies(&mut self, now: Time, limit: usize) -> usize {
        let mut pruned = 0;
        for uses in self.policies.uses.values_mut() {
            let old: Vec<EffectKey> =
                uses.iter().filter(|(_, taken)| taken.until <= now).map(|(key, _)| *key).take(limit - pruned).collect();
            pruned += old.len();
            uses.retain(|key, _| !old.contains(key));
        }
        self.policies.uses.retain(|_, uses| !uses.is_empty());
        self.approvals.retain(|approval| self.jobs.get(&approval.job).is_some());
        pruned
    }

    pub fn set_consent(&mut self, consent: SetConsent) {
        let kept =
            self.policies.consents.entry((consent.contact, consent.purpose)).or_insert((consent.granted, consent.at));
        if consent.at >= kept.1 {
            *kept = (consent.granted, consent.at);
        }
    }

    /// Returns the number of contacts that were not suppressed before.
    pub fn suppress(&mut self, suppress: &Suppress) -> u64 {
        let Suppress { contacts, channel, actor, reason, at } = suppress;
        let mut changed = 0;
        for (contact, label) in contacts {
            let known = self.policies.suppressed.get(&(*contact, channel.clone())).map(|record| record.id);
            let id = known.unwrap_or_else(|| {
                self.policies.last_suppression += 1;
                self.policies.last_suppression
            });
            let record = SuppressionRecord {
                id,
                label: label.clone(),
                channel: channel.clone(),
                at: *at,
                actor: actor.clone(),
                reason: reason.clone(),
            };
            changed += u64::from(self.policies.suppressed.insert((*contact, channel.clone()), record).is_none());
        }
        self.change_seq += 1;
        self.log(*at, actor, "suppress", &describe_contacts(contacts.len(), channel), reason);
        changed
    }

    /// Returns the number of contacts that were suppressed.
    pub fn unsuppress(&mut self, unsuppress: &Unsuppress) -> u64 {
        let before = self.policies.suppressed.len();
        for contact in &unsuppress.contacts {
            self.policies.suppressed.remove(&(*contact, unsuppress.channel.clone()));
        }
        let changed = (before - self.policies.suppressed.len()) as u64;
        let object = describe_contacts(unsuppress.contacts.len(), &unsuppress.channel);
        self.change_seq += 1;
        self.log(unsuppress.at, &unsuppress.actor, "release", &object, &unsuppress.reason);
        changed
    }

    pub fn set_safe_mode(&mut self, set: SetSafeMode) {
        let SetSafeMode { worker, until, actor, reason, at } = set;
        self.change_seq += 1;
        let object = worker.as_deref().map_or("all".to_owned(), |worker| format!("worker:{worker}"));
        match until {
            Some(until) => {
                self.log(at, &actor, "safe-mode on", &object, &format!("until {until}: {reason}"));
                self.policies.safe_modes.insert(worker.clone(), SafeModeRecord { worker, at, until, actor, reason });
            }
            None => {
                if self.policies.safe_modes.remove(&worker).is_some() {
                    self.log(at, &actor, "safe-mode off", &object, &reason);
                }
            }
        }
    }

    /// Facts about a contact that policies are evaluated with.
    pub fn contact_facts(&self, contact: KeyDigest, channel: &str, purposes: &[Arc<str>]) -> ContactFacts {
        let consents = purposes.iter().filter_map(|purpose| {
            let (granted, _) = self.policies.consents.get(&(contact, purpose.clone()))?;
            Some((purpose.clone(), *granted))
        });
        let on = |channel: &str| self.policies.suppressed.contains_key(&(contact, channel.to_owned()));
        ContactFacts { consent: consents.collect(), suppressed: on("") || on(channel) }
    }

    /// Number of effects that count under a cap.
    pub fn cap_used(&self, cap: &CapReservation, now: Time) -> u64 {
        let since = now - cap.cap.window;
        let uses = self.policies.uses.get(&counted(cap)).into_iter().flatten();
        uses.filter(|(_, used)| used.at > since).count() as u64
    }

    pub(crate) fn suppressions(&self, page: Page) -> Vec<SuppressionRecord> {
        let is_behind = |record: &&SuppressionRecord| page.after.is_none_or(|after| record.id < after);
        let mut records: Vec<_> = self.policies.suppressed.values().filter(is_behind).cloned().collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.id));
        records.truncate(page.limit as usize);
        records
    }

    /// Every safe mode that was not turned off.
    pub fn safe_modes(&self) -> Vec<SafeModeRecord> {
        self.policies.safe_modes.values().cloned().collect()
    }
}

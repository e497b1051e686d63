//! Commands with an idempotency key.

use sluice_domain::idempotent_command::{Claim, CommandEntry, KEPT, RESPONSES_MAX, claim};
use sluice_domain::time::Time;

use super::Store;
use crate::command::{ClaimCommand, FinishCommand};

impl Store {
    pub fn claim_command(&mut self, wanted: &ClaimCommand) -> Claim {
        let stored = self.commands.get(&wanted.key).filter(|(at, _)| *at > wanted.at - KEPT);
        let claim = claim(stored.map(|(_, entry)| entry.clone()), &wanted.request, wanted.term);
        if claim == Claim::First {
            let entry = CommandEntry { request: wanted.request, term: wanted.term, response: None };
            self.commands.insert(wanted.key, (wanted.at, entry));
        }
        claim
    }

    pub fn finish_command(&mut self, finish: &FinishCommand) {
        match &finish.response {
            Some(response) => {
                if let Some((_, entry)) = self.commands.get_mut(&finish.key) {
                    entry.response = Some(response.clone());
                }
            }
            None => drop(self.commands.remove(&finish.key)),
        }
    }

    pub(super) fn prune_commands(&mut self, now: Time, limit: usize) -> usize {
        let mut oldest: Vec<(Time, [u8; 32])> = self.commands.iter().map(|(key, (at, _))| (*at, *key)).collect();
        oldest.sort_unstable();
        let surplus = oldest.len().saturating_sub(RESPONSES_MAX as usize);
        let expired = oldest.iter().filter(|(at, _)| *at <= now - KEPT).count();
        oldest.truncate(surplus.max(expired).min(limit));
        for (_, key) in &oldest {
            self.commands.remove(key);
        }
        oldest.len()
    }
}

//! The configuration that runs beside the active one.

use super::Store;
use crate::op::{KeepShadow, SetShadow, StopShadow};
use crate::record::ShadowRecord;

impl Store {
    /// Runs a configuration beside the active one, instead of another one.
    pub fn set_shadow(&mut self, set: &SetShadow) {
        self.shadow = Some(ShadowRecord {
            hash: set.hash.clone(),
            files: set.files.clone(),
            started_at: set.at,
            actor: set.actor.clone(),
            reason: set.reason.clone(),
            active: String::new(),
            seen: self.last_seq,
            report: String::new(),
        });
        self.log(set.at, &set.actor, "shadow", &set.hash, &set.reason);
    }

    /// `false` if there is none.
    pub fn stop_shadow(&mut self, stop: &StopShadow) -> bool {
        let Some(shadow) = self.shadow.take() else { return false };
        self.log(stop.at, &stop.actor, "stop shadow", &shadow.hash, &stop.reason);
        true
    }

    /// `false` if the shadow is another one by now, or has moved on.
    pub fn keep_shadow(&mut self, keep: &KeepShadow) -> bool {
        let is_same = |shadow: &&mut ShadowRecord| {
            shadow.hash == keep.hash && shadow.started_at == keep.started_at && shadow.seen == keep.after
        };
        let Some(shadow) = self.shadow.as_mut().filter(is_same) else { return false };
        shadow.active.clone_from(&keep.active);
        shadow.report.clone_from(&keep.report);
        shadow.seen = keep.seen;
        true
    }

    pub fn shadow(&self) -> Option<ShadowRecord> {
        self.shadow.clone()
    }
}

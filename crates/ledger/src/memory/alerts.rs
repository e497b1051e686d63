//! Alerts and what operators have marked.

use sluice_domain::alert::Alert;
use sluice_domain::alert::state::AlertChanges;

use super::Store;
use crate::op::{AlertMark, MarkAlert};

impl Store {
    /// Stores the states of alerts.
    pub fn keep_alerts(&mut self, changes: &AlertChanges) {
        for key in &changes.removed {
            self.alerts.remove(key);
        }
        for alert in &changes.changed {
            let alert = match self.alerts.get(&alert.key()) {
                Some(stored) => alert.clone().with_marks_of(stored),
                None => alert.clone(),
            };
            self.alerts.insert(alert.key(), alert);
        }
    }

    /// An operator marks an alert. `false` if there is no such alert.
    pub fn mark_alert(&mut self, mark: &MarkAlert) -> bool {
        let Some(alert) = self.alerts.get_mut(&(mark.kind, mark.subject.clone())) else { return false };
        match mark.mark {
            AlertMark::Acknowledged => alert.acknowledged_by.clone_from(&mark.actor),
            AlertMark::SnoozedUntil(until) => alert.snoozed_until = Some(until),
        }
        self.log(mark.at, &mark.actor, mark.action(), &mark.object(), &mark.reason);
        true
    }

    /// Every alert, by kind and subject.
    pub fn alerts(&self) -> Vec<Alert> {
        self.alerts.values().cloned().collect()
    }
}

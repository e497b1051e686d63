//! What is written and notified after a look at the node, in order.
//!
//! A change is stored, then its event is accepted, then the change is stored as notified. A crash between two of these repeats what
//! follows: the event has the same key, so the second accept is a duplicate.

use super::notice::Notice;
use super::rules::AlertRules;
use super::signal::Condition;
use super::state::{Alert, AlertChanges, step};
use crate::mutant::Mutant;
use crate::time::Time;

/// One write. The next one is made once this one is durable; after a failure the rest is dropped, and the next look makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchCommand {
    Keep(AlertChanges),
    /// Accept the event of this notice.
    Notify(Notice),
}

/// The writes after a look: changes by the conditions, and the notices of all changes that are stored and not notified.
pub fn commands(known: &[Alert], conditions: &[Condition], rules: &AlertRules, now: Time) -> Vec<WatchCommand> {
    let changes = step(known, conditions, rules, now);
    let is_changed = |alert: &&Alert| {
        let key = alert.key();
        !changes.removed.contains(&key) && !changes.changed.iter().any(|changed| changed.key() == key)
    };
    let unchanged = known.iter().filter(is_changed).cloned();
    let mut after: Vec<Alert> =
        unchanged.chain(changes.changed.iter().cloned()).filter(|alert| alert.is_due(now)).collect();
    after.sort_by_key(Alert::key);
    let mut commands = Vec::new();
    if !changes.is_empty() {
        commands.push(WatchCommand::Keep(changes));
    }
    for alert in after {
        let notify = WatchCommand::Notify(Notice::of(&alert));
        let notified = WatchCommand::Keep(AlertChanges { changed: vec![alert.after_notice()], removed: vec![] });
        match Mutant::AlertNotifiedBeforeAccept.is_on() {
            true => commands.extend([notified, notify]),
            false => commands.extend([notify, notified]),
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::kind::AlertKind;
    use crate::random::Random;
    use std::collections::BTreeMap;
    use std::time::Duration;

    /// A ledger that may fail before any write.
    #[derive(Default)]
    struct Ledger {
        alerts: BTreeMap<(AlertKind, String), Alert>,
        /// Every accept, by its notice.
        accepted: Vec<Notice>,
    }

    impl Ledger {
        fn perform(&mut self, command: WatchCommand) {
            match command {
                WatchCommand::Keep(changes) => {
                    changes.removed.iter().for_each(|key| drop(self.alerts.remove(key)));
                    self.alerts.extend(changes.changed.into_iter().map(|alert| (alert.key(), alert)));
                }
                WatchCommand::Notify(notice) if !self.accepted.contains(&notice) => self.accepted.push(notice),
                WatchCommand::Notify(_) => {}
            }
        }
    }

    #[test]
    fn ten_thousand_failures_with_crashes_make_one_notice_of_each_change() {
        let mut random = Random::seeded(7);
        let mut ledger = Ledger::default();
        let failing =
            Condition { kind: AlertKind::BreakerOpen, subject: "crm".into(), detail: "open".into(), began: None };
        let look = |ledger: &mut Ledger, conditions: &[Condition], second: u64, random: &mut Random| {
            let known: Vec<Alert> = ledger.alerts.values().cloned().collect();
            let now = Time(0) + Duration::from_secs(second);
            for command in commands(&known, conditions, &AlertRules::default(), now) {
                // The process dies before a write, or after it.
                if random.chance(0.3) {
                    return;
                }
                ledger.perform(command);
            }
        };
        (0..10_000).for_each(|second| look(&mut ledger, std::slice::from_ref(&failing), second, &mut random));
        (10_000..11_000).for_each(|second| look(&mut ledger, &[], second, &mut random));
        let states: Vec<String> = ledger.accepted.iter().map(|notice| notice.key_state()).collect();
        assert_eq!(states, ["firing", "recovered"]);
        assert!(ledger.alerts.values().all(|alert| !alert.is_to_notify()));
    }

    #[test]
    fn condition_that_returns_before_a_recovery_is_notified_makes_no_second_notice_of_it() {
        let unknown =
            Condition { kind: AlertKind::UnknownOutcomes, subject: String::new(), detail: "1 job".into(), began: None };
        let mut ledger = Ledger::default();
        let mut look = |conditions: &[Condition], second: u64, writes: usize| {
            let known: Vec<Alert> = ledger.alerts.values().cloned().collect();
            let now = Time(0) + Duration::from_secs(second);
            let commands = commands(&known, conditions, &AlertRules::default(), now);
            commands.into_iter().take(writes).for_each(|command| ledger.perform(command));
            ledger.accepted.iter().map(Notice::key_state).collect::<Vec<_>>()
        };
        look(std::slice::from_ref(&unknown), 0, 9);
        assert_eq!(look(std::slice::from_ref(&unknown), 600, 9), ["firing"]);
        look(&[], 700, 9);
        // The process dies after the accept, before the change is stored as notified; then the condition holds again.
        assert_eq!(look(&[], 760, 2), ["firing", "recovered"]);
        for second in [770, 780, 790] {
            assert_eq!(look(std::slice::from_ref(&unknown), second, 9), ["firing", "recovered"]);
        }
        assert_eq!(look(std::slice::from_ref(&unknown), 1_400, 9), ["firing", "recovered", "firing"]);
    }

    #[test]
    fn firing_that_could_not_be_accepted_is_told_before_its_recovery() {
        let open =
            Condition { kind: AlertKind::BreakerOpen, subject: "crm".into(), detail: "open".into(), began: None };
        let mut ledger = Ledger::default();
        let mut look = |conditions: &[Condition], second: u64, writes: usize| {
            let known: Vec<Alert> = ledger.alerts.values().cloned().collect();
            let now = Time(0) + Duration::from_secs(second);
            let commands = commands(&known, conditions, &AlertRules::default(), now);
            commands.into_iter().take(writes).for_each(|command| ledger.perform(command));
            ledger.accepted.iter().map(Notice::key_state).collect::<Vec<_>>()
        };
        // Events are refused until the trouble is over.
        assert!(look(&[open], 0, 1).is_empty());
        (10..100).for_each(|second| assert!(look(&[], second, 0).is_empty()));
        assert_eq!(look(&[], 100, 9), ["firing"]);
        (101..200).for_each(|second| drop(look(&[], second, 9)));
        assert_eq!(look(&[], 200, 9), ["firing", "recovered"]);
    }
}

//! `sluice clock` on a real node.

use crate::support::{Workplace, lead};

/// No setting and no variable gives a node a false time. A ledger that was last open 60 days ago, before the machine was started,
/// is the same from the node's point of view.
fn age_ledger(workplace: &Workplace) {
    let ledger = rusqlite::Connection::open(workplace.path().join(".sluice/ledger.db")).unwrap();
    ledger
        .execute_batch(
            "UPDATE ledger_clock SET time = time - 60 * 86400000, boot = boot + 1;
             UPDATE event SET persisted_at = persisted_at - 60 * 86400000, received_at = received_at - 60 * 86400000;
             UPDATE source_day_count SET day = date(day, '-60 days')",
        )
        .unwrap();
}

#[test]
fn a_ledger_that_was_closed_for_60_days_waits_for_clock_accept() {
    let workplace = Workplace::alone();
    let node = workplace.up(&[]);
    workplace.run_with_input(&["send", "website-leads", "-"], &lead("old", "")).ok();
    let shown = workplace.run(&["clock", "show"]).ok();
    assert!(shown.stdout.contains("in step: expired data is pruned"), "{shown}");
    let refused = workplace.run(&["clock", "accept", "--reason", "just so"]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("nothing to accept"), "{refused}");
    node.stop();

    age_ledger(&workplace);
    let node = workplace.up(&[]);
    for command in [["status"].as_slice(), &["clock", "show"]] {
        let shown = workplace.run(command).ok();
        assert!(shown.stdout.contains("60d ahead of the ledger's time"), "{shown}");
        assert!(shown.stdout.contains("sluice clock accept"), "{shown}");
    }
    assert_eq!(workplace.json(&["clock", "show", "--json"])["state"], "wall-ahead");
    let unexplained = workplace.run(&["clock", "accept"]);
    assert_eq!(unexplained.code, 2, "{unexplained}");
    node.stop();

    let accepted = workplace.run(&["clock", "accept", "--reason", "the machine was off", "--actor", "ann"]).ok();
    assert!(accepted.stdout.contains("in step"), "{accepted}");
    let audit = workplace.run(&["audit"]).ok();
    assert!(audit.stdout.contains("ann") && audit.stdout.contains("clock accept"), "{audit}");
    let node = workplace.up(&[]);
    assert_eq!(workplace.json(&["clock", "show", "--json"])["state"], "in-step");
    node.stop();
    let verified = workplace.run(&["verify"]).ok();
    assert!(verified.stdout.contains("no violations"), "{verified}");
}

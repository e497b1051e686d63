//! States of alerts survive a restart, and so does what operators have marked.

use sluice_domain::alert::state::{AlertChanges, Phase};
use sluice_domain::alert::{Alert, AlertKind, Severity};
use sluice_ledger::{AlertMark, MarkAlert};

use crate::driver::{Driver, at, open};

fn alert(phase: Phase, changes: u64) -> Alert {
    Alert {
        kind: AlertKind::BreakerOpen,
        subject: "crm".into(),
        phase,
        since: at(1),
        severity: Severity::Critical,
        began: at(0),
        clear_since: None,
        changes,
        notified: 0,
        detail: "the breaker is open".into(),
        acknowledged_by: String::new(),
        snoozed_until: None,
    }
}

fn changed(alert: Alert) -> AlertChanges {
    AlertChanges { changed: vec![alert], removed: vec![] }
}

fn mark(mark: AlertMark) -> MarkAlert {
    MarkAlert {
        kind: AlertKind::BreakerOpen,
        subject: "crm".into(),
        mark,
        actor: "ann".into(),
        reason: "known".into(),
        at: at(2),
    }
}

pub(crate) async fn an_alert_is_kept_over_a_restart<D: Driver>() {
    let fixture = open::<D>();
    let disk = Alert { kind: AlertKind::DiskFull, subject: String::new(), ..alert(Phase::Pending, 0) };
    let fired = Alert { clear_since: Some(at(3)), ..alert(Phase::Firing, 1) };
    let both = AlertChanges { changed: vec![disk.clone(), fired.clone()], removed: vec![] };
    fixture.ledger.keep_alerts(both.clone()).await.unwrap();
    fixture.ledger.keep_alerts(both).await.unwrap();
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.alerts().await.unwrap(), [fired.clone(), disk.clone()]);
    let gone = AlertChanges { changed: vec![], removed: vec![disk.key()] };
    fixture.ledger.keep_alerts(gone).await.unwrap();
    assert_eq!(fixture.ledger.alerts().await.unwrap(), [fired]);
}

pub(crate) async fn marks_of_operators_are_kept_until_the_alert_fires_again<D: Driver>() {
    let fixture = open::<D>();
    assert!(!fixture.ledger.mark_alert(mark(AlertMark::Acknowledged)).await.unwrap(), "there is no such alert");
    fixture.ledger.keep_alerts(changed(alert(Phase::Firing, 1))).await.unwrap();
    assert!(fixture.ledger.mark_alert(mark(AlertMark::Acknowledged)).await.unwrap());
    assert!(fixture.ledger.mark_alert(mark(AlertMark::SnoozedUntil(at(9)))).await.unwrap());
    // Written by a process that has not seen the marks.
    fixture.ledger.keep_alerts(changed(alert(Phase::Recovered, 2))).await.unwrap();
    let fixture = fixture.reopen().await;
    let stored = fixture.ledger.alerts().await.unwrap().remove(0);
    assert_eq!((stored.acknowledged_by.as_str(), stored.snoozed_until), ("ann", Some(at(9))));
    fixture.ledger.keep_alerts(changed(alert(Phase::Firing, 3))).await.unwrap();
    let stored = fixture.ledger.alerts().await.unwrap().remove(0);
    assert_eq!((stored.acknowledged_by.as_str(), stored.snoozed_until), ("", Some(at(9))));
    let audit = fixture.audit_lines().await;
    assert_eq!(audit, ["ann acknowledge alert:breaker-open:crm known", "ann snooze alert:breaker-open:crm known"]);
}

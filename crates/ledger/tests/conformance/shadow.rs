//! A configuration that runs beside the active one is kept with what was compared.

use sluice_ledger::{KeepShadow, Page, SetShadow, StopShadow};

use crate::driver::{Driver, at, open};

fn set(hash: &str) -> SetShadow {
    SetShadow { hash: hash.into(), files: "[]".into(), actor: "ann".into(), reason: "new mapping".into(), at: at(1) }
}

fn keep(hash: &str, after: i64, seen: i64) -> KeepShadow {
    let report = format!("{{\"seen\":{seen}}}");
    KeepShadow { hash: hash.into(), started_at: at(1), active: "r1".into(), after, seen, report }
}

pub(crate) async fn a_shadow_begins_with_the_next_event_and_keeps_its_report<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(fixture.ledger.shadow().await.unwrap(), None);
    fixture.job("a").await;
    fixture.ledger.set_shadow(set("aa")).await.unwrap();
    let shadow = fixture.ledger.shadow().await.unwrap().unwrap();
    assert_eq!((shadow.hash.as_str(), shadow.seen, shadow.report.as_str()), ("aa", 1, ""));
    assert!(fixture.ledger.keep_shadow(keep("aa", 1, 5)).await.unwrap());
    assert!(!fixture.ledger.keep_shadow(keep("aa", 1, 5)).await.unwrap(), "a repeat changes nothing");
    assert!(!fixture.ledger.keep_shadow(keep("bb", 5, 6)).await.unwrap(), "another one");
    let fixture = fixture.reopen().await;
    let shadow = fixture.ledger.shadow().await.unwrap().unwrap();
    assert_eq!((shadow.seen, shadow.active.as_str(), shadow.report.as_str()), (5, "r1", "{\"seen\":5}"));
    fixture.ledger.set_shadow(set("bb")).await.unwrap();
    assert_eq!(fixture.ledger.shadow().await.unwrap().unwrap().report, "");
}

pub(crate) async fn a_shadow_is_stopped_once_with_a_line_in_the_audit_trail<D: Driver>() {
    let fixture = open::<D>();
    let stop = StopShadow { actor: "ann".into(), reason: "seen enough".into(), at: at(2) };
    assert!(!fixture.ledger.stop_shadow(stop.clone()).await.unwrap());
    fixture.ledger.set_shadow(set("aa")).await.unwrap();
    assert!(fixture.ledger.stop_shadow(stop.clone()).await.unwrap());
    assert!(!fixture.ledger.stop_shadow(stop).await.unwrap());
    assert_eq!(fixture.ledger.shadow().await.unwrap(), None);
    let audit = fixture.ledger.audit_trail(Page { after: None, limit: 10 }).await.unwrap();
    let lines: Vec<_> =
        audit.iter().map(|line| (line.action.as_str(), line.object.as_str(), line.detail.as_str())).collect();
    assert_eq!(lines, [("stop shadow", "aa", "seen enough"), ("shadow", "aa", "new mapping")]);
}

//! The real binary under `kill -9` and other faults, between senders that repeat requests and a CRM that fails: no lead is lost
//! or doubled.

use std::time::Duration;

use sluice_harness::StatusLine;
use sluice_harness::chaos::{ChaosSettings, FaultCounts, run};

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_loses_and_duplicates_nothing() {
    let faults = FaultCounts {
        kills: 20,
        stops: 4,
        disk_failures: 2,
        disk_full: 3,
        slow_disk: 3,
        clock_sets: 5,
        outages: 3,
        sender_kills: 3,
    };
    let settings = ChaosSettings {
        program: env!("CARGO_BIN_EXE_sluice").into(),
        leads: 500,
        faults,
        cut_percent: 40.0,
        clock_jumps: true,
        fail_percent: 30.0,
        seed: 20_261,
        time_max: Duration::from_secs(600),
    };
    let report = run(settings, StatusLine::quiet(), std::future::pending()).await.unwrap();
    // Every supported fault was injected; otherwise the report is not balanced.
    assert!(report.balanced(), "{report}");
    println!("{report}");
    // Only the frozen disk may be unsupported here, and then the report says so.
    assert_eq!(report.possible, FaultCounts { slow_disk: report.possible.slow_disk, ..faults }, "{report}");
    assert_eq!(report.possible.slow_disk == faults.slow_disk, report.not_done.is_empty(), "{report}");
    assert!(report.faults.cut_senders > 0 && report.faults.cut_crm > 0, "{report}");
    assert!(report.crm.faults > 0 && report.ledger.duplicates > 0, "no fault took effect:\n{report}");
}

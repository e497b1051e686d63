//! The real binary under `kill -9` and worse, between senders that repeat themselves and a CRM that fails: then the books balance.

use std::time::Duration;

use sluice_harness::StatusLine;
use sluice_harness::chaos::{ChaosSettings, FaultCounts, run};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_is_doubled_under_kill_9() {
    let troubles = FaultCounts {
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
        troubles,
        cut_percent: 40.0,
        clock_jumps: true,
        fail_percent: 30.0,
        seed: 20_261,
        time_max: Duration::from_secs(600),
    };
    let books = run(settings, StatusLine::quiet(), std::future::pending()).await.unwrap();
    // All that was possible was done: the books do not balance otherwise.
    assert!(books.balanced(), "{books}");
    println!("{books}");
    // Only a slow disk may be out of reach here, and then it is said.
    assert_eq!(books.possible, FaultCounts { slow_disk: books.possible.slow_disk, ..troubles }, "{books}");
    assert_eq!(books.possible.slow_disk == troubles.slow_disk, books.not_done.is_empty(), "{books}");
    assert!(books.troubles.cut_senders > 0 && books.troubles.cut_crm > 0, "{books}");
    assert!(books.crm.faults > 0 && books.ledger.duplicates > 0, "nothing went wrong, so nothing was proved:\n{books}");
}

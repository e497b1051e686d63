//! The real binary under `kill -9` and worse, between senders that repeat themselves and a CRM that fails: then the books balance.

use std::time::Duration;

use sluice_server::chaos::{Settings, run};
use sluice_server::stage::StatusLine;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_is_doubled_under_kill_9() {
    let settings = Settings {
        program: env!("CARGO_BIN_EXE_sluice").into(),
        leads: 500,
        kills: 20,
        stops: 6,
        disk_failures: 3,
        outages: 4,
        cut_percent: 30.0,
        clock_jumps: true,
        fail_percent: 30.0,
        seed: 20_261,
        time_max: Duration::from_secs(240),
    };
    let books = run(settings, StatusLine::quiet()).await.unwrap();
    assert!(books.balanced(), "{books}");
    println!("{books}");
    let troubles = &books.troubles;
    assert_eq!((troubles.kills, troubles.stops, troubles.disk_failures, troubles.outages), (20, 6, 3, 4), "{books}");
    assert!(troubles.cut_senders > 0 && troubles.cut_crm > 0, "{books}");
    assert!(books.crm.faults > 0 && books.ledger.duplicates > 0, "nothing went wrong, so nothing was proved:\n{books}");
}

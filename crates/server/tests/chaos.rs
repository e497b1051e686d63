//! The real binary under `kill -9`, between senders that repeat themselves and a CRM that fails: then the books balance.

use std::time::Duration;

use sluice_server::chaos::{Settings, run};
use sluice_server::stage::StatusLine;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_is_doubled_under_kill_9() {
    let settings = Settings {
        program: env!("CARGO_BIN_EXE_sluice").into(),
        leads: 400,
        kills: 4,
        fail_percent: 30.0,
        seed: 20_261,
        time_max: Duration::from_secs(120),
    };
    let books = run(settings, StatusLine::quiet()).await.unwrap();
    assert!(books.balanced(), "{books}");
    assert!(books.crm.faults > 0 && books.ledger.duplicates > 0, "nothing went wrong, so nothing was proved:\n{books}");
}

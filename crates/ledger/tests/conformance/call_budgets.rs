//! Calls that budgets have charged survive restarts, and never shrink unless they are given back.

use std::sync::Arc;

use sluice_domain::call_budget::{BudgetCharge, BudgetRow, UsageReport};
use sluice_domain::time::Time;
use sluice_ledger::ChargeCalls;

use crate::driver::{Driver, open};

fn row(from: i64, charged: u64) -> BudgetRow {
    BudgetRow { from: Time(from), charged, reported: None }
}

fn charge(destination: &str, row: Option<BudgetRow>) -> ChargeCalls {
    let charge = BudgetCharge { row, keep_from: Time(0), gives_back: false };
    ChargeCalls { destination: Arc::from(destination), charge }
}

pub(crate) async fn charged_calls_survive_a_restart_and_never_shrink<D: Driver>() {
    let fixture = open::<D>();
    assert_eq!(fixture.ledger.charge_calls(charge("crm", None)).await.unwrap(), []);
    let first = charge("crm", Some(row(1_000, 40)));
    assert_eq!(fixture.ledger.charge_calls(first.clone()).await.unwrap(), [row(1_000, 40)]);
    assert_eq!(fixture.ledger.charge_calls(first).await.unwrap(), [row(1_000, 40)], "a repeat changes nothing");
    let late = charge("crm", Some(row(1_000, 12)));
    assert_eq!(fixture.ledger.charge_calls(late).await.unwrap(), [row(1_000, 40)], "a late write");
    let next = charge("crm", Some(row(2_000, 5)));
    assert_eq!(fixture.ledger.charge_calls(next).await.unwrap(), [row(1_000, 40), row(2_000, 5)]);
    assert_eq!(fixture.ledger.charge_calls(charge("mail", Some(row(1_500, 1)))).await.unwrap(), [row(1_500, 1)]);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.ledger.charge_calls(charge("crm", None)).await.unwrap(), [row(1_000, 40), row(2_000, 5)]);
}

pub(crate) async fn calls_are_given_back_and_old_intervals_are_dropped<D: Driver>() {
    let fixture = open::<D>();
    let reported = Some(UsageReport { used: 7, limit: 90 });
    let first = charge("crm", Some(BudgetRow { reported, ..row(1_000, 40) }));
    fixture.ledger.charge_calls(first).await.unwrap();
    let mut back = charge("crm", Some(row(1_000, 31)));
    back.charge.gives_back = true;
    let kept = BudgetRow { reported, ..row(1_000, 31) };
    assert_eq!(fixture.ledger.charge_calls(back).await.unwrap(), [kept], "the last report is kept");
    let mut later = charge("crm", Some(row(9_000, 2)));
    later.charge.keep_from = Time(9_000);
    assert_eq!(fixture.ledger.charge_calls(later).await.unwrap(), [row(9_000, 2)]);
}

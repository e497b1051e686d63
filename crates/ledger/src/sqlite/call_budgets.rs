//! Calls that budgets of destinations have charged.

use rusqlite::params;
use sluice_domain::call_budget::{BudgetRow, UsageReport};

use super::batch::Batch;
use super::row::time;
use crate::op::ChargeCalls;

impl Batch<'_, '_> {
    pub(super) fn write_charge(&mut self, charge: &ChargeCalls) -> rusqlite::Result<Vec<BudgetRow>> {
        let ChargeCalls { destination, charge } = charge;
        if let Some(row) = charge.row {
            let (used, limit) = (row.reported.map(|report| report.used), row.reported.map(|report| report.limit));
            self.cached(include_str!("sql/charge_calls.sql"))?.execute(params![
                destination,
                row.from.0,
                stored(row.charged),
                used.map(stored),
                limit.map(stored),
                charge.gives_back,
            ])?;
        }
        self.cached(include_str!("sql/delete_call_budget.sql"))?.execute(params![destination, charge.keep_from.0])?;
        let mut statement = self.cached(include_str!("sql/call_budget.sql"))?;
        let rows = statement.query_map([destination], |row| {
            let used: Option<i64> = row.get(2)?;
            let limit: Option<i64> = row.get(3)?;
            let reported = used.zip(limit).map(|(used, limit)| UsageReport { used: read(used), limit: read(limit) });
            Ok(BudgetRow { from: time(row, 0)?, charged: read(row.get(1)?), reported })
        })?;
        rows.collect()
    }
}

fn stored(calls: u64) -> i64 {
    i64::try_from(calls).unwrap_or(i64::MAX)
}

fn read(calls: i64) -> u64 {
    u64::try_from(calls).unwrap_or(0)
}

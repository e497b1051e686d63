//! Calls that budgets of destinations have charged.

use sluice_domain::call_budget::BudgetRow;

use super::Store;
use crate::op::ChargeCalls;

impl Store {
    /// Charges calls of a budget, or only reads its rows, and drops those that count no longer.
    pub fn charge_calls(&mut self, charge: &ChargeCalls) -> Vec<BudgetRow> {
        let ChargeCalls { destination, charge } = charge;
        let rows = self.call_budgets.entry(destination.clone()).or_default();
        if let Some(row) = charge.row {
            let known = rows.entry(row.from).or_insert(BudgetRow { charged: 0, reported: None, ..row });
            known.charged = if charge.gives_back { row.charged } else { row.charged.max(known.charged) };
            known.reported = row.reported.or(known.reported);
        }
        rows.retain(|from, _| *from >= charge.keep_from);
        rows.values().copied().collect()
    }
}

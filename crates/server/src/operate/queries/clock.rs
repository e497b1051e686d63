//! The ledger's clock.

use std::time::Duration;

use sluice_domain::ledger_clock::{ClockState, Reading};

use crate::clock::CLOCK_ACTION;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::ClockView;

impl Operator {
    pub async fn clock(&self) -> Result<ClockView, OperateError> {
        self.clock_view(self.clock.read_ledger_clock()).await
    }

    pub(in crate::operate) async fn clock_view(&self, reading: Reading) -> Result<ClockView, OperateError> {
        let (state, difference) = match reading.state {
            ClockState::InStep => ("in-step", Duration::ZERO),
            ClockState::WallAhead(difference) => ("wall-ahead", difference),
            ClockState::WallBehind(difference) => ("wall-behind", difference),
        };
        Ok(ClockView {
            ledger: reading.time.to_string(),
            wall: self.clock.wall().to_string(),
            state: state.to_owned(),
            difference_ms: u64::try_from(difference.as_millis()).unwrap_or(u64::MAX),
            warning: self.clock.warning(reading).map(|warning| format!("{warning}. {CLOCK_ACTION}")),
            pruned: self.ledger.pruned_totals().await?,
        })
    }
}

//! Confirm the clock of the machine.

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use utoipa::ToSchema;

use crate::operate::commands::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::ClockView;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptClockRequest {
    pub reason: String,
    #[serde(default)]
    pub actor: String,
}

impl Operator {
    /// States that the clock of the machine is right: the ledger's time moves to it, and pruning continues.
    pub async fn accept_clock(&self, order: &AcceptClockRequest) -> Result<ClockView, OperateError> {
        self.permit(Permission::Administer)?;
        need(&order.reason, "accepting the clock needs a reason")?;
        if self.clock.read_ledger_clock().may_prune() {
            let message = "the ledger's time follows the clock of this machine; there is nothing to accept";
            return Err(OperateError::Refused("clock-in-step", message.to_owned()));
        }
        let (actor, reason) = (self.actor(&order.actor), order.reason.trim().to_owned());
        let reading = self.clock.confirm(&self.ledger, actor, reason).await?;
        tracing::warn!(ledger = %reading.time, "an operator has confirmed the clock of this machine");
        self.clock_view(reading).await
    }
}

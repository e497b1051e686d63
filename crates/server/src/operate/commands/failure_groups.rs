//! Acknowledge, resolve and reopen failure groups.

use serde::Deserialize;
use sluice_domain::access::Permission;
use sluice_domain::failure_group::GroupState;
use sluice_ledger::{MarkGroup, MarkedGroup};
use utoipa::ToSchema;

use super::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::queries::failure_groups::{group_id, unknown};
use crate::operate::views::FailureGroupView;

#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRequest {
    /// Recorded in the audit trail.
    pub reason: String,
    #[serde(default)]
    pub actor: String,
}

impl Operator {
    /// Sets the state of a failure group. The same state again replaces its reason.
    pub async fn mark_group(
        &self,
        id: &str,
        state: GroupState,
        request: &GroupRequest,
    ) -> Result<FailureGroupView, OperateError> {
        self.permit(Permission::Operate)?;
        let group = group_id(id)?;
        need(&request.reason, "a failure group needs a reason for its state")?;
        let mark = MarkGroup {
            group,
            state,
            actor: self.actor(&request.actor),
            reason: request.reason.trim().to_owned(),
            at: self.clock.ledger_time(),
        };
        match self.ledger.mark_group(mark).await? {
            MarkedGroup::Done(group) => self.group_view(group).await,
            MarkedGroup::NotFound => Err(unknown(group)),
            MarkedGroup::Refused(current) => Err(OperateError::Refused(
                "group-state",
                format!("{group} is {current}; it opens again by itself with the next dead letter, or with `reopen`"),
            )),
        }
    }
}

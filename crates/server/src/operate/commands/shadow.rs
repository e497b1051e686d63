//! The configuration that runs beside the active one.

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use sluice_ledger::{SetShadow, StopShadow};
use utoipa::ToSchema;

use super::change::Wanted;
use super::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::ShadowView;

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShadowRequest {
    #[serde(flatten)]
    pub wanted: Wanted,
    /// Recorded in the audit trail.
    pub reason: String,
    pub actor: String,
}

#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopShadowRequest {
    /// Recorded in the audit trail.
    pub reason: String,
    pub actor: String,
}

impl Operator {
    /// What the shadow has shown so far.
    pub async fn shadow(&self) -> Result<ShadowView, OperateError> {
        let none = || {
            OperateError::NotFound("no configuration runs as a shadow; `sluice plan DIR --shadow` starts one".into())
        };
        let record = self.ledger.shadow().await?.ok_or_else(none)?;
        Ok(ShadowView::new(&record, &self.revisions.current().revision))
    }

    /// Runs a configuration beside the active one from the next request on, instead of another shadow.
    pub async fn set_shadow(&self, request: &ShadowRequest) -> Result<ShadowView, OperateError> {
        self.permit(Permission::Administer)?;
        need(&request.reason, "a shadow needs a reason")?;
        let candidate = self.candidate(&request.wanted).await?;
        let hash = candidate.live.revision.to_string();
        if hash == *self.revisions.current().revision {
            return Err(OperateError::Refused("same-revision", format!("revision {hash} is the active one")));
        }
        let set = SetShadow {
            hash,
            files: candidate.files.to_json(),
            actor: self.actor(&request.actor),
            reason: request.reason.trim().to_owned(),
            at: self.clock.ledger_time(),
        };
        self.ledger.set_shadow(set).await?;
        self.shadow().await
    }

    pub async fn stop_shadow(&self, request: &StopShadowRequest) -> Result<(), OperateError> {
        self.permit(Permission::Administer)?;
        let stop = StopShadow {
            actor: self.actor(&request.actor),
            reason: request.reason.trim().to_owned(),
            at: self.clock.ledger_time(),
        };
        match self.ledger.stop_shadow(stop).await? {
            true => Ok(()),
            false => Err(OperateError::NotFound("no configuration runs as a shadow".into())),
        }
    }
}

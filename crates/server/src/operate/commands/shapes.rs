//! Shapes of payloads, and departures from them.

use serde::Deserialize;
use sluice_domain::access::Permission;
use sluice_domain::flow::Flow;
use sluice_ledger::AcceptDrift;
use utoipa::ToSchema;

use super::need;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::ShapeView;

#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AcceptShapeRequest {
    /// Only of this type of event.
    pub event_type: Option<String>,
    /// Only of the field at this path.
    pub field: Option<String>,
    /// Recorded in the audit trail.
    pub reason: String,
    pub actor: String,
}

impl Operator {
    /// The learned shapes of a source, by type of event.
    pub async fn source_shapes(&self, source: &str) -> Result<Vec<ShapeView>, OperateError> {
        let live = self.revisions.current();
        let flows: Vec<&Flow> =
            live.config.flows.values().map(AsRef::as_ref).filter(|flow| flow.source == source).collect();
        let records = self.ledger.shapes(Some(source.to_owned())).await?;
        if records.is_empty() && flows.is_empty() {
            return Err(OperateError::NotFound(format!("unknown source `{source}`; `sluice sources` lists them")));
        }
        Ok(records.iter().map(|record| ShapeView::new(record, &flows)).collect())
    }

    /// Makes departures from the shapes of a source the new normal. Returns the number of notices.
    pub async fn accept_shape(&self, source: &str, request: &AcceptShapeRequest) -> Result<u64, OperateError> {
        self.permit(Permission::Operate)?;
        need(&request.reason, "accepting a changed payload needs a reason")?;
        let accept = AcceptDrift {
            source: source.to_owned(),
            event_type: request.event_type.clone(),
            path: request.field.clone(),
            actor: self.actor(&request.actor),
            reason: request.reason.trim().to_owned(),
            at: self.clock.ledger_time(),
        };
        match self.ledger.accept_drift(accept).await? {
            0 => Err(OperateError::NotFound(format!(
                "there is no such notice of source {source}; `sluice sources show {source} --shape` lists them"
            ))),
            count => Ok(count),
        }
    }
}

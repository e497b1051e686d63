//! Shapes of payloads, and the shadow configuration.

use sluice_domain::time::Time;

use crate::record::{EventSeq, ShapeRecord};

/// What was learned of payloads, up to an event.
#[derive(Clone, Debug)]
pub struct KeepShapes {
    /// The last event of the write before, as it was read.
    pub after: Option<EventSeq>,
    pub seen: EventSeq,
    /// With the versions that were read.
    pub shapes: Vec<ShapeRecord>,
}

/// An operator makes departures from the shape of payloads the new normal.
#[derive(Clone, Debug)]
pub struct AcceptDrift {
    pub source: String,
    /// `None`: of every type.
    pub event_type: Option<String>,
    /// `None`: every notice.
    pub path: Option<String>,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

impl AcceptDrift {
    pub(crate) fn is_about(&self, event_type: &str) -> bool {
        self.event_type.as_deref().is_none_or(|meant| meant == event_type)
    }

    /// As in the audit trail.
    pub(crate) fn object(&self) -> String {
        let parts = [Some(self.source.as_str()), self.event_type.as_deref(), self.path.as_deref()];
        format!("shape:{}", parts.into_iter().flatten().collect::<Vec<_>>().join(":"))
    }
}

/// Runs a configuration beside the active one, from the next event on.
#[derive(Clone, Debug)]
pub struct SetShadow {
    pub hash: String,
    /// As of a revision.
    pub files: String,
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

#[derive(Clone, Debug)]
pub struct StopShadow {
    pub actor: String,
    pub reason: String,
    pub at: Time,
}

/// What the configuration that runs beside the active one does otherwise, up to an event.
#[derive(Clone, Debug)]
pub struct KeepShadow {
    pub hash: String,
    pub started_at: Time,
    /// Revision that it was compared with.
    pub active: String,
    /// The last event of the write before, as it was read.
    pub after: EventSeq,
    pub seen: EventSeq,
    pub report: String,
}

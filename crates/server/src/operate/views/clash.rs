//! Key clashes: other content under the key of an event.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What else came under an event's key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ClashView {
    /// The event that had the key first, if this is one of the others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub variant_of: Option<String>,
    /// What this says differently from the first.
    #[serde(default)]
    pub changes: Vec<ChangeView>,
    /// The other contents that came under the key of this event.
    #[serde(default)]
    pub variants: Vec<VariantView>,
    /// Requests with yet other contents, which were counted and not kept.
    #[serde(default)]
    pub further: u64,
}

/// Another content under the key of an event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VariantView {
    /// When it came first.
    pub received_at: String,
    /// How often it came.
    pub times: u64,
    /// The event that it became; absent if it was only kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_id: Option<String>,
    /// What it says differently from the first; absent once either body is past its retention.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub changes: Option<Vec<ChangeView>>,
}

/// One place at which two contents differ.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    /// Where: `contact.emails[0]`.
    pub path: String,
    /// What the first says, masked unless revealed; absent if it says nothing there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// What the other says, masked unless revealed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

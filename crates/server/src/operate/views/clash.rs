//! Key clashes: other content under the key of an event.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Variants of an event.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ClashView {
    /// First event of the key, if this is a variant.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub variant_of: Option<String>,
    /// Differences from the first event.
    #[serde(default)]
    pub changes: Vec<ChangeView>,
    /// Variants received under the key of this event.
    #[serde(default)]
    pub variants: Vec<VariantView>,
    /// Further variants that were counted but not stored.
    #[serde(default)]
    pub further: u64,
}

/// Other content received under the key of an event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VariantView {
    pub received_at: String,
    pub times: u64,
    /// Event created from it; absent if it was only stored.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_id: Option<String>,
    /// Differences from the first; absent once a body has been deleted by retention.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub changes: Option<Vec<ChangeView>>,
}

/// One difference.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    /// For example `contact.emails[0]`.
    pub path: String,
    /// Value of the first, masked unless revealed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// Value of the variant, masked unless revealed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

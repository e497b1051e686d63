//! Notices of a departure from the learned shape.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::field::FieldTypes;
use crate::time::Time;

/// A departure from the learned shape. There is one for a path and kind at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Such as `customer.email` or `items[].sku`.
    pub path: String,
    pub kind: NoticeKind,
    /// Arrival of the request that raised it.
    pub at: Time,
    /// A masked value; empty for a vanished field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub example: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    Appeared,
    /// Present in this share of the requests before.
    Vanished {
        percent: u8,
    },
    Retyped {
        from: FieldTypes,
        to: FieldTypes,
    },
}

impl NoticeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            NoticeKind::Appeared => "appeared",
            NoticeKind::Vanished { .. } => "vanished",
            NoticeKind::Retyped { .. } => "retyped",
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = crate::mask::text(&self.path);
        match self.kind {
            NoticeKind::Appeared => write!(f, "{path} has appeared"),
            NoticeKind::Vanished { percent } => write!(f, "{path} is gone; {percent} % of the requests had it"),
            NoticeKind::Retyped { from, to } => write!(f, "{path} was {from} and is {to}"),
        }
    }
}

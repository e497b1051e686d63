//! Fields that nobody asked for: each is told once.

use std::collections::HashSet;
use std::sync::Mutex;

/// Names are the sender's to choose, so no more than this are remembered.
const NAMES_MAX: usize = 1_000;

/// The fields that were told.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    told: Mutex<HashSet<(String, String)>>,
}

impl Unknown {
    /// Whether this field of a flow has not been told yet.
    pub fn is_news(&self, flow: &str, field: &str) -> bool {
        let Ok(mut told) = self.told.lock() else { return false };
        let field: String = field.chars().take(80).collect();
        told.len() < NAMES_MAX && told.insert((flow.to_owned(), field))
    }
}

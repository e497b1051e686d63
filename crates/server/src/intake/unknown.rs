//! Fields that nobody asked for: each is told once.

use std::collections::{HashMap, HashSet};
use std::sync::RwLock;

/// Names are the sender's to choose, so no more than this are remembered.
const NAMES_MAX: usize = 1_000;
/// And of each no more than so many bytes.
const NAME_BYTES_MAX: usize = 80;

/// The fields that were told, by flow.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    told: RwLock<HashMap<String, HashSet<String>>>,
}

impl Unknown {
    /// Whether this field of a flow has not been told yet.
    pub fn is_news(&self, flow: &str, field: &str) -> bool {
        let field = &field[..field.floor_char_boundary(NAME_BYTES_MAX)];
        // Nearly always it has been.
        let Ok(told) = self.told.read() else { return false };
        if told.get(flow).is_some_and(|fields| fields.contains(field)) {
            return false;
        }
        let full = told.values().map(HashSet::len).sum::<usize>() >= NAMES_MAX;
        drop(told);
        match self.told.write() {
            Ok(mut told) if !full => told.entry(flow.to_owned()).or_default().insert(field.to_owned()),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_of_a_flow_is_news_once_and_there_is_an_end() {
        let unknown = Unknown::default();
        assert!(unknown.is_news("leads", "utm") && !unknown.is_news("leads", "utm"));
        assert!(unknown.is_news("orders", "utm"), "another flow");
        let long = "ü".repeat(80);
        assert!(unknown.is_news("leads", &long) && !unknown.is_news("leads", &format!("{long}x")));
        let news = (0..2 * NAMES_MAX).filter(|n| unknown.is_news("leads", &n.to_string())).count();
        assert_eq!(news, NAMES_MAX - 3);
        assert!(!unknown.is_news("leads", "utm"), "still known");
    }
}

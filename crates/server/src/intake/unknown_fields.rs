//! Logs each unknown payload field once.

use std::collections::HashMap;
use std::sync::RwLock;

use sluice_domain::hash::UntrustedNames;

/// Senders choose the names, so their number is bounded.
const NAMES_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 80;

/// Logged fields by flow.
#[derive(Debug, Default)]
pub(super) struct UnknownFieldLog {
    logged: RwLock<HashMap<String, UntrustedNames>>,
}

impl UnknownFieldLog {
    /// Fields of a flow that are not logged yet.
    pub(super) fn news<'f>(&self, flow: &str, mut fields: Vec<&'f str>) -> Vec<&'f str> {
        let Ok(logged) = self.logged.read() else { return vec![] };
        if let Some(known) = logged.get(flow) {
            fields.retain(|field| !known.contains(short(field)));
        }
        let count = |logged: &HashMap<String, UntrustedNames>| logged.values().map(UntrustedNames::len).sum::<usize>();
        // Usually all are logged.
        if fields.is_empty() || count(&logged) >= NAMES_MAX {
            return vec![];
        }
        drop(logged);
        let Ok(mut logged) = self.logged.write() else { return vec![] };
        let mut free = NAMES_MAX.saturating_sub(count(&logged));
        let known = logged.entry(flow.to_owned()).or_default();
        fields.retain(|field| {
            let is_news = free > 0 && known.insert(short(field).to_owned());
            free -= usize::from(is_news);
            is_news
        });
        fields
    }
}

/// Truncates a name to the stored length.
fn short(field: &str) -> &str {
    &field[..field.floor_char_boundary(NAME_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unknown_field_is_logged_once_up_to_a_limit() {
        let unknown = UnknownFieldLog::default();
        let is_news = |flow: &str, field: &str| !unknown.news(flow, vec![field]).is_empty();
        assert!(is_news("leads", "utm") && !is_news("leads", "utm"));
        assert!(is_news("orders", "utm"), "another flow");
        let long = "ü".repeat(80);
        assert!(is_news("leads", &long) && !is_news("leads", &format!("{long}x")));
        let news = (0..2 * NAMES_MAX).filter(|n| is_news("leads", &n.to_string())).count();
        assert_eq!(news, NAMES_MAX - 3);
        assert!(!is_news("leads", "utm"), "still known");
        let unknown = UnknownFieldLog::default();
        assert_eq!(unknown.news("leads", vec!["a", "b", "a"]), ["a", "b"]);
        assert_eq!(unknown.news("leads", vec!["b", "c"]), ["c"]);
    }
}

//! Fields that nobody asked for: each is told once.

use std::collections::HashMap;
use std::sync::RwLock;

use sluice_domain::hash::UntrustedNames;

/// Names are the sender's to choose, so no more than this are remembered.
const NAMES_MAX: usize = 1_000;
/// And of each no more than so many bytes.
const NAME_BYTES_MAX: usize = 80;

/// The fields that were told, by flow.
#[derive(Debug, Default)]
pub(super) struct UnknownFieldLog {
    told: RwLock<HashMap<String, UntrustedNames>>,
}

impl UnknownFieldLog {
    /// Those of a flow's fields that have not been told yet.
    pub fn news<'f>(&self, flow: &str, mut fields: Vec<&'f str>) -> Vec<&'f str> {
        let Ok(told) = self.told.read() else { return vec![] };
        if let Some(known) = told.get(flow) {
            fields.retain(|field| !known.contains(short(field)));
        }
        let count = |told: &HashMap<String, UntrustedNames>| told.values().map(UntrustedNames::len).sum::<usize>();
        // Nearly always all of them have been.
        if fields.is_empty() || count(&told) >= NAMES_MAX {
            return vec![];
        }
        drop(told);
        let Ok(mut told) = self.told.write() else { return vec![] };
        let mut room = NAMES_MAX.saturating_sub(count(&told));
        let known = told.entry(flow.to_owned()).or_default();
        fields.retain(|field| {
            let is_news = room > 0 && known.insert(short(field).to_owned());
            room -= usize::from(is_news);
            is_news
        });
        fields
    }
}

/// As much of a name as is remembered.
fn short(field: &str) -> &str {
    &field[..field.floor_char_boundary(NAME_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_of_a_flow_is_news_once_and_there_is_an_end() {
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

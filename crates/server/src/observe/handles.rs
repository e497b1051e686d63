//! Handles of metrics by names of the configuration: an event neither builds labels nor takes the lock of a family.

use std::sync::Arc;

use arc_swap::ArcSwap;
use sluice_domain::hash::Map;

/// Metrics of one family, by a name and a word. There are as many as the family has series.
#[derive(Debug)]
pub(crate) struct Handles<M>(ArcSwap<Map<Arc<str>, ByWord<M>>>);

type ByWord<M> = Vec<(&'static str, M)>;

impl<M> Default for Handles<M> {
    fn default() -> Handles<M> {
        Handles(ArcSwap::default())
    }
}

impl<M: Clone> Handles<M> {
    /// Calls `apply` with the metric of this name and word; `create` finds it in its family the first time.
    pub(super) fn with(&self, name: &str, word: &'static str, create: impl FnOnce() -> M, apply: impl FnOnce(&M)) {
        let known = self.0.load();
        if let Some((_, metric)) = known.get(name).and_then(|words| words.iter().find(|(known, _)| *known == word)) {
            return apply(metric);
        }
        let metric = create();
        apply(&metric);
        self.0.rcu(|known| {
            let mut more = Map::clone(known);
            let words = more.entry(Arc::from(name)).or_default();
            if words.iter().all(|(known, _)| *known != word) {
                words.push((word, metric.clone()));
            }
            more
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;

    #[test]
    fn handle_counts_in_the_series_of_its_family() {
        let family: Family<Vec<(String, String)>, Counter> = Family::default();
        let handles = Handles::default();
        let labels = |name: &str| vec![("source".to_owned(), name.to_owned())];
        for name in ["web", "crm", "web"] {
            let create = || Counter::clone(&family.get_or_create(&labels(name)));
            handles.with(name, "", create, |counter| {
                counter.inc();
            });
        }
        handles.with(
            "web",
            "",
            || unreachable!("it is known"),
            |counter: &Counter| {
                counter.inc();
            },
        );
        assert_eq!((family.get_or_create(&labels("web")).get(), family.get_or_create(&labels("crm")).get()), (3, 1));
    }
}

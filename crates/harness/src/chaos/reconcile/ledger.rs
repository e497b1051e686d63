//! Reads the totals of the ledger from the running node.

use std::collections::HashSet;

use sluice_domain::alert;

use super::{Counted, LedgerCounts};
use crate::{Api, Error};
use sluice_server::operate::views::{CounterView, EventView, List, SourceView, Status};

/// Events per page.
const PAGE: usize = 500;

pub(super) async fn read(api: &Api, acknowledged: &HashSet<String>) -> Result<LedgerCounts, Error> {
    let status: Status = api.get("/api/v1/status").await?;
    let sources: Vec<SourceView> = api.get("/api/v1/sources").await?;
    let mut missing: HashSet<&str> = acknowledged.iter().map(String::as_str).collect();
    let (mut after, mut notices) = (String::new(), 0);
    loop {
        let page: List<EventView> = api.get(&format!("/api/v1/events?limit={PAGE}{after}")).await?;
        for event in &page.items {
            missing.remove(event.id.as_str());
            notices += u64::from(event.source == alert::SOURCE);
        }
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    Ok(LedgerCounts {
        events: status.events,
        notices,
        lost: missing.len() as u64,
        duplicates: sources.iter().map(|source| source.duplicates).sum(),
        clashes: sources.iter().map(|source| source.clashes).sum(),
        jobs: status.jobs,
        counted: counted(&api.get::<Vec<CounterView>>("/api/v1/totals").await?),
    })
}

fn counted(totals: &[CounterView]) -> Counted {
    let sum = |measures: &[&str], label: Option<(&str, &str)>| {
        let matches = |counter: &&CounterView| {
            let has = |(name, value): (&str, &str)| counter.labels.get(name).is_some_and(|found| found == value);
            measures.contains(&counter.measure.as_str()) && label.is_none_or(has)
        };
        totals.iter().filter(matches).map(|counter| counter.total).sum()
    };
    Counted {
        accepted: sum(&["accepted"], None),
        duplicates: sum(&["duplicates"], None),
        succeeded: sum(&["jobs", "replayed_jobs"], Some(("state", "succeeded"))),
        calls_done: sum(&["attempts"], Some(("outcome", "done"))),
    }
}

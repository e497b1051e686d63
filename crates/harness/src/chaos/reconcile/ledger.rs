//! Reads the totals of the ledger from the running node.

use std::collections::HashSet;

use super::LedgerCounts;
use crate::{Api, Error};
use sluice_server::operate::views::{EventView, List, SourceView, Status};

/// Events per page.
const PAGE: usize = 500;

pub(super) async fn read(api: &Api, acknowledged: &HashSet<String>) -> Result<LedgerCounts, Error> {
    let status: Status = api.get("/api/v1/status").await?;
    let sources: Vec<SourceView> = api.get("/api/v1/sources").await?;
    let mut missing: HashSet<&str> = acknowledged.iter().map(String::as_str).collect();
    let mut after = String::new();
    loop {
        let page: List<EventView> = api.get(&format!("/api/v1/events?limit={PAGE}{after}")).await?;
        for event in &page.items {
            missing.remove(event.id.as_str());
        }
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    Ok(LedgerCounts {
        events: status.events,
        lost: missing.len() as u64,
        duplicates: sources.iter().map(|source| source.duplicates).sum(),
        clashes: sources.iter().map(|source| source.clashes).sum(),
        jobs: status.jobs,
    })
}

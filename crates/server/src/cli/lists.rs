//! Lists: their pages, how they are shown, and filters of jobs.

use super::CliError;
use super::node_access::NodeArgs;
use super::print::{self, Format, hint, moment};
use super::table::Table;
use crate::operate::views::List;

/// Names and values of a query; absent values are left out.
pub(super) type Query = Vec<(&'static str, Option<String>)>;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Paging {
    /// Maximum number of rows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500), value_name = "N")]
    limit: u32,
    /// Continue after this row: the last of the previous page
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

impl Paging {
    fn query(&self) -> [(&'static str, Option<String>); 2] {
        [("limit", Some(self.limit.to_string())), ("after", self.after.clone())]
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct JobFilters {
    /// Only in these states, separated by commas: queued, running, retrying, waiting, succeeded, noop, dead, unknown, dropped
    #[arg(long)]
    state: Option<String>,
    /// Only of this worker
    #[arg(long)]
    worker: Option<String>,
    /// Only in this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only in this dead-letter queue
    #[arg(long, value_name = "QUEUE")]
    dead_letter_queue: Option<String>,
    /// Only from this source
    #[arg(long)]
    source: Option<String>,
    /// Only with this failure class, such as permanent or auth
    #[arg(long)]
    class: Option<String>,
    /// Only with this failure code
    #[arg(long)]
    code: Option<String>,
    /// Only jobs whose next call goes to this destination
    #[arg(long)]
    destination: Option<String>,
    /// Only changed within this duration (1h) or since this time
    #[arg(long)]
    since: Option<String>,
    /// Only changed before this duration (1h) or time
    #[arg(long)]
    until: Option<String>,
}

impl JobFilters {
    pub(super) fn query(&self) -> Query {
        vec![
            ("state", self.state.clone()),
            ("worker", self.worker.clone()),
            ("queue", self.queue.clone()),
            ("dead_letter_queue", self.dead_letter_queue.clone()),
            ("source", self.source.clone()),
            ("class", self.class.clone()),
            ("code", self.code.clone()),
            ("destination", self.destination.clone()),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
        ]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.query().iter().all(|(_, value)| value.is_none())
    }
}

/// Arguments of every list.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: NodeArgs,
}

/// What to list.
#[derive(Debug)]
pub(super) struct ListRequest<'a> {
    pub path: &'a str,
    pub filters: Query,
    /// Said if there is nothing.
    pub empty: &'a str,
    /// Command that shows one row; empty if there is none.
    pub details: &'a str,
}

impl ListArgs {
    /// Fetches a page and prints it as a table, with further hints behind it.
    pub(super) fn run<T: serde::de::DeserializeOwned>(
        &self,
        request: ListRequest<'_>,
        render: impl FnOnce(&[T]) -> (Table, String),
    ) -> Result<(), CliError> {
        self.reach.run(async |client| {
            let mut query = request.filters.clone();
            query.extend(self.paging.query());
            let answer = client.get(request.path, &query).await?;
            let Some(list) = self.format.read::<List<T>>(&answer)? else { return Ok(()) };
            print::print(&text_of(&list, &request, render))
        })
    }
}

fn text_of<T>(list: &List<T>, request: &ListRequest<'_>, render: impl FnOnce(&[T]) -> (Table, String)) -> String {
    if list.items.is_empty() {
        return match &list.scanned_to {
            Some(_) => format!("Nothing found so far.\n{}", continued(list)),
            None => format!("{}\n", request.empty),
        };
    }
    let (table, hints) = render(&list.items);
    let details = Some(request.details).filter(|command| !command.is_empty()).map(details).unwrap_or_default();
    format!("{}{details}{}{hints}", table.render(), continued(list))
}

/// How far a page has looked, and how to get the next one.
fn continued<T>(list: &List<T>) -> String {
    let Some(next) = &list.next else { return String::new() };
    match &list.scanned_to {
        Some(time) => hint(&format!("Searched back to {}, which is not all. Continue: --after {next}", moment(time))),
        None => hint(&format!("Next page: --after {next}")),
    }
}

/// How to show one row.
pub(super) fn details(command: &str) -> String {
    hint(&format!("\nDetails: {command}"))
}

#[cfg(test)]
mod tests {
    use super::super::table::{Cell, Column};
    use super::*;

    fn shown(items: &[&str], next: Option<&str>, scanned_to: Option<&str>) -> String {
        let request =
            ListRequest { path: "/jobs", filters: vec![], empty: "No jobs.", details: "sluice jobs show JOB" };
        let list = List {
            items: items.iter().map(|item| (*item).to_owned()).collect(),
            next: next.map(str::to_owned),
            scanned_to: scanned_to.map(str::to_owned),
        };
        text_of(&list, &request, |items: &[String]| {
            let mut table = Table::new([Column::Whole("JOB")]);
            items.iter().for_each(|item| table.row([Cell::from(item.as_str())]));
            (table, String::new())
        })
    }

    #[test]
    fn page_that_ended_before_it_was_full_says_how_far_it_looked() {
        let time = "2026-11-18T02:14:00Z";
        for text in [shown(&[], Some("job_7"), Some(time)), shown(&["job_9"], Some("job_7"), Some(time))] {
            assert!(text.contains("Searched back to 2026-11-18"), "{text}");
            assert!(text.contains("--after job_7") && !text.contains("No jobs."), "{text}");
        }
        assert_eq!(shown(&[], None, None), "No jobs.\n");
        let full = shown(&["job_9"], Some("job_9"), None);
        assert!(full.contains("Next page: --after job_9") && !full.contains("Searched"), "{full}");
        assert!(!shown(&["job_9"], None, None).contains("--after"));
    }
}

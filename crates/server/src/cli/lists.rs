//! Paging of lists, and filters of jobs.

use super::print::hint;

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
    pub fn query(&self) -> [(&'static str, Option<String>); 2] {
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
    /// Only changed within this duration (1h) or since this time
    #[arg(long)]
    since: Option<String>,
}

impl JobFilters {
    pub fn query(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("state", self.state.clone()),
            ("worker", self.worker.clone()),
            ("queue", self.queue.clone()),
            ("dead_letter_queue", self.dead_letter_queue.clone()),
            ("source", self.source.clone()),
            ("class", self.class.clone()),
            ("code", self.code.clone()),
            ("since", self.since.clone()),
        ]
    }

    pub fn is_empty(&self) -> bool {
        self.query().iter().all(|(_, value)| value.is_none())
    }
}

/// Footer of a list: next page, and how to show one row.
pub(super) fn footer(next: Option<&str>, see_one: &str) -> String {
    let mut text = hint(&format!("\nDetails: {see_one}"));
    if let Some(next) = next {
        text.push_str(&hint(&format!("Next page: --after {next}")));
    }
    text
}

//! Counts and result of the demo, as text.

use std::fmt;
use std::time::Duration;

use sluice_domain::unit::plural;

/// Counts of a running demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DemoCounts {
    pub elapsed: Duration,
    /// Distinct leads sent.
    pub leads: u64,
    /// Requests, repeated ones included.
    pub requests: u64,
    /// Events in the ledger.
    pub accepted: u64,
    pub duplicates: u64,
    /// Calls to the CRM.
    pub calls: u64,
    /// Calls with an injected fault.
    pub faults: u64,
    /// Calls that changed a record and whose response was withheld.
    pub unseen: u64,
    /// Live jobs.
    pub waiting: u64,
    /// Jobs that are dead or unknown.
    pub dead: u64,
    pub replayed: u64,
    /// Records in the CRM.
    pub records: u64,
    /// Leads with a record that was created more than once.
    pub doubled: u64,
}

impl DemoCounts {
    /// Calls beyond one per record.
    pub(crate) fn retries(&self) -> u64 {
        self.calls.saturating_sub(self.records)
    }
}

impl fmt::Display for DemoCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>4} s   {} in {}   {} stopped   CRM: {}, {} failed, {}   {} waiting, {}",
            self.elapsed.as_secs(),
            plural(self.leads, "lead"),
            plural(self.requests, "webhook"),
            plural(self.duplicates, "duplicate"),
            plural(self.records, "record"),
            plural(self.faults, "call"),
            plural(self.retries(), "retry"),
            self.waiting,
            plural(self.dead, "dead letter")
        )
    }
}

/// Result of a demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DemoResult {
    pub counts: DemoCounts,
    /// Every violated guarantee; empty on success.
    pub problems: Vec<String>,
}

impl DemoResult {
    pub(super) fn of(counts: DemoCounts) -> DemoResult {
        let mut problems = Vec::new();
        let mut check = |what: &str, found: u64, wanted: u64| {
            if found != wanted {
                problems.push(format!("{what}: {found}, and it should be {wanted}"));
            }
        };
        check("leads taken in", counts.accepted, counts.leads);
        check("records in the CRM", counts.records, counts.leads);
        check("records created twice", counts.doubled, 0);
        check("leads still on their way", counts.waiting, 0);
        check("dead letters", counts.dead, 0);
        DemoResult { counts, problems }
    }
}

impl fmt::Display for DemoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        let mut row = |count: u64, what: &str| writeln!(f, "  {count:>8}  {what}");
        row(counts.leads, "leads filled in a form")?;
        row(counts.requests, "webhooks arrived, duplicates included")?;
        row(counts.duplicates, "duplicates were recognised and stopped")?;
        row(counts.calls, "calls went to the CRM")?;
        row(counts.faults, "of them were made to fail")?;
        row(counts.unseen, "of those had worked all the same, and said nothing")?;
        row(counts.replayed, "dead letters were replayed")?;
        row(counts.records, "records are in the CRM")?;
        if self.problems.is_empty() {
            return writeln!(f, "\nEvery lead is in the CRM exactly once.");
        }
        writeln!(f, "\nNOT AS PROMISED:")?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "  - {problem}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_names_lost_doubled_and_unfinished_leads() {
        let good = DemoCounts { leads: 10, accepted: 10, records: 10, calls: 14, ..DemoCounts::default() };
        assert_eq!((DemoResult::of(good).problems.len(), good.retries()), (0, 4));
        for bad in [
            DemoCounts { accepted: 9, ..good },
            DemoCounts { records: 9, ..good },
            DemoCounts { records: 11, ..good },
            DemoCounts { doubled: 1, ..good },
            DemoCounts { waiting: 1, ..good },
            DemoCounts { dead: 1, ..good },
        ] {
            assert_eq!(DemoResult::of(bad).problems.len(), 1, "{bad:?}");
        }
        assert!(DemoResult::of(good).to_string().contains("exactly once"));
        assert!(DemoResult::of(DemoCounts { records: 9, ..good }).to_string().contains("NOT AS PROMISED"));
    }
}

//! What is shown, in words that need no glossary.

use std::fmt;
use std::time::Duration;

use sluice_domain::unit::plural;

/// Where the demo stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DemoCounts {
    /// Since the start.
    pub elapsed: Duration,
    /// Different leads that were sent.
    pub leads: u64,
    /// Requests, repeats included.
    pub requests: u64,
    /// Events in the ledger.
    pub accepted: u64,
    /// Repeats that were recognised.
    pub duplicates: u64,
    /// Calls to the CRM.
    pub calls: u64,
    /// Calls that failed on purpose.
    pub faults: u64,
    /// Calls that changed a record though nobody was told so.
    pub unseen: u64,
    /// Jobs on their way.
    pub waiting: u64,
    /// Jobs that nobody retries any more.
    pub dead: u64,
    /// Jobs that were replayed.
    pub replayed: u64,
    /// Records in the CRM.
    pub records: u64,
    /// Leads whose record was created more than once.
    pub doubled: u64,
}

impl DemoCounts {
    /// Calls beyond the one that each record needs.
    pub fn retries(&self) -> u64 {
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
            plural(self.duplicates, "repeat"),
            plural(self.records, "record"),
            plural(self.faults, "call"),
            plural(self.retries(), "retry"),
            self.waiting,
            plural(self.dead, "dead letter")
        )
    }
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Where it stood in the end.
    pub tally: DemoCounts,
    /// Everything that is not as promised; empty if all is well.
    pub problems: Vec<String>,
}

impl Verdict {
    pub(super) fn of(tally: DemoCounts) -> Verdict {
        let mut problems = Vec::new();
        let mut check = |what: &str, found: u64, wanted: u64| {
            if found != wanted {
                problems.push(format!("{what}: {found}, and it should be {wanted}"));
            }
        };
        check("leads taken in", tally.accepted, tally.leads);
        check("records in the CRM", tally.records, tally.leads);
        check("records created twice", tally.doubled, 0);
        check("leads still on their way", tally.waiting, 0);
        check("dead letters", tally.dead, 0);
        Verdict { tally, problems }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        let mut row = |count: u64, what: &str| writeln!(f, "  {count:>8}  {what}");
        row(tally.leads, "leads filled in a form")?;
        row(tally.requests, "webhooks arrived, repeats included")?;
        row(tally.duplicates, "repeats were recognised and stopped")?;
        row(tally.calls, "calls went to the CRM")?;
        row(tally.faults, "of them were made to fail")?;
        row(tally.unseen, "of those had worked all the same, and said nothing")?;
        row(tally.replayed, "dead letters were replayed")?;
        row(tally.records, "records are in the CRM")?;
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
    fn the_verdict_names_what_is_lost_doubled_or_stuck() {
        let good = DemoCounts { leads: 10, accepted: 10, records: 10, calls: 14, ..DemoCounts::default() };
        assert_eq!((Verdict::of(good).problems.len(), good.retries()), (0, 4));
        for bad in [
            DemoCounts { accepted: 9, ..good },
            DemoCounts { records: 9, ..good },
            DemoCounts { records: 11, ..good },
            DemoCounts { doubled: 1, ..good },
            DemoCounts { waiting: 1, ..good },
            DemoCounts { dead: 1, ..good },
        ] {
            assert_eq!(Verdict::of(bad).problems.len(), 1, "{bad:?}");
        }
        assert!(Verdict::of(good).to_string().contains("exactly once"));
        assert!(Verdict::of(DemoCounts { records: 9, ..good }).to_string().contains("NOT AS PROMISED"));
    }
}

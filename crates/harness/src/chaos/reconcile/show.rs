//! The report as text.

use std::collections::BTreeMap;
use std::fmt;

use super::ChaosReport;
use crate::chaos::DiskKind;

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_senders(f)?;
        self.write_faults(f)?;
        self.write_ledger(f)?;
        self.write_crm(f)?;
        for not_done in &self.not_done {
            writeln!(f, "  {not_done}")?;
        }
        writeln!(f, "\nseed {}, {:.0} s", self.seed, self.elapsed_seconds)?;
        if self.balanced() {
            return writeln!(
                f,
                "The books balance: {} leads, {} records, none lost and none doubled.",
                self.senders.leads, self.crm.records
            );
        }
        writeln!(f, "THE BOOKS DO NOT BALANCE:")?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "  - {problem}"))
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: u64, note: &str) -> fmt::Result {
    writeln!(f, "  {name:<36}{value:>10}   {note}")
}

fn counts(counts: &BTreeMap<String, u64>) -> String {
    let parts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

impl ChaosReport {
    fn write_senders(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let senders = &self.senders;
        let statuses = senders.statuses.iter().map(|(status, count)| (status.to_string(), *count)).collect();
        row(f, "leads", senders.leads, "")?;
        row(f, "deliveries", senders.deliveries, "each lead one to five times, out of order")?;
        row(f, "requests", senders.requests, "until every delivery was accepted")?;
        row(f, "  without a response", senders.unanswered, "the node was down, or died before it responded")?;
        row(f, "  with a response", senders.statuses.values().sum(), &counts(&statuses))
    }

    fn write_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (faults, done) = (&self.faults, self.faults.done);
        row(f, "kill -9", done.kills.into(), "")?;
        row(f, "  of a sender process", done.sender_kills.into(), "")?;
        row(f, "SIGSTOP", done.stops.into(), "up to 1.5 s")?;
        row(f, "disk failures", done.disk_failures.into(), "every write failed, and the node ended by itself")?;
        row(f, "disk full", done.disk_full.into(), self.disk_full_note())?;
        row(f, "disk frozen", done.slow_disk.into(), "up to 1.5 s")?;
        row(f, "clock set while running", done.clock_sets.into(), "forward or back")?;
        row(f, "clock jumps", faults.clock_jumps, "the node restarted with another time, later or earlier")?;
        row(f, "CRM unreachable", done.outages.into(), "up to 1.5 s")?;
        let cuts = faults.cut_senders + faults.cut_crm;
        row(f, "connections cut", cuts, &format!("{} to the CRM", faults.cut_crm))
    }

    fn write_ledger(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ledger = &self.ledger;
        let notices = if ledger.notices > 0 { format!("{} notices of alerts", ledger.notices) } else { String::new() };
        row(f, "events in the ledger", ledger.events, &notices)?;
        row(f, "  acknowledged and lost", ledger.lost, "")?;
        row(f, "duplicate requests", ledger.duplicates, "")?;
        row(f, "jobs", ledger.jobs.values().sum(), &counts(&ledger.jobs))?;
        row(f, "  dead and replayed", self.replayed, &counts(&self.died))?;
        row(f, "  pauses ended", self.resumed, "the CRM had rejected two tokens in a row")
    }

    fn write_crm(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChaosReport { crm, attempts, file, .. } = self;
        row(f, "attempts in the ledger", attempts.attempts, &counts(&attempts.outcomes))?;
        row(f, "  that reached the CRM", attempts.arrived, "")?;
        row(f, "  that did not", attempts.never_arrived, "cut, unreachable, or without a token; none of them done")?;
        row(f, "calls to the CRM", crm.calls, "as counted by the CRM")?;
        row(
            f,
            "  further calls of an attempt",
            attempts.called_again,
            "with a new token, or not yet written at a kill",
        )?;
        row(f, "  without an attempt", attempts.strange, "")?;
        row(f, "  with an injected fault", crm.faults, "")?;
        row(f, "  applied, response withheld", crm.applied_unseen, "the calls that cause duplicates elsewhere")?;
        row(f, "records in the CRM", crm.records, "")?;
        row(f, "  created more than once", crm.created_again, "")?;
        row(f, "verified on disk", file.checks.into(), "checks of every row, after the end of the node")?;
        let note = format!("{} done, {} not accounted for", file.done, file.remainder);
        row(f, "  accepted, duplicates included", file.accepted, &note)
    }

    fn disk_full_note(&self) -> &'static str {
        match self.disk {
            DiskKind::Ext4 => "no space on a separate ext4, on a loop device",
            DiskKind::Tmpfs => "no space on a separate tmpfs",
            DiskKind::Shared => "by a file size limit: this machine allows no separate file system",
        }
    }
}

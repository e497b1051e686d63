//! The books as a person reads them.

use std::collections::BTreeMap;
use std::fmt;

use super::ChaosReport;
use crate::chaos::DiskKind;

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChaosReport { senders, ledger, crm, .. } = self;
        let counts = |map: &BTreeMap<String, u64>| {
            let parts: Vec<String> = map.iter().map(|(name, count)| format!("{name} {count}")).collect();
            if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
        };
        let statuses = senders.statuses.iter().map(|(status, count)| (status.to_string(), *count)).collect();
        let died = counts(&self.died);
        let mut row =
            |name: &str, value: &dyn fmt::Display, note: &str| writeln!(f, "  {name:<36}{value:>10}   {note}");
        row("leads", &senders.leads, "")?;
        row("deliveries", &senders.deliveries, "each lead one to five times, out of order")?;
        row("requests", &senders.requests, "until every delivery was answered with a yes")?;
        row("  without an answer", &senders.unanswered, "the node was down, or died before it answered")?;
        row("  answered", &senders.statuses.values().sum::<u64>(), &counts(&statuses))?;
        let ChaosReport { troubles, file, attempts, .. } = self;
        let done = troubles.done;
        row("kill -9", &done.kills, "")?;
        row("  of a process that sends", &done.sender_kills, "")?;
        row("SIGSTOP", &done.stops, "up to a second and a half")?;
        row("disk failures", &done.disk_failures, "no write went through, and the node ended by itself")?;
        row("disk full", &done.disk_full, self.how_full())?;
        row("disk stood still", &done.slow_disk, "up to a second and a half")?;
        row("clock set while it ran", &done.clock_sets, "later or earlier")?;
        row("clock jumps", &troubles.clock_jumps, "the node woke up at another time, later or earlier")?;
        row("CRM out of reach", &done.outages, "up to a second and a half")?;
        let cuts = troubles.cut_senders + troubles.cut_crm;
        row("connections cut midway", &cuts, &format!("{} to the CRM", troubles.cut_crm))?;
        row("events in the ledger", &ledger.events, "")?;
        row("  acknowledged and lost", &ledger.lost, "")?;
        row("repeats stopped", &ledger.duplicates, "")?;
        row("jobs", &ledger.jobs.values().sum::<u64>(), &counts(&ledger.jobs))?;
        row("  died and were replayed", &self.replayed, &died)?;
        row("  pauses lifted", &self.resumed, "the CRM had refused two tokens in a row")?;
        row("attempts in the ledger", &attempts.attempts, &counts(&attempts.outcomes))?;
        row("  that the CRM has seen", &attempts.arrived, "")?;
        row(
            "  that never got there",
            &attempts.never_arrived,
            "cut, out of reach, or without a token; none of them done",
        )?;
        row("calls to the CRM", &crm.calls, "as the CRM counts them")?;
        row(
            "  again for the same attempt",
            &attempts.called_again,
            "with a new token, or not yet written down at a kill",
        )?;
        row("  of no attempt", &attempts.strange, "")?;
        row("  failed on purpose", &crm.faults, "")?;
        row("  applied, and nobody was told", &crm.applied_unseen, "the ones that make doubles elsewhere")?;
        row("records in the CRM", &crm.records, "")?;
        row("  created more than once", &crm.created_again, "")?;
        row("verified on disk", &file.checks, "checks of every row, the node being gone")?;
        row(
            "  accepted, repeats included",
            &file.accepted,
            &format!("{} done, {} left over", file.done, file.remainder),
        )?;
        for not_done in &self.not_done {
            writeln!(f, "  {not_done}")?;
        }
        writeln!(f, "\nseed {}, {:.0} s", self.seed, self.elapsed_seconds)?;
        if self.balanced() {
            return writeln!(
                f,
                "The books balance: {} leads, {} records, none lost and none doubled.",
                senders.leads, crm.records
            );
        }
        writeln!(f, "THE BOOKS DO NOT BALANCE:")?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "  - {problem}"))
    }
}

impl ChaosReport {
    fn how_full(&self) -> &'static str {
        match self.disk {
            DiskKind::Ext4 => "no room on an ext4 of its own, on a loop device",
            DiskKind::Tmpfs => "no room on a tmpfs of its own",
            DiskKind::Shared => "by a limit on the size of files: no file system of its own is allowed here",
        }
    }
}

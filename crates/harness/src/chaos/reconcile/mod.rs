//! Report of a chaos run: reconciles senders, ledger and CRM, which must agree on every lead.

mod attempts;
mod crm;
mod ledger;
mod show;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use sluice_domain::unit::plural;
use sluice_simulator::crm::SeenCall;
use sluice_simulator::traffic::Traffic;

use super::controller::RunHandles;
use super::deliveries::Deliveries;
use super::host::Host;
use super::operator::AutoOperator;
use super::processes::{DiskKind, FileCounts};
use super::proxies::Crm;
use super::{ChaosSettings, FaultCounts};
use crate::Api;
pub use attempts::AttemptCounts;

/// Totals of the senders.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SendersCounts {
    /// Distinct leads.
    pub leads: u64,
    /// Deliveries: one to five per lead.
    pub deliveries: u64,
    /// Requests, repeated ones included.
    pub requests: u64,
    /// Requests without a response: the node was down or died first.
    pub unanswered: u64,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Distinct acknowledged events.
    pub acknowledged: u64,
}

/// Totals of the ledger, read from the running node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LedgerCounts {
    pub events: u64,
    /// Notices of alerts among them: the faults last long enough for some to fire.
    pub notices: u64,
    /// Acknowledged events that are missing.
    pub lost: u64,
    pub duplicates: u64,
    pub clashes: u64,
    /// Jobs by state.
    pub jobs: BTreeMap<String, u64>,
    /// What the counters of the node say.
    pub counted: Counted,
}

/// Counters of the node since the ledger was created, over every kill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub accepted: u64,
    pub duplicates: u64,
    /// Jobs that ended as succeeded, replayed ones included.
    pub succeeded: u64,
    /// Calls of the CRM that were done.
    pub calls_done: u64,
}

/// Totals of the CRM.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CrmCounts {
    pub calls: u64,
    /// Calls with an injected fault.
    pub faults: u64,
    /// Calls that changed a record and whose response was withheld.
    pub applied_unseen: u64,
    pub records: u64,
    /// Leads with a record that was created more than once.
    pub created_again: u64,
    /// Leads with more than one record.
    pub ambiguous: u64,
    /// Leads without a record, or with wrong fields.
    pub incomplete: u64,
    /// Calls whose details the CRM no longer keeps.
    pub forgotten: u64,
}

/// Totals of the injected faults.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InjectedCounts {
    #[serde(flatten)]
    pub done: FaultCounts,
    /// Restarts with a set clock.
    pub clock_jumps: u64,
    /// Cut connections from senders.
    pub cut_senders: u64,
    /// Cut connections to the CRM.
    pub cut_crm: u64,
}

/// The report. It is balanced if it has no problems.
#[derive(Clone, Debug, Serialize)]
pub struct ChaosReport {
    /// Seed that repeats the run.
    pub seed: u64,
    pub elapsed_seconds: f64,
    /// File system of the node's data directory.
    pub disk: DiskKind,
    /// Wanted faults, without those that this machine does not support.
    pub possible: FaultCounts,
    /// Faults that this machine does not support, and what they need.
    pub not_done: Vec<String>,
    /// Injected faults.
    #[serde(rename = "troubles")]
    pub faults: InjectedCounts,
    /// Totals of the ledger file.
    pub file: FileCounts,
    pub senders: SendersCounts,
    pub ledger: LedgerCounts,
    pub crm: CrmCounts,
    /// Attempts in the ledger compared with calls at the CRM.
    pub attempts: AttemptCounts,
    /// Dead jobs that were replayed, by failure code.
    pub died: BTreeMap<String, u64>,
    /// Jobs replayed by the operator.
    pub replayed: u64,
    /// Pauses ended by the operator.
    pub resumed: u64,
    /// Every discrepancy.
    pub problems: Vec<String>,
    #[serde(skip)]
    acknowledged: HashSet<String>,
}

impl ChaosReport {
    pub(super) fn open(settings: &ChaosSettings, host: &Host) -> ChaosReport {
        let mut possible = settings.faults;
        let mut not_done = Vec::new();
        if possible.slow_disk > 0 && !host.freezes {
            possible.slow_disk = 0;
            not_done.push("slow disk: NOT DONE, it needs root, a loop device, mkfs.ext4 and fsfreeze".to_owned());
        }
        ChaosReport {
            seed: settings.seed,
            elapsed_seconds: 0.0,
            disk: host.disk,
            possible,
            not_done,
            faults: InjectedCounts::default(),
            file: FileCounts::default(),
            senders: SendersCounts { leads: u64::from(settings.leads), ..SendersCounts::default() },
            ledger: LedgerCounts::default(),
            crm: CrmCounts::default(),
            attempts: AttemptCounts::default(),
            died: BTreeMap::new(),
            replayed: 0,
            resumed: 0,
            problems: Vec::new(),
            acknowledged: HashSet::new(),
        }
    }

    /// Adds a discrepancy, once.
    pub(super) fn note(&mut self, problem: impl Into<String>) {
        let problem = problem.into();
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Adds the likely cause of all other discrepancies.
    pub(super) fn note_first(&mut self, problem: impl Into<String>) {
        let problem = problem.into();
        self.problems.retain(|other| *other != problem);
        self.problems.insert(0, problem);
    }

    pub(super) fn read_senders(&mut self, deliveries: &Deliveries, traffic: &Traffic) {
        let sent = deliveries.sent().clone();
        if !deliveries.complete() {
            self.note("the senders did not get everything through in time");
        }
        if sent.mismatched > 0 {
            self.note(format!("{} answered with another event than the first", plural(sent.mismatched, "repeat")));
        }
        self.acknowledged = sent.acknowledged().into_iter().map(str::to_owned).collect();
        self.senders = SendersCounts {
            leads: u64::from(traffic.leads()),
            deliveries: traffic.deliveries().len() as u64,
            requests: sent.requests,
            unanswered: sent.unanswered,
            statuses: sent.statuses,
            acknowledged: self.acknowledged.len() as u64,
        };
    }

    pub(super) fn read_operator(&mut self, operator: &AutoOperator) {
        for (code, count) in operator.unexplained() {
            self.note(format!("{} died of {code}, which nothing explains", plural(count, "job")));
        }
        self.died = operator.died.clone();
        (self.replayed, self.resumed) = (operator.replayed, operator.resumed);
    }

    pub(super) async fn read_faults(&mut self, handles: &RunHandles) {
        let cuts = (handles.to_node.cuts().await, handles.to_crm.cuts().await);
        let (cut_senders, cut_crm) = match cuts {
            (Ok(senders), Ok(crm)) => (senders, crm),
            (Err(error), _) | (_, Err(error)) => return self.note(error.to_string()),
        };
        let clock_jumps = handles.progress.clock_jumps.load(std::sync::atomic::Ordering::Relaxed);
        self.faults = InjectedCounts { done: *handles.progress.faults(), clock_jumps, cut_senders, cut_crm };
    }

    /// Reads the totals of the ledger; a failure is a discrepancy.
    pub(super) async fn read_ledger(&mut self, api: &Api) {
        match ledger::read(api, &self.acknowledged).await {
            Ok(counts) => self.ledger = counts,
            Err(error) => self.note(format!("the ledger could not be read: {error}")),
        }
    }

    /// Reads the totals of the CRM and returns every call that it received.
    pub(super) async fn read_crm(&mut self, crm: &Crm, traffic: &Traffic) -> Vec<SeenCall> {
        match crm::read(crm, traffic).await {
            Ok((counts, calls)) => {
                self.crm = counts;
                calls
            }
            Err(error) => {
                self.note(format!("the CRM could not be read: {error}"));
                Vec::new()
            }
        }
    }

    /// Verifies the ledger file; the node must have ended.
    pub(super) async fn inspect(&mut self, host: &mut Host, calls: &[SeenCall]) {
        match host.inspect().await {
            Ok(found) => {
                self.problems.extend(found.broken);
                self.file = found.counts;
                self.attempts = AttemptCounts::reconcile(&found.attempts, calls);
            }
            Err(error) => self.note(format!("the ledger file could not be verified: {error}")),
        }
    }

    /// Compares the totals.
    pub(super) fn close(&mut self, elapsed: Duration) {
        self.elapsed_seconds = elapsed.as_secs_f64();
        let (senders, ledger, crm, leads) = (&self.senders, &self.ledger, &self.crm, self.senders.leads);
        let accepted = senders.statuses.get(&202).copied().unwrap_or(0);
        let others = ledger.jobs.iter().filter(|(state, _)| *state != "succeeded");
        let checks = [
            ("answers 202 that the file does not count", accepted.saturating_sub(self.file.accepted), 0),
            ("acknowledged events", senders.acknowledged, leads),
            ("acknowledged events that are not in the ledger", ledger.lost, 0),
            ("events in the ledger without notices of alerts", ledger.events.saturating_sub(ledger.notices), leads),
            ("repeats with another content", ledger.clashes, 0),
            ("accepted events by the counters", ledger.counted.accepted, ledger.events),
            (
                "accepted events and duplicates by the counters",
                ledger.counted.accepted + ledger.counted.duplicates,
                self.file.accepted,
            ),
            (
                "succeeded jobs by the counters",
                ledger.counted.succeeded,
                ledger.jobs.get("succeeded").copied().unwrap_or(0),
            ),
            (
                "done calls by the counters",
                ledger.counted.calls_done,
                self.attempts.outcomes.get("done").copied().unwrap_or(0),
            ),
            ("records in the CRM", crm.records, leads),
            ("leads whose record was created more than once", crm.created_again, 0),
            ("leads with more than one record", crm.ambiguous, 0),
            ("leads without a whole record", crm.incomplete, 0),
            ("calls that the CRM has forgotten", crm.forgotten, 0),
            ("calls that no attempt in the ledger has made", self.attempts.strange, 0),
            ("attempts that are done without a call that changed anything", self.attempts.unfounded, 0),
            ("leads with an attempt that is done", self.attempts.outcomes.get("done").copied().unwrap_or(0), leads),
            ("events that the file says are done", self.file.done, leads),
            ("events that the file cannot account for", self.file.remainder, 0),
            ("jobs that succeeded", ledger.jobs.get("succeeded").copied().unwrap_or(0), leads),
            ("jobs that did not", others.map(|(_, count)| count).sum(), 0),
        ];
        let wrong = checks
            .into_iter()
            .filter(|(_, found, wanted)| found != wanted)
            .map(|(what, found, wanted)| format!("{what}: {found}, and it should be {wanted}"));
        let missed = self
            .possible
            .all()
            .into_iter()
            .zip(self.faults.done.all())
            .filter(|((_, wanted, _), (_, done, _))| wanted != done)
            .map(|((_, wanted, what), (_, done, _))| format!("{what} {done} times, not {wanted}"));
        let found: Vec<String> = wrong.chain(missed).collect();
        self.problems.extend(found);
    }

    /// True if there is no discrepancy.
    pub fn balanced(&self) -> bool {
        self.problems.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> ChaosReport {
        let jobs = BTreeMap::from([("succeeded".to_owned(), 10)]);
        let done = FaultCounts { kills: 3, ..FaultCounts::default() };
        let counted = Counted { accepted: 10, succeeded: 10, calls_done: 10, ..Counted::default() };
        ChaosReport {
            seed: 1,
            elapsed_seconds: 0.0,
            disk: DiskKind::Shared,
            possible: done,
            not_done: vec![],
            faults: InjectedCounts { done, ..InjectedCounts::default() },
            file: FileCounts { accepted: 10, done: 10, ..FileCounts::default() },
            senders: SendersCounts { leads: 10, acknowledged: 10, ..SendersCounts::default() },
            ledger: LedgerCounts { events: 10, jobs, counted, ..LedgerCounts::default() },
            crm: CrmCounts { records: 10, ..CrmCounts::default() },
            attempts: AttemptCounts { outcomes: BTreeMap::from([("done".to_owned(), 10)]), ..AttemptCounts::default() },
            died: BTreeMap::new(),
            replayed: 0,
            resumed: 0,
            problems: vec![],
            acknowledged: HashSet::new(),
        }
    }

    fn problems(change: impl FnOnce(&mut ChaosReport)) -> Vec<String> {
        let mut report = report();
        change(&mut report);
        report.close(Duration::ZERO);
        report.problems
    }

    #[test]
    fn every_disagreement_is_found() {
        assert_eq!(problems(|_| {}), Vec::<String>::new());
        for change in [
            (|report| report.senders.acknowledged = 9) as fn(&mut ChaosReport),
            |report| report.senders.statuses = BTreeMap::from([(202, 11)]),
            |report| report.ledger.lost = 1,
            |report| (report.ledger.events, report.ledger.counted.accepted, report.file.accepted) = (11, 11, 11),
            |report| (report.ledger.counted.accepted, report.ledger.counted.duplicates) = (9, 1),
            |report| report.ledger.counted.duplicates = 1,
            |report| report.ledger.counted.succeeded = 11,
            |report| report.ledger.counted.calls_done = 11,
            |report| report.ledger.clashes = 1,
            |report| report.crm.records = 9,
            |report| report.crm.records = 11,
            |report| report.crm.created_again = 1,
            |report| report.crm.ambiguous = 1,
            |report| report.crm.incomplete = 1,
            |report| report.crm.forgotten = 1,
            |report| report.attempts.strange = 1,
            |report| report.attempts.unfounded = 1,
            |report| (report.attempts.outcomes, report.ledger.counted.calls_done) = (BTreeMap::new(), 0),
            |report| report.file.done = 9,
            |report| report.file.remainder = 1,
            |report| report.faults.done.kills = 2,
            |report| report.faults.done.disk_full = 1,
        ] {
            assert_eq!(problems(change).len(), 1);
        }
        let dead = problems(|report| {
            report.ledger.jobs = BTreeMap::from([("succeeded".to_owned(), 9), ("dead".to_owned(), 1)]);
            report.ledger.counted.succeeded = 9;
        });
        assert_eq!(dead.len(), 2, "{dead:?}");
    }
}

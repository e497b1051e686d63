//! The books after a run: three accounts of the same leads, which must agree.

mod attempts;
mod crm;
mod ledger;
mod show;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use sluice_domain::unit::plural;
use sluice_simulator::salesforce::SeenCall;
use sluice_simulator::traffic::Traffic;

use super::controller::Around;
use super::deliveries::Deliveries;
use super::host::Host;
use super::operator::AutoOperator;
use super::processes::{DiskKind, FileBook};
use super::proxies::Crm;
use super::{ChaosSettings, FaultCounts};
use crate::Api;
pub use attempts::AttemptCounts;

/// What the senders know.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SendersCounts {
    /// Different leads.
    pub leads: u64,
    /// Deliveries: each lead one to five times.
    pub deliveries: u64,
    /// Requests, those included that had to be sent again.
    pub requests: u64,
    /// Requests that nobody answered: the node was down, or died before it answered.
    pub unanswered: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Different events that were acknowledged.
    pub acknowledged: u64,
}

/// What the ledger says.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LedgerCounts {
    /// Events.
    pub events: u64,
    /// Acknowledged events that are not there.
    pub lost: u64,
    /// Repeats that were recognised.
    pub duplicates: u64,
    /// Repeats with another content.
    pub clashes: u64,
    /// Jobs by state.
    pub jobs: BTreeMap<String, u64>,
}

/// What really happened in the CRM.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CrmCounts {
    /// Calls.
    pub calls: u64,
    /// Calls that failed on purpose.
    pub faults: u64,
    /// Calls that changed a record though the node was not told so.
    pub applied_unseen: u64,
    /// Records.
    pub records: u64,
    /// Leads whose record was created more than once.
    pub created_again: u64,
    /// Leads with more than one record.
    pub ambiguous: u64,
    /// Leads without a record, or with one that lacks what the lead says.
    pub incomplete: u64,
    /// Calls that it no longer knows one by one.
    pub forgotten: u64,
}

/// What was done to the node and to those around it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TroubleCounts {
    /// What was done, and how often.
    #[serde(flatten)]
    pub done: FaultCounts,
    /// Times that it woke up at another time.
    pub clock_jumps: u64,
    /// Connections from senders that were cut midway.
    pub cut_senders: u64,
    /// Connections to the CRM that were cut midway.
    pub cut_crm: u64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct ChaosReport {
    /// Repeats the run.
    pub seed: u64,
    /// How long it took.
    pub elapsed_seconds: f64,
    /// What the node's data lay on.
    pub disk: DiskKind,
    /// What was to be done, as far as this machine allows it.
    pub possible: FaultCounts,
    /// What this machine does not allow, and what it would need.
    pub not_done: Vec<String>,
    /// What was done to the node.
    pub troubles: TroubleCounts,
    /// What its file says.
    pub file: FileBook,
    /// What the senders know.
    pub senders: SendersCounts,
    /// What the ledger says.
    pub ledger: LedgerCounts,
    /// What the CRM holds.
    pub crm: CrmCounts,
    /// Every attempt in the ledger, and every call that reached the CRM.
    pub attempts: AttemptCounts,
    /// Jobs that died on the way, by the code of their failure, and were replayed.
    pub died: BTreeMap<String, u64>,
    /// Jobs replayed by the person on duty.
    pub replayed: u64,
    /// Pauses lifted by the person on duty.
    pub resumed: u64,
    /// Everything that does not add up.
    pub problems: Vec<String>,
    #[serde(skip)]
    acknowledged: HashSet<String>,
}

impl ChaosReport {
    pub(super) fn open(settings: &ChaosSettings, host: &Host) -> ChaosReport {
        let mut possible = settings.troubles;
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
            troubles: TroubleCounts::default(),
            file: FileBook::default(),
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

    /// Something that does not add up.
    pub(super) fn note(&mut self, problem: impl Into<String>) {
        let problem = problem.into();
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// What all the rest may come from.
    pub(super) fn note_first(&mut self, problem: impl Into<String>) {
        let problem = problem.into();
        self.problems.retain(|other| *other != problem);
        self.problems.insert(0, problem);
    }

    /// Enters what the senders know.
    pub(super) fn read_senders(&mut self, deliveries: &Deliveries, traffic: &Traffic) {
        let sent = deliveries.sent().clone();
        if !deliveries.complete() {
            self.note("the senders did not get everything through in time");
        }
        if sent.renamed > 0 {
            self.note(format!("{} answered with another event than the first", plural(sent.renamed, "repeat")));
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

    /// Enters what the person on duty saw and did.
    pub(super) fn read_operator(&mut self, operator: &AutoOperator) {
        for (code, count) in operator.unexplained() {
            self.note(format!("{} died of {code}, which nothing explains", plural(count, "job")));
        }
        self.died = operator.died.clone();
        (self.replayed, self.resumed) = (operator.replayed, operator.resumed);
    }

    /// Enters what was done.
    pub(super) async fn read_troubles(&mut self, around: &Around) {
        let cuts = (around.to_node.cuts().await, around.to_crm.cuts().await);
        let (cut_senders, cut_crm) = match cuts {
            (Ok(senders), Ok(crm)) => (senders, crm),
            (Err(error), _) | (_, Err(error)) => return self.note(error.to_string()),
        };
        let clock_jumps = around.progress.wakes.load(std::sync::atomic::Ordering::Relaxed);
        self.troubles = TroubleCounts { done: *around.progress.troubles(), clock_jumps, cut_senders, cut_crm };
    }

    /// Reads what the ledger says; what cannot be read does not balance.
    pub(super) async fn read_ledger(&mut self, api: Api) {
        match ledger::read(api, &self.acknowledged).await {
            Ok(book) => self.ledger = book,
            Err(error) => self.note(format!("the ledger could not be read: {error}")),
        }
    }

    /// Reads what the CRM holds, and answers every call that reached it.
    pub(super) async fn read_crm(&mut self, crm: &Crm, traffic: &Traffic) -> Vec<SeenCall> {
        match crm::read(crm, traffic).await {
            Ok((book, calls)) => {
                self.crm = book;
                calls
            }
            Err(error) => {
                self.note(format!("the CRM could not be read: {error}"));
                Vec::new()
            }
        }
    }

    /// Looks at the ledger's file, with no node running.
    pub(super) async fn inspect(&mut self, host: &mut Host, calls: &[SeenCall]) {
        match host.inspect().await {
            Ok(found) => {
                self.problems.extend(found.broken);
                self.file = found.book;
                self.attempts = AttemptCounts::balance(&found.attempts, calls);
            }
            Err(error) => self.note(format!("the file of the ledger could not be looked at: {error}")),
        }
    }

    /// Compares the accounts.
    pub(super) fn close(&mut self, elapsed: Duration) {
        self.elapsed_seconds = elapsed.as_secs_f64();
        let (senders, ledger, crm, leads) = (&self.senders, &self.ledger, &self.crm, self.senders.leads);
        let yes = senders.statuses.get(&202).copied().unwrap_or(0);
        let others = ledger.jobs.iter().filter(|(state, _)| *state != "succeeded");
        let checks = [
            ("answers 202 that the file does not count", yes.saturating_sub(self.file.accepted), 0),
            ("acknowledged events", senders.acknowledged, leads),
            ("acknowledged events that are not in the ledger", ledger.lost, 0),
            ("events in the ledger", ledger.events, leads),
            ("repeats with another content", ledger.clashes, 0),
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
            .zip(self.troubles.done.all())
            .filter(|((_, wanted, _), (_, done, _))| wanted != done)
            .map(|((_, wanted, what), (_, done, _))| format!("{what} {done} times, not {wanted}"));
        let found: Vec<String> = wrong.chain(missed).collect();
        self.problems.extend(found);
    }

    /// Whether everything adds up.
    pub fn balanced(&self) -> bool {
        self.problems.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> ChaosReport {
        let jobs = BTreeMap::from([("succeeded".to_owned(), 10)]);
        let done = FaultCounts { kills: 3, ..FaultCounts::default() };
        ChaosReport {
            seed: 1,
            elapsed_seconds: 0.0,
            disk: DiskKind::Shared,
            possible: done,
            not_done: vec![],
            troubles: TroubleCounts { done, ..TroubleCounts::default() },
            file: FileBook { done: 10, ..FileBook::default() },
            senders: SendersCounts { leads: 10, acknowledged: 10, ..SendersCounts::default() },
            ledger: LedgerCounts { events: 10, jobs, ..LedgerCounts::default() },
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
        let mut books = books();
        change(&mut books);
        books.close(Duration::ZERO);
        books.problems
    }

    #[test]
    fn every_disagreement_is_found() {
        assert_eq!(problems(|_| {}), Vec::<String>::new());
        for change in [
            (|books| books.senders.acknowledged = 9) as fn(&mut ChaosReport),
            |books| books.senders.statuses = BTreeMap::from([(202, 1)]),
            |books| books.ledger.lost = 1,
            |books| books.ledger.events = 11,
            |books| books.ledger.clashes = 1,
            |books| books.crm.records = 9,
            |books| books.crm.records = 11,
            |books| books.crm.created_again = 1,
            |books| books.crm.ambiguous = 1,
            |books| books.crm.incomplete = 1,
            |books| books.crm.forgotten = 1,
            |books| books.attempts.strange = 1,
            |books| books.attempts.unfounded = 1,
            |books| books.attempts.outcomes.clear(),
            |books| books.file.done = 9,
            |books| books.file.remainder = 1,
            |books| books.troubles.done.kills = 2,
            |books| books.troubles.done.disk_full = 1,
        ] {
            assert_eq!(problems(change).len(), 1);
        }
        let dead = problems(|books| {
            books.ledger.jobs = BTreeMap::from([("succeeded".to_owned(), 9), ("dead".to_owned(), 1)]);
        });
        assert_eq!(dead.len(), 2, "{dead:?}");
    }
}

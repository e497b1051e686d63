//! The books after a run: three accounts of the same leads, which must agree.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use sluice_domain::time::Time;
use sluice_ledger::Inspector;
use sluice_simulator::Salesforce;
use sluice_simulator::senders::Traffic;

use super::director::Ways;
use super::operator::Operator;
use super::senders::Sent;
use super::{Progress, Settings};
use crate::operate::view::{EventView, List, SourceView, Status};
use crate::stage::{Api, Error};

/// Events of one page of the list.
const PAGE: usize = 500;

/// What the senders know.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SendersBook {
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
pub struct LedgerBook {
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
pub struct CrmBook {
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
}

/// What was done to the node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TroubleBook {
    /// Times that it was killed.
    pub kills: u64,
    /// Times that it was stopped for a moment.
    pub stops: u64,
    /// Times that its disk failed and it ended by itself.
    pub disk_failures: u64,
    /// Times that nobody reached the CRM for a moment.
    pub outages: u64,
    /// Times that it woke up at another time.
    pub clock_jumps: u64,
    /// Connections from senders that were cut midway.
    pub cut_senders: u64,
    /// Connections to the CRM that were cut midway.
    pub cut_crm: u64,
}

impl TroubleBook {
    pub(super) fn of(progress: &Progress, ways: &Ways) -> TroubleBook {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TroubleBook {
            kills: count(&progress.kills),
            stops: count(&progress.stops),
            disk_failures: count(&progress.disk_failures),
            outages: count(&progress.outages),
            clock_jumps: count(&progress.clock_jumps),
            cut_senders: ways.intake.cuts(),
            cut_crm: ways.crm.cuts(),
        }
    }
}

/// What the ledger's file says by itself, once the node is gone.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileBook {
    /// Checks of `sluice verify`.
    pub checks: u32,
    /// Requests that were accepted, repeats included, by `sluice balance`.
    pub accepted: u64,
    /// Of these, done.
    pub done: u64,
    /// What neither is there nor was pruned.
    pub remainder: i64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Books {
    /// Repeats the run.
    pub seed: u64,
    /// How long it took.
    pub elapsed_seconds: f64,
    /// What was done to the node.
    pub troubles: TroubleBook,
    /// What its file says.
    pub file: FileBook,
    /// What the senders know.
    pub senders: SendersBook,
    /// What the ledger says.
    pub ledger: LedgerBook,
    /// What the CRM holds.
    pub crm: CrmBook,
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

impl Books {
    pub(super) fn open(
        settings: &Settings,
        traffic: &Traffic,
        crm: &Salesforce,
        sent: Option<Sent>,
        operator: &Operator,
        troubles: TroubleBook,
    ) -> Books {
        let mut problems = Vec::new();
        if sent.is_none() {
            problems.push("the senders did not get everything through in time".to_owned());
        }
        let sent = sent.unwrap_or_default();
        if sent.renamed > 0 {
            problems.push(format!("{} repeats were answered with another event than their first", sent.renamed));
        }
        if troubles.kills < u64::from(settings.kills) {
            problems.push(format!("the node was killed {} times, not {}", troubles.kills, settings.kills));
        }
        for (code, count) in operator.unexplained() {
            problems.push(format!("{count} jobs died of {code}, which nothing explains"));
        }
        Books {
            seed: settings.seed,
            elapsed_seconds: 0.0,
            troubles,
            file: FileBook::default(),
            senders: SendersBook {
                leads: u64::from(traffic.leads()),
                deliveries: traffic.deliveries().len() as u64,
                requests: sent.requests,
                unanswered: sent.unanswered,
                statuses: sent.statuses,
                acknowledged: sent.acknowledged.len() as u64,
            },
            ledger: LedgerBook::default(),
            crm: read_crm(traffic, crm),
            died: operator.died.clone(),
            replayed: operator.replayed,
            resumed: operator.resumed,
            problems,
            acknowledged: sent.acknowledged,
        }
    }

    /// Something that does not add up.
    pub(super) fn note(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// Reads what the ledger says; what cannot be read does not balance.
    pub(super) async fn read_ledger(&mut self, api: Api) {
        match read_ledger(api, &self.acknowledged).await {
            Ok(book) => self.ledger = book,
            Err(error) => self.note(format!("the ledger could not be read: {error}")),
        }
    }

    /// Looks at the ledger's file as `sluice verify` and `sluice balance` do.
    pub(super) fn inspect(&mut self, data: &Path) {
        let looked = Inspector::open(data).and_then(|file| Ok((file.verify(|_, _| {})?, file.balance(Time(0))?)));
        let (found, lines) = match looked {
            Ok(looked) => looked,
            Err(error) => return self.note(format!("the file of the ledger could not be looked at: {error}")),
        };
        for broken in found.broken {
            self.note(format!("{}. {}: {}", broken.number, broken.invariant, broken.row));
        }
        self.file = FileBook {
            checks: found.checks,
            accepted: lines.iter().map(|line| line.accepted).sum(),
            done: lines.iter().map(|line| line.done).sum(),
            remainder: lines.iter().map(|line| line.remainder.abs()).sum(),
        };
    }

    /// Compares the accounts.
    pub(super) fn close(&mut self, elapsed: Duration) {
        self.elapsed_seconds = elapsed.as_secs_f64();
        let (senders, ledger, crm, leads) = (&self.senders, &self.ledger, &self.crm, self.senders.leads);
        let mut checks = vec![
            ("acknowledged events", senders.acknowledged, leads),
            ("acknowledged events that are not in the ledger", ledger.lost, 0),
            ("events in the ledger", ledger.events, leads),
            ("repeats with another content", ledger.clashes, 0),
            ("records in the CRM", crm.records, leads),
            ("leads whose record was created more than once", crm.created_again, 0),
            ("leads with more than one record", crm.ambiguous, 0),
            ("leads without a whole record", crm.incomplete, 0),
            ("events that the file says are done", self.file.done, leads),
            ("events that the file cannot account for", self.file.remainder.unsigned_abs(), 0),
            ("jobs that succeeded", ledger.jobs.get("succeeded").copied().unwrap_or(0), leads),
        ];
        let others = ledger.jobs.iter().filter(|(state, _)| *state != "succeeded");
        checks.push(("jobs that did not", others.map(|(_, count)| count).sum(), 0));
        let wrong: Vec<String> = checks
            .into_iter()
            .filter(|(_, found, wanted)| found != wanted)
            .map(|(what, found, wanted)| format!("{what}: {found}, and it should be {wanted}"))
            .collect();
        self.problems.extend(wrong);
    }

    /// Whether everything adds up.
    pub fn balanced(&self) -> bool {
        self.problems.is_empty()
    }
}

fn read_crm(traffic: &Traffic, crm: &Salesforce) -> CrmBook {
    let (truth, records) = (crm.truth(), crm.records("Lead"));
    let text = |record: &sluice_simulator::salesforce::Record, field: &str| {
        record.fields.get(field).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let emails: HashMap<String, String> =
        records.iter().map(|record| (text(record, "External_Lead_Id__c"), text(record, "Email"))).collect();
    let whole = |lead: u32| {
        let lead = traffic.lead(lead);
        emails.get(&lead.event_id).is_some_and(|email| *email == lead.email.to_lowercase())
    };
    let lead = truth.object("Lead");
    CrmBook {
        calls: truth.calls.received,
        faults: truth.faults_total(),
        applied_unseen: truth.calls.applied_unseen,
        records: lead.records,
        created_again: lead.created_again,
        ambiguous: lead.ambiguous,
        incomplete: (0..traffic.leads()).filter(|lead| !whole(*lead)).count() as u64,
    }
}

async fn read_ledger(api: Api, acknowledged: &HashSet<String>) -> Result<LedgerBook, Error> {
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
    Ok(LedgerBook {
        events: status.events,
        lost: missing.len() as u64,
        duplicates: sources.iter().map(|source| source.duplicates).sum(),
        clashes: sources.iter().map(|source| source.clashes).sum(),
        jobs: status.jobs,
    })
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Books { senders, ledger, crm, .. } = self;
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
        let Books { troubles, file, .. } = self;
        row("kill -9", &troubles.kills, "")?;
        row("SIGSTOP", &troubles.stops, "up to a second and a half")?;
        row("disk failures", &troubles.disk_failures, "no write went through, and the node ended by itself")?;
        row("clock jumps", &troubles.clock_jumps, "the node woke up at another time, later or earlier")?;
        row("CRM out of reach", &troubles.outages, "up to a second and a half")?;
        let cuts = troubles.cut_senders + troubles.cut_crm;
        row("connections cut midway", &cuts, &format!("{} to the CRM", troubles.cut_crm))?;
        row("events in the ledger", &ledger.events, "")?;
        row("  acknowledged and lost", &ledger.lost, "")?;
        row("repeats stopped", &ledger.duplicates, "")?;
        row("jobs", &ledger.jobs.values().sum::<u64>(), &counts(&ledger.jobs))?;
        row("  died and were replayed", &self.replayed, &died)?;
        row("  pauses lifted", &self.resumed, "the CRM had refused two tokens in a row")?;
        row("calls to the CRM", &crm.calls, "")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Books {
        let jobs = BTreeMap::from([("succeeded".to_owned(), 10)]);
        Books {
            seed: 1,
            elapsed_seconds: 0.0,
            troubles: TroubleBook { kills: 3, ..TroubleBook::default() },
            file: FileBook { done: 10, ..FileBook::default() },
            senders: SendersBook { leads: 10, acknowledged: 10, ..SendersBook::default() },
            ledger: LedgerBook { events: 10, jobs, ..LedgerBook::default() },
            crm: CrmBook { records: 10, ..CrmBook::default() },
            died: BTreeMap::new(),
            replayed: 0,
            resumed: 0,
            problems: vec![],
            acknowledged: HashSet::new(),
        }
    }

    fn problems(change: impl FnOnce(&mut Books)) -> Vec<String> {
        let mut books = books();
        change(&mut books);
        books.close(Duration::ZERO);
        books.problems
    }

    #[test]
    fn every_disagreement_is_found() {
        assert_eq!(problems(|_| {}), Vec::<String>::new());
        for change in [
            (|books| books.senders.acknowledged = 9) as fn(&mut Books),
            |books| books.ledger.lost = 1,
            |books| books.ledger.events = 11,
            |books| books.ledger.clashes = 1,
            |books| books.crm.records = 9,
            |books| books.crm.records = 11,
            |books| books.crm.created_again = 1,
            |books| books.crm.ambiguous = 1,
            |books| books.crm.incomplete = 1,
            |books| books.file.done = 9,
            |books| books.file.remainder = 1,
        ] {
            assert_eq!(problems(change).len(), 1);
        }
        let dead = problems(|books| {
            books.ledger.jobs = BTreeMap::from([("succeeded".to_owned(), 9), ("dead".to_owned(), 1)]);
        });
        assert_eq!(dead.len(), 2, "{dead:?}");
    }
}

//! Shadow: a configuration that runs beside the active one on accepted requests, after their commit. Nothing of it has an effect.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_domain::time::Time;
use sluice_ledger::{EventSeq, KeepShadow, Ledger, ShadowRecord, StoredEvent, StoredQuery};
use tokio::sync::watch;

use super::TrialInput;
use super::apply::TrialRun;
use crate::change::TrialReport;
use crate::config::Files;
use crate::revisions::{LoadedRevision, Revisions};
use crate::run;

const INTERVAL: Duration = Duration::from_secs(1);
/// Requests of one look: at most so many per second are compared.
const LOOK_EVENTS: u32 = 200;
const LOOK_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Events behind the newest one from which the oldest are left out.
const BEHIND_MAX: EventSeq = 2_000;

/// What a shadow has shown so far, as it is stored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ShadowReport {
    pub report: TrialReport,
    /// Requests that were not compared: too many arrived, or the comparison failed.
    pub left_out: u64,
    /// Why the last requests were not compared.
    #[serde(default)]
    pub problem: Option<String>,
}

impl ShadowReport {
    pub(crate) fn of(record: &ShadowRecord) -> ShadowReport {
        serde_json::from_str(&record.report).unwrap_or_default()
    }
}

/// Runs the shadow of a node.
#[derive(Debug)]
pub(crate) struct ShadowRun {
    ledger: Ledger,
    revisions: Revisions,
    /// The last one that was compiled.
    candidate: Option<Arc<LoadedRevision>>,
    /// Compares one request. Tests replace it.
    pub(super) compare_one: fn(&mut TrialRun, &StoredEvent),
}

impl ShadowRun {
    pub(crate) fn new(ledger: Ledger, revisions: Revisions) -> ShadowRun {
        ShadowRun { ledger, revisions, candidate: None, compare_one: TrialRun::add }
    }

    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            match self.look().await {
                Ok(()) => {}
                Err(sluice_ledger::Error::Failed) => return,
                Err(error) => tracing::warn!(%error, "the shadow configuration was not compared; comparing again"),
            }
        }
    }

    /// Compares the next requests.
    pub(super) async fn look(&mut self) -> Result<(), sluice_ledger::Error> {
        let Some(record) = self.ledger.shadow().await? else {
            self.candidate = None;
            return Ok(());
        };
        let active = self.revisions.current();
        if *active.revision == *record.hash {
            // It was applied.
            return Ok(());
        }
        let query = StoredQuery { after: record.seen, limit: LOOK_EVENTS, body_bytes_max: LOOK_BYTES_MAX };
        let page = self.ledger.events_after(query).await?;
        let Some(newest) = page.last().map(|stored| stored.event.seq) else { return Ok(()) };
        // What was compared with another revision says nothing about this one.
        let mut shown = match record.active == *active.revision {
            true => ShadowReport::of(&record),
            false => ShadowReport::default(),
        };
        let last = self.ledger.event_span(Time(0)).await?.map_or(newest, |(_, last)| last);
        let seen = newest.max(last - BEHIND_MAX);
        shown.left_out += (seen - newest).unsigned_abs();
        let requests = page.len() as u64;
        match self.compare(&record, active.clone(), page).await {
            Ok(report) => {
                shown.report.merge(report);
                shown.problem = None;
            }
            Err(problem) => {
                shown.left_out += requests;
                shown.problem = Some(problem);
            }
        }
        let report = serde_json::to_string(&shown).unwrap_or_default();
        let (hash, started_at) = (record.hash, record.started_at);
        let keep =
            KeepShadow { hash, started_at, active: active.revision.to_string(), after: record.seen, seen, report };
        // If the shadow was replaced or stopped meanwhile, this report is not its own.
        self.ledger.keep_shadow(keep).await?;
        Ok(())
    }

    /// A panic of the shadow is a problem of the shadow.
    async fn compare(
        &mut self,
        record: &ShadowRecord,
        active: Arc<LoadedRevision>,
        page: Vec<StoredEvent>,
    ) -> Result<TrialReport, String> {
        let candidate = self.compiled(record)?;
        let input = TrialInput { active, candidate, only_flows_differ: false, since: Time(0) };
        let pseudonyms = self.revisions.pseudonyms().clone();
        let compare_one = self.compare_one;
        let compared = tokio::task::spawn_blocking(move || {
            let mut run = TrialRun::new(input, pseudonyms);
            page.iter().for_each(|stored| compare_one(&mut run, stored));
            run.into_report()
        });
        compared.await.map_err(|error| format!("a request could not be compared: {error}"))
    }

    fn compiled(&mut self, record: &ShadowRecord) -> Result<Arc<LoadedRevision>, String> {
        if let Some(known) = self.candidate.as_ref().filter(|known| *known.revision == *record.hash) {
            return Ok(known.clone());
        }
        let files = Files::from_json(&record.files).ok_or("the files of the configuration cannot be read")?;
        let files = files.within(self.revisions.current().config.directory.clone());
        let ready = run::ready(&files, &**self.revisions.secrets());
        let (live, _) = ready.map_err(|error| format!("the configuration does not compile any more: {error}"))?;
        let live = Arc::new(live);
        self.candidate = Some(live.clone());
        Ok(live)
    }
}

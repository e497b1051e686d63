//! `sluice try`: dry run of one payload. Nothing is written and nothing is sent.

mod report;

use std::path::PathBuf;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use sluice_domain::event::EventId;
use sluice_domain::flow::Flow;
use sluice_domain::key::{Explanation, PartValue};
use sluice_domain::mask;
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::time::Time;
use sluice_domain::unit::format_duration;
use sluice_ledger::Quarantine;

use super::{CliError, exit, flow, print};
use crate::dry_run::{self, Cover, DryRunInput};
use crate::intake::{self, HttpProblem, Prepared, RequestMeta};
use crate::revisions::LoadedRevision;
use report::{EventReport, KeyReport, PartReport, QueueReport, Report};

/// Dry run of one payload: key, event, jobs, requests; nothing is sent
#[derive(Debug, clap::Args)]
#[command(after_help = "The payload is signed like the flow's sender, so that keys from a header are found too.\n\
Personal data is masked unless --reveal; secrets are always ***. Exit code 1: the payload would be rejected or quarantined, or a job would die.\n\n\
Examples:\n  sluice try website-leads lead.json\n  sluice try /in/website - < lead.json\n  sluice try website-leads lead.json --header 'Idempotency-Key: 42' --json")]
pub struct Try {
    /// Flow name or path
    flow: String,
    /// Payload as JSON or form; - reads standard input
    file: PathBuf,
    /// Configuration directory or file
    #[arg(long, env = "SLUICE_CONFIG", default_value = ".", value_name = "DIR")]
    config: PathBuf,
    /// Additional header; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = flow::header)]
    header: Vec<(String, String)>,
    /// Event id, set in the header that the flow reads it from; `try` by default
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Show personal data
    #[arg(long)]
    reveal: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Try {
    pub fn run(self) -> Result<(), CliError> {
        let live = flow::load(&self.config)?;
        let flow = flow::find(&live, &self.flow)?.clone();
        let body = flow::payload(&self.file, &flow)?;
        let request = flow::signed(&flow, self.id.as_deref().unwrap_or("try"), &body, &self.header)?;
        flow::note_unused_id(&flow, self.id.as_ref(), &request);
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value.expose()))
            {
                headers.insert(name, value);
            }
        }
        let now = Time::from(jiff::Timestamp::now());
        let arrival = RequestMeta { received_at: now, trace: dry_run::TRACE, ..RequestMeta::default() };
        let prepared = intake::prepare_all(&live, &flow, &headers, &request.body, arrival).map_err(refused)?;
        let report = Report {
            flow: flow.name.clone(),
            source: flow.source.clone(),
            route: format!("{} {}", flow.method, flow.path),
            verify: flow.verify.as_ref().map_or("not verified", |verifier| verifier.scheme().name()).to_owned(),
            events: prepared.iter().map(|prepared| self.event(&live, &flow, prepared, now)).collect(),
            revealed: self.reveal,
        };
        let text = if self.json { print::pretty(&report) } else { report.render() };
        print::print(&report.without_ids(text))?;
        match report.problem() {
            Some(problem) => Err(CliError::new(exit::NO, problem)),
            None => Ok(()),
        }
    }

    fn event(&self, live: &LoadedRevision, flow: &Flow, prepared: &Prepared<'_>, now: Time) -> EventReport {
        let quarantine = prepared.new.quarantine.as_ref();
        // Jobs of a quarantined event do not run.
        let jobs = if quarantine.is_some() { &[][..] } else { &prepared.new.jobs };
        let pseudonyms = PseudonymKey::public();
        let id = EventId::new(prepared.new.key, 0);
        let (record, body) = (prepared.new.record(id), &prepared.new.body);
        let (contact, cover) = (None, self.cover());
        let input = DryRunInput { live, event: &record, body, contact, pseudonyms: &pseudonyms, now, cover };
        EventReport {
            key: self.key(flow, prepared),
            event_id: id.to_string(),
            event_type: prepared.event.event_type.clone(),
            normalized: self.cover().value(&serde_json::to_value(&prepared.event).unwrap_or_default()),
            unknown_fields: flow.admission.unknown_fields(&prepared.payload).into_iter().map(str::to_owned).collect(),
            quarantine: quarantine.map(|quarantine| self.quarantine(quarantine)),
            queues: flow
                .enqueue
                .iter()
                .map(|enqueue| QueueReport {
                    step: enqueue.step.clone(),
                    queue: enqueue.queue.clone(),
                    condition: enqueue.condition.as_ref().map(|condition| condition.source().to_owned()),
                    taken: prepared.queues.iter().any(|queue| queue.step == enqueue.step),
                    workers: live.config.consumers(&enqueue.queue).map(|worker| worker.name.clone()).collect(),
                })
                .collect(),
            playbooks: live.config.playbooks(&prepared.event.event_type).map(|worker| worker.name.clone()).collect(),
            jobs: jobs.iter().map(|job| dry_run::job(input, job)).collect(),
        }
    }

    /// Why an event would be quarantined, and whether a lookup may release it.
    fn quarantine(&self, quarantine: &Quarantine) -> String {
        let failure = &quarantine.failure;
        let text = self.cover().text(&format!("{}: {}", failure.code, failure.message));
        match quarantine.looks_up_identity {
            true => format!("{text}; released if the lookups of its worker identify a contact"),
            false => text,
        }
    }

    /// Key and its parts.
    fn key(&self, flow: &Flow, prepared: &Prepared<'_>) -> KeyReport {
        let Explanation { strategy, parts, skipped } = prepared.key.explain(&flow.idempotency.strategies);
        KeyReport {
            strategy,
            parts: parts.into_iter().map(|PartValue { part, value }| PartReport { from: part, value }).collect(),
            passed_over: skipped,
            text: self.cover().text(&prepared.key.text),
            kept_for: format_duration(flow.idempotency.ttl),
        }
    }

    fn cover(&self) -> Cover {
        if self.reveal { Cover::Off } else { Cover::On }
    }
}

fn refused(problem: HttpProblem) -> CliError {
    let message = format!("rejected: {} {}: {}", problem.status.as_u16(), problem.code, problem.detail);
    CliError::new(exit::NO, mask::text(&message))
}

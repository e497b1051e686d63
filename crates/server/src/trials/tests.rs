use std::collections::BTreeMap;

use sluice_domain::event::{Audit, Event};
use sluice_domain::key::{KeyDigest, TENANT};
use sluice_ledger::memory::StoreHandle;
use sluice_ledger::{Acceptance, EventDraft, LedgerOptions, NewEvent, SetShadow};

use super::*;
use crate::config::{EnvironmentThenFiles, Files, SecretSource};
use crate::revisions::Revisions;
use crate::run;

const AT: Time = Time(1_000_000);
const FLOW: &str = "
name: leads
source: website
triggers: [{ http: { path: /in, idempotency: { key_from: body.id } } }]
event: { type: lead, attributes: { name: body.name } }
steps: [{ queue: leads }]
---
name: notes
consumes: leads
run: [{ name: send, run: http.request, destination: notes, with: { url: /notes } }]
---
queues: { leads: { retention: 7d } }
destinations: { notes: { type: http, base_url: 'https://notes.example' } }
";

fn secrets() -> Arc<dyn SecretSource + Send + Sync> {
    Arc::new(EnvironmentThenFiles::new("/nowhere"))
}

fn revision(flow: &str) -> (LoadedRevision, Files) {
    let files = Files::from_texts([("flow.yml", flow)]);
    let (live, _) = run::ready(&files, &*secrets()).unwrap_or_else(|_| panic!("the configuration compiles"));
    (live, files)
}

fn ledger() -> Ledger {
    let options = LedgerOptions::quiet(Arc::new(|| AT));
    Ledger::in_memory(&StoreHandle::default(), options).unwrap()
}

/// Accepts a request of the flow.
async fn accept(ledger: &Ledger, revision: &Arc<str>, id: &str) -> Acceptance {
    let event = Event {
        schema_version: "1".into(),
        event_id: id.into(),
        event_type: "lead".into(),
        source: "website".into(),
        occurred_at: None,
        idempotency_key: id.into(),
        identity: Default::default(),
        attributes: BTreeMap::from([("name".to_owned(), "Ada".into())]).into_iter().collect(),
        routing: Default::default(),
        audit: Audit { received_at: AT, ..Audit::default() },
    };
    let new = NewEvent::new(EventDraft {
        flow: "leads",
        source: &"website".into(),
        expires_at: AT + Duration::from_secs(3_600),
        revision,
        trace: "t",
        fingerprint: [0; 16],
        headers: "{}".into(),
        raw: format!(r#"{{"id":"{id}","name":"Ada"}}"#).into_bytes(),
        event: &event,
        jobs: vec![],
    });
    ledger.accept(NewEvent { key: KeyDigest::new(TENANT, "leads", id), ..new }).await.unwrap()
}

fn input(active: LoadedRevision, candidate: LoadedRevision) -> TrialInput {
    TrialInput { active: Arc::new(active), candidate: Arc::new(candidate), only_flows_differ: true, since: Time(0) }
}

fn upper() -> String {
    FLOW.replace("name: body.name", "name: \"{{ body.name | upper }}\"")
}

#[tokio::test]
async fn trial_that_nobody_looks_at_is_given_up_and_a_look_keeps_it() {
    let ledger = ledger();
    let (active, _) = revision(FLOW);
    accept(&ledger, &active.revision, "1").await;
    let input = input(active, revision(&upper()).0);
    let trials = Trials::new(ledger, PseudonymKey::public());
    let trial = Trial::new(1, &input);
    let long_ago = Instant::now().checked_sub(ABANDONED_AFTER + Duration::from_secs(1)).unwrap();
    *trial.looked_at.lock().unwrap() = long_ago;
    assert!(trials.run(&trial, input.clone()).await.unwrap().is_none(), "nobody waits for it");
    *trial.looked_at.lock().unwrap() = long_ago;
    assert!(matches!(trial.progress().state, TrialState::Running));
    let report = trials.run(&trial, input.clone()).await.unwrap().expect("a caller has looked");
    assert_eq!((report.events, report.different), (1, 1));
    trial.cancel();
    assert!(trials.run(&trial, input).await.unwrap().is_none(), "cancelled");
}

#[tokio::test]
async fn one_trial_runs_at_a_time_and_the_next_one_starts_after_it() {
    let ledger = ledger();
    let input = input(revision(FLOW).0, revision(&upper()).0);
    let trials = Trials::new(ledger, PseudonymKey::public());
    let running = Arc::new(Trial::new(7, &input));
    *trials.last.lock().unwrap() = Some(running.clone());
    assert!(trials.start(input.clone()).is_none());
    assert_eq!(trials.get(7).map(|trial| trial.id), Some(7), "it stays the last one");
    *running.state.lock().unwrap() = TrialState::Cancelled;
    let next = trials.start(input).expect("none is running");
    assert!(trials.get(7).is_none() && trials.get(next.id).is_some());
}

#[tokio::test]
async fn panic_in_the_shadow_is_shown_and_the_live_path_continues() {
    let ledger = ledger();
    let (active, _) = revision(FLOW);
    let (candidate, files) = revision(&upper());
    let hash = candidate.revision.to_string();
    let (name, reason) = ("ann".to_owned(), "new mapping".to_owned());
    ledger.set_shadow(SetShadow { hash, files: files.to_json(), actor: name, reason, at: AT }).await.unwrap();
    let live = active.revision.clone();
    let revisions = Revisions::new(active, secrets(), PseudonymKey::public());
    let mut shadow = ShadowRun::new(ledger.clone(), revisions);
    shadow.compare_one = |_, _| panic!("a bug of the shadow");
    assert!(matches!(accept(&ledger, &live, "1").await, Acceptance::Accepted(_)));
    shadow.look().await.expect("a panic is no failure of the ledger");
    let shown = ShadowReport::of(&ledger.shadow().await.unwrap().unwrap());
    let problem = shown.problem.expect("the panic is shown");
    assert!(problem.starts_with("a request could not be compared"), "{problem}");
    // Events are accepted as before, and the next one is compared.
    assert!(matches!(accept(&ledger, &live, "2").await, Acceptance::Accepted(_)));
    shadow.compare_one = apply::TrialRun::add;
    shadow.look().await.unwrap();
    let record = ledger.shadow().await.unwrap().unwrap();
    let shown = ShadowReport::of(&record);
    assert_eq!((shown.report.events, record.seen), (1, 2), "the request of the panic is not compared again");
    assert_eq!(
        (shown.left_out, shown.problem),
        (1, None),
        "the request of the panic is counted, and the shadow works again"
    );
}

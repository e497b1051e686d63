use std::sync::Arc;

use sluice_domain::verify::SecretValue;

use super::*;
use crate::change::stranded::reached;
use crate::config::{SecretSource, compile};

#[derive(Debug)]
struct AnySecret;

impl SecretSource for AnySecret {
    fn lookup(&self, _: &str) -> std::io::Result<Option<SecretValue>> {
        Ok(Some(SecretValue::from("hush-hush")))
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

const TEXT: &str = "\
name: leads
triggers:
  - http:
      path: /leads
      verify: {scheme: bearer, secret: \"${secrets.TOKEN}\"}
      idempotency: {key_from: body.id, ttl: 10d}
steps: [{queue: leads}]
---
name: to-crm
consumes: leads
retry: {max_attempts: 5}
run:
  - id: look
    run: http.request
    with: {url: \"https://a.example/{{ body.id }}\", method: GET}
  - id: tell
    run: http.request
    destination: partner
    with: {url: /x, method: PUT, class: natural}
---
queues: [{name: leads, retention: 7d}]
destinations:
  partner: {type: http, base_url: \"https://partner.example\", rate: 10/s, auth: {bearer: \"${secrets.PARTNER}\"}}
";

fn read(text: &str) -> (Files, Arc<Config>) {
    let files = Files::from_texts([("all.yml", text)]);
    let compiled = compile(&files, &AnySecret);
    let config = compiled.config.unwrap_or_else(|| panic!("{:#?}", compiled.problems));
    (files, Arc::new(config))
}

fn planned(edits: &[(&str, &str)], usage: impl FnOnce(&Config) -> LedgerUsage) -> Plan {
    let mut text = TEXT.to_owned();
    for (old, new) in edits {
        assert_eq!(text.matches(old).count(), 1, "{old}");
        text = text.replace(old, new);
    }
    let ((old_files, old), (new_files, new)) = (read(TEXT), read(&text));
    let usage = usage(&old);
    plan(Side { files: &old_files, config: Some(&old) }, (&new_files, &new), &usage)
}

/// Three live jobs and two dead letters of the active revision.
fn busy(config: &Config) -> LedgerUsage {
    let record = |dead: Option<&str>, live, parked| PinnedRecord {
        revision: config.revision.0.clone(),
        worker: "to-crm".into(),
        queue: "leads".into(),
        dead_letter_queue: dead.map(str::to_owned),
        live,
        parked,
    };
    LedgerUsage {
        pinned: vec![record(None, 3, 0), record(Some("leads-dlq"), 0, 2)],
        reached: reached(config),
        accepted: BTreeMap::from([("leads".to_owned(), 40)]),
    }
}

fn lines(plan: &Plan) -> Vec<String> {
    let fields = |change: &PlanChange| {
        let head = format!("{} {} {}", change.change, change.kind, change.name);
        let mut lines = vec![head];
        let none = || "-".to_owned();
        lines.extend(change.fields.iter().map(|field| {
            format!(
                "{}: {} -> {}",
                field.path,
                field.from.clone().unwrap_or_else(none),
                field.to.clone().unwrap_or_else(none)
            )
        }));
        lines.extend(change.notes.iter().map(|note| format!("! {note}")));
        lines
    };
    plan.changes.iter().flat_map(fields).collect()
}

#[test]
fn equal_files_have_no_changes() {
    let plan = planned(&[], busy);
    assert!(plan.is_empty() && plan.changes.is_empty() && plan.stranded.is_empty() && plan.affected.is_empty());
}

#[test]
fn comment_makes_a_new_revision_without_changes() {
    let plan = planned(&[("name: leads\ntriggers", "# ours\nname: leads\ntriggers")], busy);
    assert!(!plan.is_empty() && plan.changes.is_empty());
}

#[test]
fn changes_are_listed_with_their_consequences() {
    let plan = planned(
        &[
            ("path: /leads", "path: /v2/leads"),
            ("key_from: body.id, ttl: 10d", "key_from: body.ref, ttl: 5d"),
            ("max_attempts: 5", "max_attempts: 9"),
            ("https://a.example", "https://b.example"),
            ("retention: 7d", "retention: 1d"),
            ("rate: 10/s", "rate: 2/s"),
        ],
        busy,
    );
    assert_eq!(
        lines(&plan),
        [
            "changed destination partner",
            "rate: 10/s -> 2/s",
            "! applies immediately, also to jobs accepted before",
            "changed flow leads",
            "triggers[0].http.path: /leads -> /v2/leads",
            "triggers[0].http.idempotency.key_from: body.id -> body.ref",
            "triggers[0].http.idempotency.ttl: 10d -> 5d",
            "! senders of POST /leads get 404 until they use POST /v2/leads; leads has sent 40 events in the last 7 days",
            "! the key changes from body.id to body.ref: a duplicate of an earlier event is accepted as a new event",
            "! a duplicate between 5d and 10d after the first event is accepted as a new event",
            "changed queue leads",
            "retention: 7d -> 1d",
            "! jobs that have waited longer than 1d become dead letters; dead letters are dropped",
            "changed worker to-crm",
            "retry.max_attempts: 5 -> 9",
            "run.look.with.url: https://a.example/{{ body.id }} -> https://b.example/{{ body.id }}",
            "! existing jobs (3 live, 2 dead letters) keep the steps they were accepted with; `sluice replay --latest-config` uses the new ones",
            "! retry settings and concurrency apply immediately, also to existing jobs (3 live, 2 dead letters)",
        ]
    );
    let affected: Vec<(u64, u64)> = plan.affected.iter().map(|jobs| (jobs.live, jobs.dead_letters)).collect();
    assert_eq!((affected, plan.stranded.len()), (vec![(3, 2)], 0));
}

#[test]
fn resources_that_jobs_need_are_reported_as_stranded() {
    let gone = |plan: &Plan| -> Vec<(String, u64, u64)> {
        plan.stranded
            .iter()
            .map(|thing| (format!("{} {}", thing.kind, thing.name), thing.live, thing.dead_letters))
            .collect()
    };
    let renamed = planned(&[("name: to-crm", "name: to-hub")], busy);
    assert_eq!(gone(&renamed), [("worker to-crm".to_owned(), 3, 2)]);
    let moved = [("destination: partner", "destination: other"), ("partner: {type", "other: {type")];
    assert_eq!(gone(&planned(&moved, busy)), [("destination partner".to_owned(), 3, 2)]);
    let queue = [
        ("queue: leads}", "queue: people}"),
        ("consumes: leads", "consumes: people"),
        ("{name: leads, r", "{name: people, r"),
    ];
    assert_eq!(gone(&planned(&queue, busy)), [("queue leads".to_owned(), 3, 2), ("queue leads-dlq".to_owned(), 0, 2)]);
    // Without jobs that need it, it may be removed.
    assert_eq!(gone(&planned(&moved, |_| LedgerUsage::default())), []);
}

#[test]
fn hash_depends_on_the_changes_and_not_on_job_counts() {
    let edit = [("rate: 10/s", "rate: 2/s")];
    let (quiet, now_busy) = (planned(&edit, |_| LedgerUsage::default()), planned(&edit, busy));
    assert_eq!(quiet.plan, now_busy.plan, "how many jobs there are is no part of it");
    assert_ne!(quiet.plan, planned(&[("rate: 10/s", "rate: 3/s")], busy).plan);
    let moved = [("destination: partner", "destination: other"), ("partner: {type", "other: {type")];
    assert_ne!(planned(&moved, busy).plan, planned(&moved, |_| LedgerUsage::default()).plan, "what it strands is");
    let hash = PlanHash::parse(&quiet.plan).unwrap();
    assert_eq!(hash.to_string(), quiet.plan);
    assert!(quiet.running.starts_with(&hash.running) && quiet.new.starts_with(&hash.new));
    for wrong in ["", "abc", "12345678-12345678", "12345678-12345678-12345678901g", &format!("{}-1", quiet.plan)] {
        assert_eq!(PlanHash::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn no_secret_is_in_a_plan() {
    let plan = planned(&[("${secrets.PARTNER}", "${secrets.PARTNER_NEW}")], busy);
    let rendered = serde_json::to_string(&plan).unwrap();
    assert!(rendered.contains("secrets.PARTNER_NEW") && !rendered.contains("hush-hush"), "{rendered}");
}

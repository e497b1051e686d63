//! Playbooks, lists, schedules and policies in a configuration: what is read, and what `check` says about a mistake.

use std::time::Duration;

use sluice_domain::action::Action;
use sluice_domain::config::Config;
use sluice_domain::worker::OnError;
use sluice_server::config::{Compiled, Files, Severity, compile};

use crate::editor;

fn compiled(files: &[(&str, &str)]) -> (Compiled, Files) {
    let files = Files::from_texts(files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
    (compile(&files, &editor::AnySecret), files)
}

fn good(files: &[(&str, &str)]) -> Config {
    editor::valid(compiled(files))
}

/// The codes of everything that is said of a mistake, errors with `!`.
fn codes(files: &[(&str, &str)]) -> Vec<String> {
    let mark = |severity| if severity == Severity::Error { "!" } else { "" };
    let (compiled, _) = compiled(files);
    let found = compiled.problems.iter().filter(|problem| problem.code != "open-to-everybody");
    let mut codes: Vec<String> = found.map(|problem| format!("{}{}", problem.code, mark(problem.severity))).collect();
    codes.sort();
    codes
}

const FLOW: &str = "\
name: shop
triggers: [{http: {path: /shop, verify: none, idempotency: {key_from: body.id}}}]
event: {type: shop.cart.left, identity: {email: body.email}}
";

const PLAYBOOK: &str = "\
name: cart-recovery
on: shop.cart.left
steps:
  - id: compute-dedup
    run: utils.compute_dedup_key
    with:
      fields: [customer_id, store_id, timestamp]
      bucket_minutes: 5
  - id: check-and-set
    run: store.setnx
    with:
      key: {{ steps.compute-dedup.output.key }}
      ttl_seconds: 2700
  - id: send
    if: {{ steps.check-and-set.output.set == true }}
    run: http.request
    with:
      url: https://mail.example/send
      json: {to: {{ event.email }}}
";

#[test]
fn a_playbook_is_a_worker_with_a_queue_of_its_own() {
    let config = good(&[("flow.yml", FLOW), ("playbook.yaml", PLAYBOOK)]);
    let worker = &config.workers["cart-recovery"];
    assert_eq!((worker.on.as_deref(), worker.queue.as_str()), (Some("shop.cart.left"), "cart-recovery"));
    assert_eq!(worker.retry.dead_letter_queue.as_deref(), Some("cart-recovery-dlq"));
    assert!(config.queues.contains_key("cart-recovery") && config.queues.contains_key("cart-recovery-dlq"));
    let actions: Vec<Action> = worker.steps.iter().map(|step| step.action).collect();
    assert_eq!(actions, [Action::ComputeDedupKey, Action::StoreSetnx, Action::HttpRequest]);
    assert_eq!(config.playbooks("shop.cart.left").count(), 1);
}

#[test]
fn retry_policy_alone_in_a_document_applies_to_workers_without_one() {
    let policy = r#"{
  "retry": {
    "strategy": "exponential",
    "base_ms": 500,
    "max_attempts": 3,
    "jitter": "full",
    "budget_per_contact": 5
  }
}"#;
    let own = "name: own\non: shop.cart.left\nretry: {max_attempts: 9}\nsteps: [{id: s, run: http.request, with: {url: 'https://x.example'}}]\n";
    let config = good(&[("flow.yml", FLOW), ("playbook.yaml", PLAYBOOK), ("own.yml", own), ("policy.json", policy)]);
    let retry = &config.workers["cart-recovery"].retry;
    assert_eq!((retry.max_attempts, retry.ceiling(1)), (3, Duration::from_millis(500)));
    let budget = retry.budget.unwrap();
    assert_eq!((budget.retries, budget.window), (5, Duration::from_secs(3600)));
    let own = &config.workers["own"].retry;
    assert_eq!((own.max_attempts, own.budget), (9, None));
    let twice = codes(&[("flow.yml", FLOW), ("playbook.yaml", PLAYBOOK), ("a.json", policy), ("b.json", policy)]);
    assert_eq!(twice, ["duplicate-name!"]);
}

const QUEUED: &str = "\
name: in
triggers: [{http: {path: /in, verify: none, idempotency: {key_from: body.id}}}]
steps: [{queue: contacts}]
queues: [contacts, contacts-dlq]
---
name: upsert
consumes: contacts
retry: {on_exhausted: dlq:contacts-dlq}
run: [{name: send, run: http.request, with: {method: PUT, url: 'https://crm.example'}}]
";

const REPLAY: &str = "\
version: 1
name: replay-contacts
schedule:
  cron: \"*/10 * * * *\"  # every 10 minutes
run:
  - name: pull-batch
    queue_pull:
      from: contacts-dlq
      max_messages: 20
  - name: requeue
    foreach: step:pull-batch.messages
    queue:
      name: contacts
      body_from: item.body
      key_from: item.headers.Idempotency-Key
    rate_limit:
      per_integration: 5/min
      jitter: 200-600ms
";

#[test]
fn worker_may_run_on_a_schedule_and_pull_dead_letters() {
    let config = good(&[("in.yml", QUEUED), ("replay.yml", REPLAY)]);
    let worker = &config.workers["replay-contacts"];
    assert_eq!(worker.schedule.as_ref().unwrap().text(), "*/10 * * * * UTC");
    let requeue = &worker.steps[1];
    let foreach = requeue.foreach.as_ref().unwrap();
    assert_eq!(foreach.list.source(), "steps.pull-batch.output.messages");
    assert_eq!(foreach.pulled_by.as_deref(), Some("pull-batch"));
    let pace = requeue.pace.unwrap();
    assert_eq!(pace.rate.interval(), Duration::from_secs(12));
    assert_eq!(pace.jitter, (Duration::from_millis(200), Duration::from_millis(600)));
}

#[test]
fn only_the_messages_of_a_pull_are_replayed() {
    let of_body = REPLAY.replace("step:pull-batch.messages", "\"{{ body.messages }}\"");
    let config = good(&[("in.yml", QUEUED), ("replay.yml", &of_body)]);
    let foreach = config.workers["replay-contacts"].steps[1].foreach.clone().unwrap();
    assert_eq!(foreach.pulled_by, None, "whoever sends a body must not choose which jobs come back to life");
}

#[test]
fn undo_steps_follow_the_others_in_reverse() {
    let worker = "\
name: order
consumes: contacts
run:
  - name: reserve
    run: http.request
    with: {url: 'https://stock.example', json: {}}
    undo: {run: http.request, with: {method: DELETE, url: 'https://stock.example/{{ steps.reserve.output.json.id }}'}}
  - name: charge
    on_error: continue
    run: http.request
    with: {url: 'https://pay.example', json: {}}
    undo: {run: http.request, with: {method: DELETE, url: 'https://pay.example'}}
";
    let config = good(&[("in.yml", QUEUED), ("order.yml", worker)]);
    let worker = &config.workers["order"];
    let undo: Vec<(&str, Option<usize>)> = worker.undo.iter().map(|step| (&*step.id, step.undoes)).collect();
    assert_eq!(undo, [("charge.undo", Some(1)), ("reserve.undo", Some(0))]);
    assert_eq!(worker.steps[1].on_error, OnError::Continue);
    assert_eq!(worker.step_at(3).map(|step| &*step.id), Some("charge.undo"));
    assert!(worker.is_undoing(3) && !worker.is_undoing(2));
}

fn in_playbook(mistake: &str, from: &str, to: &str) -> Vec<String> {
    assert!(PLAYBOOK.contains(from), "{mistake}: {from}");
    codes(&[("flow.yml", FLOW), ("playbook.yaml", &PLAYBOOK.replace(from, to))])
}

#[test]
fn mistakes_in_a_playbook_are_named() {
    let on = "on: shop.cart.left";
    assert_eq!(in_playbook("a_type_with_a_star", on, "on: shop.cart.*"), ["bad-value!", "no-steps!"]);
    assert_eq!(in_playbook("a_type_that_no_flow_has", on, "on: shop.cart.lost"), ["no-steps!", "type-without-flow"]);
    assert_eq!(in_playbook("a_mark_for_ever", "      ttl_seconds: 2700\n", ""), ["missing-parameter!"]);
    assert_eq!(in_playbook("a_mark_for_no_time", "ttl_seconds: 2700", "ttl_seconds: 0"), ["wrong-type!"]);
    assert_eq!(in_playbook("a_key_without_a_moment", ", timestamp]", "]"), ["no-moment"]);
    let somewhere = "    run: store.setnx\n    destination: crm\n";
    assert_eq!(in_playbook("a_mark_somewhere", "    run: store.setnx\n", somewhere), ["unknown-parameter!"]);
    let two = "on: shop.cart.left\nconsumes: x";
    assert_eq!(in_playbook("a_playbook_with_a_queue", on, two), ["exclusive-keys!", "no-steps!"]);
}

fn in_replay(mistake: &str, from: &str, to: &str) -> Vec<String> {
    assert!(REPLAY.contains(from), "{mistake}: {from}");
    codes(&[("in.yml", QUEUED), ("replay.yml", &REPLAY.replace(from, to))])
}

#[test]
fn mistakes_in_a_replay_are_named() {
    assert_eq!(in_replay("a_rule_of_three_fields", "*/10 * * * *", "*/10 * *"), ["bad-value!"]);
    assert_eq!(in_replay("a_minute_that_is_none", "*/10 * * * *", "99 * * * *"), ["bad-value!"]);
    let mars = "  timezone: Mars/Olympus\n  cron:";
    assert_eq!(in_replay("a_zone_on_another_planet", "  cron:", mars), ["bad-value!"]);
    let pull = "from: contacts-dlq";
    let alive = "a_pull_from_a_queue_without_dead_letters";
    assert_eq!(in_replay(alive, pull, "from: contacts"), ["not-a-dead-letter-queue!"]);
    assert_eq!(in_replay("an_unknown_queue_to_pull_from", pull, "from: contact-dlq"), ["unknown-queue!"]);
    assert_eq!(in_replay("an_unknown_queue_to_put_into", "name: contacts\n", "name: contact\n"), ["unknown-queue!"]);
    let no_list = in_replay("a_pace_without_a_list", "    foreach: step:pull-batch.messages\n", "");
    assert_eq!(no_list, ["missing-key!", "unknown-name!", "unknown-name!"]);
    let unknown = in_replay("an_unknown_step_to_list", "step:pull-batch.messages", "step:pull.messages");
    assert_eq!(unknown, ["unknown-step!"]);
    assert_eq!(in_replay("a_span_that_ends_before_it_begins", "200-600ms", "600-200ms"), ["bad-value!"]);
    assert_eq!(in_replay("a_span_of_nothing_known", "200-600ms", "a while"), ["bad-value!"]);
    let requeue = "  - name: requeue\n";
    let carry_on = format!("{requeue}    on_error: carry-on\n");
    assert_eq!(in_replay("a_way_on_that_is_none", requeue, &carry_on), ["bad-value!"]);
    let two_things = format!("{requeue}    run: http.request\n");
    assert_eq!(in_replay("a_step_that_does_two_things", requeue, &two_things), ["exclusive-keys!"]);
    let undone = format!("{requeue}    undo: {{run: http.request, with: {{url: 'https://x.example'}}}}\n");
    assert_eq!(in_replay("items_that_are_undone", requeue, &undone), ["exclusive-keys!"]);
}

#[test]
fn a_flow_needs_a_queue_or_a_playbook() {
    assert_eq!(codes(&[("flow.yml", FLOW)]), ["no-steps!"]);
}

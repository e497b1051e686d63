//! `alerts:`: what is read, which playbooks it becomes, and what `check` says about a mistake.

use std::time::Duration;

use sluice_domain::alert::rules::Group;
use sluice_domain::alert::{AlertKind, Severity};
use sluice_domain::config::Config;
use sluice_server::config::{Colours, Compiled, Files, compile, render_all};

use crate::editor;

const FLOW: &str = "\
name: in
source: shop
triggers: [{http: {path: /in, verify: {scheme: bearer, secret: '${secrets.IN}'}, idempotency: {key_from: body.id}}}]
event: {type: lead.created, identity: {email: body.email}}
steps: [{queue: leads}]
queues: [leads]
destinations:
  crm: {type: salesforce, instance_url: 'https://crm.example', auth: {client_id: a, client_secret: '${secrets.CRM}'}}
  chat: {type: slack, token: '${secrets.SLACK}'}
  hook: {type: slack, webhook_url: '${secrets.HOOK}'}
  mail: {type: smtp, host: mail.example, from: Shop <shop@example.com>}
  web: {type: http, base_url: 'https://hooks.example'}
  pager: {type: pagerduty, routing_key: '${secrets.PAGER}'}
  genie: {type: opsgenie, api_key: '${secrets.GENIE}'}
---
name: to-crm
consumes: leads
run: [{name: send, run: http.request, destination: web, with: {url: /leads}}]
";

const ALERTS: &str = "\
alerts:
  console_url: https://sluice.example/
  zone: Europe/Berlin
  holidays: [2026-12-25]
  rules:
    - {alert: queue-age, age: 5m, hold: 30s, severity: critical}
    - {alert: queue-age, subject: to-crm, enabled: false}
    - {alert: breaker-open, group: kind}
  notify:
    - {name: team, destination: chat, channel: C1}
    - {name: mails, destination: mail, to: ops@example.com, severity: critical, alerts: [breaker-open], recovery: false}
    - {name: on-call, destination: pager, severity: critical}
  digest: {at: '07:30'}
";

fn compiled(edits: &[(&str, &str)]) -> (Compiled, Files) {
    let mut texts = [("alerts.yml", ALERTS.to_owned()), ("flow.yml", FLOW.to_owned())];
    for (old, new) in edits {
        let hits: usize = texts.iter().map(|(_, text)| text.matches(old).count()).sum();
        assert_eq!(hits, 1, "{old:?} must stand in one place");
        texts.iter_mut().for_each(|(_, text)| *text = text.replace(old, new));
    }
    let files = Files::from_texts(texts);
    (compile(&files, &editor::AnySecret), files)
}

fn problems(edits: &[(&str, &str)]) -> String {
    let (compiled, files) = compiled(edits);
    render_all(&compiled.problems, &files, Colours::None)
}

fn good(edits: &[(&str, &str)]) -> Config {
    editor::valid(compiled(edits))
}

/// Playbooks of a configuration as `name: step action destination`.
fn playbooks(config: &Config) -> Vec<String> {
    let of = |on: &str| {
        let line = |worker: &std::sync::Arc<sluice_domain::worker::Worker>| {
            let steps =
                worker.steps.iter().map(|step| format!("{} {} {}", step.id, step.action.name(), step.destination));
            format!("{}: {}", worker.name, steps.collect::<Vec<_>>().join(", "))
        };
        config.playbooks(on).map(line).collect::<Vec<_>>()
    };
    ["alert.changed", "alert.digest"].iter().flat_map(|on| of(on)).collect()
}

#[test]
fn rules_channels_and_the_digest_are_read() {
    let config = good(&[]);
    let settings = &config.alerts;
    let rule = settings.rules.of(AlertKind::QueueAge, "other");
    assert_eq!((rule.age(), rule.hold), (Duration::from_secs(300), Duration::from_secs(30)));
    assert_eq!((rule.severity, rule.enabled), (Severity::Critical, true));
    assert!(!settings.rules.of(AlertKind::QueueAge, "to-crm").enabled);
    assert_eq!(settings.rules.of(AlertKind::BreakerOpen, "").group, Group::Kind);
    assert_eq!(settings.console_url.as_deref(), Some("https://sluice.example"));
    let digest = settings.digest.as_ref().unwrap();
    assert_eq!((digest.at.to_string(), digest.zone.iana_name()), ("07:30".to_owned(), Some("Europe/Berlin")));
    assert_eq!(
        playbooks(&config),
        [
            "alert-mails: send email.send mail",
            "alert-on-call: trigger pagerduty.event pager, resolve pagerduty.event pager",
            "alert-team: send slack.post chat",
            "digest-mails: send email.send mail",
            "digest-team: send slack.post chat",
        ]
    );
    assert!(config.queues.contains_key("alert-team") && config.queues.contains_key("alert-team-dlq"));
}

#[test]
fn every_ready_channel_is_a_playbook() {
    let more = "    - {name: on-call, destination: pager, severity: critical}
    - {name: genie, destination: genie}
    - {name: hook, destination: hook}
    - {name: web, destination: web, url: /alerts}
";
    let config = good(&[
        ("    - {name: on-call, destination: pager, severity: critical}\n", more),
        ("digest: {at: '07:30'}", "digest: {notify: web}"),
    ]);
    let found = playbooks(&config);
    for expected in [
        "alert-genie: trigger opsgenie.alert genie, resolve opsgenie.close genie",
        "alert-hook: send slack.post hook",
        "alert-web: send http.request web",
        "digest-web: send http.request web",
    ] {
        assert!(found.iter().any(|line| line == expected), "{expected} is not in {found:?}");
    }
    assert_eq!(found.iter().filter(|line| line.starts_with("digest-")).count(), 1, "{found:?}");
}

#[test]
fn mistakes_are_named_with_advice() {
    for (edit, expected) in [
        (("alert: breaker-open, group", "alert: braker-open, group"), "did you mean `breaker-open`?"),
        (("age: 5m", "count: 5"), "queue-age has no threshold `count`"),
        (("breaker-open, group: kind", "breaker-open, age: 5m"), "breaker-open has no threshold `age`"),
        (("breaker-open, group: kind", "clock, subject: x"), "clock is about the node, so it has no subject"),
        (("subject: to-crm, enabled: false", "subject: to-crm, group: kind"), "`group` applies to all subjects"),
        (("breaker-open, group: kind", "queue-age, enabled: true"), "there are two rules of queue-age"),
        (("channel: C1", "channel: C1, to: a@example.com"), "a channel of type slack does not use `to`"),
        ((", channel: C1", ""), "the channel `team` of type slack needs `channel`"),
        ((", to: ops@example.com", ""), "the channel `mails` of type smtp needs `to`"),
        (("destination: chat", "destination: crm"), "`crm` has the type salesforce, which carries no notices"),
        (("destination: chat", "destination: chatt"), "did you mean `chat`?"),
        (("name: team", "name: mails"), "two channels have the name `mails`"),
        (("severity: critical, alerts", "severity: urgent, alerts"), "`urgent` is no value of `severity`"),
        (("alerts: [breaker-open]", "alerts: [breaker]"), "`breaker` is no value of `alerts`"),
        (("at: '07:30'", "at: soon"), "`at` must be a time of day"),
        (("at: '07:30'", "notify: [teams]"), "did you mean `team`?"),
        (("[2026-12-25]", "[christmas]"), "a holiday must be a date"),
        (("https://sluice.example/", "sluice.example"), "`console_url` is not a URL"),
        (("zone: Europe/Berlin", "zone: Mars"), "unknown time zone `Mars`"),
    ] {
        let found = problems(&[edit]);
        assert!(found.contains(expected) && found.contains("error"), "{edit:?} gives:\n{found}");
    }
    assert!(problems(&[("subject: to-crm", "subject: to-crn")]).contains("there is no worker `to-crn`"));
    let twice = Files::from_texts([("a.yml", ALERTS), ("b.yml", ALERTS), ("flow.yml", FLOW)]);
    let compiled = compile(&twice, &editor::AnySecret);
    assert!(render_all(&compiled.problems, &twice, Colours::None).contains("alerts are already defined in a.yml:2:3"));
}

#[test]
fn name_of_a_channel_that_is_a_worker_is_reported() {
    let files = Files::from_texts([
        ("alerts.yml", ALERTS),
        ("flow.yml", FLOW),
        (
            "worker.yml",
            "name: alert-team\non: alert.changed\nrun: [{id: a, run: slack.post, destination: hook, with: {text: x}}]\n",
        ),
    ]);
    let compiled = compile(&files, &editor::AnySecret);
    let found = render_all(&compiled.problems, &files, Colours::None);
    assert!(found.contains("the worker `alert-team` is already defined in worker.yml"), "{found}");
}

/// Puts `respond_within` into the flow.
fn timed(value: &str) -> (String, String) {
    let old = "steps: [{queue: leads}]";
    (old.to_owned(), format!("{old}\nrespond_within: {value}"))
}

#[test]
fn response_time_is_read_and_its_channels_are_playbooks() {
    let (old, new) = timed("5m");
    let (short, _) = compiled(&[(&old, &new)]);
    let rule = short.config.unwrap().flows["in"].respond.clone().unwrap();
    assert_eq!((rule.within, rule.warn_before), (Duration::from_secs(300), Duration::from_secs(60)));
    assert_eq!((&*rule.worker, rule.step, rule.masked), ("to-crm", None, true));
    assert!(short.problems.iter().any(|problem| problem.code == "no-second-path"), "{:?}", short.problems);
    let (old, new) =
        timed("{time: 10m, until: to-crm.send, from: occurred_at, notify: [team, mails], show: [email], mask: false}");
    let config = good(&[(&old, &new)]);
    let rule = config.flows["in"].respond.clone().unwrap();
    assert_eq!((&*rule.worker, rule.step.as_deref(), rule.masked), ("to-crm", Some("send"), false));
    let names: Vec<&str> = config.playbooks("response.at_risk").map(|worker| worker.name.as_str()).collect();
    assert_eq!(names, ["respond-in-mails", "respond-in-team"]);
}

#[test]
fn mistakes_of_a_response_time_are_named_with_advice() {
    for (value, expected) in [
        ("soon", "`respond_within` must be a duration or a map, found `soon`"),
        ("{until: to-crm}", "a response time needs `time`"),
        ("{time: 5m, until: to-crn}", "did you mean `to-crm`?"),
        ("{time: 5m, until: to-crm.sent}", "did you mean `send`?"),
        ("{time: 5m, warn_before: 5m}", "`warn_before` must be shorter than `time`"),
        ("{time: 5m, notify: [teams]}", "did you mean `team`?"),
        ("{time: 5m, show: ['..']}", "is not a path into the event"),
    ] {
        let (old, new) = timed(value);
        let found = problems(&[(&old, &new)]);
        assert!(found.contains(expected) && found.contains("error"), "{value} gives:\n{found}");
    }
}

#[test]
fn flow_cannot_have_the_name_of_the_nodes_own_events() {
    for edit in [("name: in\n", "name: alerts\n"), ("source: shop", "source: alerts")] {
        let found = problems(&[edit]);
        assert!(found.contains("`alerts` is the source of the node's own events"), "{found}");
    }
}

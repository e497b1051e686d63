//! Messages, policies, approvals and safe mode in a configuration: what is read, and what `check` says about a mistake.

use std::time::Duration;

use sluice_domain::action::Action;
use sluice_domain::config::Config;
use sluice_domain::policy::RuleKind;
use sluice_domain::safe_mode::{RateRule, Trigger};
use sluice_server::config::{Colours, Compiled, Files, compile, render_all};

use crate::editor;

const FLOW: &str = "\
name: in
triggers: [{http: {path: /in, verify: {scheme: bearer, secret: '${secrets.IN}'}, idempotency: {key_from: body.id}}}]
event: {type: cart.abandoned, identity: {email: body.email}}
steps: [{queue: carts}]
queues: [carts]
destinations:
  mail: {type: smtp, host: mail.example, from: Shop <shop@example.com>}
  chat: {type: slack, token: '${secrets.SLACK}', signing_secret: '${secrets.SIGNING}'}
policies:
  marketing:
    contact: event.email
    rules:
      - consent: {from: event.consent, default: deny}
      - quiet_hours: {from: '21:00', to: '08:00', zone: event.time_zone, fallback: Europe/Berlin, then: wait}
      - suppression: {list: gone}
      - daily: 1
      - limit: {max: 10, per: 90d}
      - when: event.total > 10
        name: worth-it
  careful: {channel: sms, rules: [{weekly: 1}, {consent: {purpose: news, default: allow}}]}
";

const WORKER: &str = "\
name: cart-recovery
consumes: carts
run:
  - name: code
    run: http.request
    with: {url: 'https://codes.example/new', method: PUT}
  - name: send
    run: messaging.send_template
    with:
      template: cart_v3
      to: '{{ event.email }}'
      vars: {offer: ten}
    policy: [marketing, careful]
  - name: approve
    run: approval.request
    with: {title: Again?, expires: 2h, default: reject, slack: {destination: chat, channel: C1}}
  - name: ask
    run: policy.check
    with: {policy: marketing}
  - name: keep
    run: consent.set
    with: {granted: true}
safe_mode:
  templates: {cart_v3: cart_short}
  policy: careful
  when: {breaker: mail, error_rate: {over: 20%, window: 5m}}
  for: 1h
";

const SUBJECT: &str = "Your cart, {{ event.first_name }}\n";
const TEXT: &str = "Hello {{ event.first_name }}\nUse {{ steps.code.output.body.code }}: {{ vars.offer }}\n";

fn compiled(edits: &[(&str, &str)]) -> (Compiled, Files) {
    let mut files = vec![
        ("flow.yml", FLOW.to_owned()),
        ("worker.yml", WORKER.to_owned()),
        ("templates/cart_v3.subject", SUBJECT.to_owned()),
        ("templates/cart_v3.txt", TEXT.to_owned()),
        ("templates/cart_short.subject", "Your cart\n".to_owned()),
        ("templates/cart_short.txt", "It waits.\n".to_owned()),
        ("lists/gone.txt", "Eve@example.com\n".to_owned()),
    ];
    for (old, new) in edits {
        let hits: usize = files.iter().map(|(_, text)| text.matches(old).count()).sum();
        assert_eq!(hits, 1, "{old:?} must stand in one place");
        files.iter_mut().for_each(|(_, text)| *text = text.replace(old, new));
    }
    files.retain(|(_, text)| !text.is_empty());
    let files = Files::from_texts(files);
    (compile(&files, &editor::AnySecret), files)
}

fn good() -> Config {
    editor::valid(compiled(&[]))
}

#[test]
fn a_message_is_part_of_the_revision() {
    let before = good();
    assert_eq!(before.messages.names().collect::<Vec<_>>(), ["cart_short", "cart_v3"]);
    let (after, _) = compiled(&[("Hello", "Dear")]);
    assert_ne!(before.revision, after.config.unwrap().revision);
}

#[test]
fn policies_are_compiled() {
    let config = good();
    let marketing = &config.policies["marketing"];
    let names: Vec<&str> = marketing.rules.iter().map(|rule| &*rule.name).collect();
    assert_eq!(names, ["consent", "quiet_hours", "suppression", "daily", "limit", "worth-it"]);
    let RuleKind::Cap(limit) = marketing.rules[4].kind else { panic!("a limit is a cap") };
    assert_eq!((limit.max, limit.window), (10, Duration::from_secs(90 * 86_400)));
    let RuleKind::Suppression(list) = &marketing.rules[2].kind else { panic!("a list") };
    assert!(list.listed.contains("eve@example.com"));
    assert_eq!((&*config.policies["careful"].channel, config.policies["careful"].contact.len()), ("sms", 4));
}

#[test]
fn slack_message_of_an_approval_is_a_step_before_the_waiting_one() {
    let config = good();
    let worker = &config.workers["cart-recovery"];
    let steps: Vec<(&str, Action)> = worker.steps.iter().map(|step| (&*step.id, step.action)).collect();
    assert_eq!(steps[2..4], [("approve-slack", Action::SlackPost), ("approve", Action::ApprovalRequest)]);
    assert_eq!((worker.steps[2].announces.as_deref(), &*worker.steps[2].destination), (Some("approve"), "chat"));
    let policies: Vec<&str> = worker.steps[1].policies.iter().map(|name| &**name).collect();
    assert_eq!(policies, ["marketing", "careful"]);
}

#[test]
fn safe_mode_is_read() {
    let mode = good().workers["cart-recovery"].safe_mode.clone();
    assert_eq!((mode.duration, mode.policy.as_deref(), mode.hold), (Duration::from_secs(3600), Some("careful"), false));
    assert_eq!(mode.templates["cart_v3"], "cart_short");
    let rate = RateRule { over_percent: 20.0, window: Duration::from_secs(300), calls_min: 20 };
    assert_eq!(mode.when, [Trigger::Breaker("mail".into()), Trigger::ErrorRate(rate)]);
}

#[test]
fn quiet_hours_from_midnight_to_midnight_are_a_mistake_because_no_hour_is_quiet() {
    let (compiled, files) = compiled(&[("from: '21:00', to: '08:00'", "from: '00:00', to: '24:00'")]);
    let said = render_all(&compiled.problems, &files, Colours::None);
    assert!(compiled.config.is_none() && said.contains("so no hour is quiet"), "{said}");
}

macro_rules! mistakes {
    ($($name:ident: $($edits:expr),+;)+) => {
        $(
            #[test]
            fn $name() {
                let (compiled, files) = compiled(&[$($edits),+]);
                let said = render_all(&compiled.problems, &files, Colours::None);
                assert!(compiled.config.is_none() && !said.contains("hunter2"), "{said}");
                insta::assert_snapshot!(stringify!($name), said);
            }
        )+
    };
}

mistakes! {
    a_message_that_is_not_there: ("template: cart_v3", "template: cart_v2");
    a_message_without_a_subject: (SUBJECT, "");
    a_message_without_a_body: (TEXT, "");
    a_message_that_reads_nothing_known: ("Hello {{ event", "Hello {{ evnt");
    a_message_that_reads_a_step_that_is_not_there: ("steps.code.output", "steps.codes.output");
    a_message_that_is_handed_too_little: ("vars: {offer: ten}", "vars: {offers: ten}");
    a_message_that_does_not_close: ("vars.offer }}", "vars.offer");
    a_message_with_a_filter_that_nobody_knows: ("Hello {{ event.first_name }}", "Hello {{ event.first_name | titel }}");
    a_policy_that_is_not_there: ("policy: [marketing, careful]", "policy: [marketing, carefull]");
    a_policy_for_a_step_that_does_nothing_outside: ("with: {granted: true}", "with: {granted: true}\n    policy: marketing");
    a_rule_of_two_kinds: ("      - daily: 1\n", "      - daily: 1\n        weekly: 3\n");
    a_rule_of_no_kind: ("      - daily: 1\n", "      - name: idle\n");
    a_rule_that_nobody_knows: ("      - daily: 1\n", "      - dayly: 1\n");
    a_time_of_day_that_is_none: ("from: '21:00'", "from: 9pm");
    a_time_zone_that_is_none: ("Europe/Berlin", "Europe/Berln");
    consent_from_two_places: ("from: event.consent", "from: event.consent, purpose: news");
    a_list_that_is_not_there: ("list: gone", "list: gnoe");
    a_cap_for_ever: ("per: 90d", "per: 900d");
    a_policy_that_reads_a_step: ("when: event.total > 10", "when: steps.code.output.total > 10");
    a_policy_of_a_step_filled_in: ("policy: [marketing, careful]", "policy: '{{ event.policy }}'");
    a_policy_filled_in: ("with: {policy: marketing}", "with: {policy: '{{ event.policy }}'}");
    an_answer_that_is_none: ("default: reject", "default: maybe");
    a_question_without_a_title: ("title: Again?, ", "");
    a_question_to_a_slack_that_cannot_be_believed: (", signing_secret: '${secrets.SIGNING}'", "");
    a_question_to_no_channel: (", channel: C1", "");
    a_question_in_slack_for_each_item: ("  - name: approve\n", "  - name: approve\n    foreach: '{{ body.items }}'\n");
    a_question_to_an_unknown_slack: ("destination: chat", "destination: chart");
    a_safer_message_that_is_not_there: ("cart_v3: cart_short", "cart_v3: cart_shrt");
    a_safer_message_that_is_handed_too_little: ("It waits.", "It waits: {{ vars.discount }}");
    a_share_that_is_none: ("over: 20%", "over: many");
    a_breaker_of_nothing: ("breaker: mail", "breaker: male");
}

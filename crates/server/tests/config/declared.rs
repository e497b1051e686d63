//! Documents that declare a connector: what is refused, and where.

use sluice_server::config::{Files, Severity, compile};

use crate::editor::AnySecret;

const FLOW: &str = "\
name: orders
triggers: [{ http: { path: /orders, verify: { scheme: stripe, secret: '${secrets.STRIPE}' } } }]
event: { type: order.placed }
steps: [{ queue: orders }]
---
name: points
consumes: orders
run: [{ name: grant, run: x-loyalty.grant, with: { member: '{{ event.type }}' } }]
---
queues: { orders: { retention: 7d } }
destinations: { loyalty: { type: x-loyalty, token: '${secrets.TOKEN}' } }
";

const CONNECTOR: &str = "\
connector: x-loyalty
about: Points.
destination:
  token: {type: secret, required: true, about: Token.}
base_url: https://loyalty.example
auth: {bearer: '{{ destination.token }}'}
failures:
  - {status: 429, action: wait, advice: wait}
actions:
  x-loyalty.grant:
    about: Grants points.
    effect: keyed
    because: The API knows the key.
    parameters:
      member: {required: true, about: Member.}
    request:
      url: /grants
      headers: {Idempotency-Key: '{{ effect.key }}'}
      json: {member: '{{ with.member }}'}
    success: {if: response.body.ok}
";

/// Code and line of every error in the connector, or in the other documents.
fn errors(connector: &str, others: &str) -> Vec<(&'static str, String, usize)> {
    let files = Files::from_texts([("connector.yml", connector), ("flow.yml", others)]);
    let compiled = compile(&files, &AnySecret);
    let is_error = |severity| severity == Severity::Error;
    compiled
        .problems
        .into_iter()
        .filter(|problem| is_error(problem.severity))
        .map(|problem| (problem.code, problem.file, problem.span.map_or(0, |span| span.line)))
        .collect()
}

#[test]
fn connector_and_its_use_are_valid() {
    assert_eq!(errors(CONNECTOR, FLOW), []);
}

#[test]
fn mistakes_in_a_connector_are_reported_where_they_are() {
    for (part, mistake, code, line) in [
        ("connector: x-loyalty", "connector: loyalty", "bad-name", 1),
        ("about: Points.", "abuot: Points.", "unknown-key", 2),
        ("type: secret,", "type: secrte,", "bad-value", 4),
        ("  token: {", "  rate: {", "bad-name", 4),
        ("{{ destination.token }}", "{{ destination.tokn }}", "unknown-name", 6),
        ("{{ destination.token }}", "${secrets.TOKEN}", "secret-not-here", 6),
        ("auth: {bearer:", "auth: {bearer: a, header: {name: X, value: y}, basic:", "exclusive-keys", 6),
        ("status: 429", "status: 42", "bad-value", 8),
        ("{status: 429, ", "{", "missing-key", 8),
        ("action: wait", "action: stop", "bad-value", 8),
        ("action: wait", "action: refresh", "contradiction", 7),
        ("action: wait", "action: retry, for: 3s", "unused-key", 8),
        ("  x-loyalty.grant:", "  grant:", "bad-name", 10),
        ("  x-loyalty.grant:", "  http.request:", "bad-name", 10),
        ("effect: keyed", "effect: verifiable", "class-without-means", 12),
        ("{{ effect.key }}", "fixed", "class-without-means", 12),
        ("    because: The API knows the key.\n", "", "missing-key", 11),
        ("required: true, about: Member.", "required: maybe, about: Member.", "wrong-type", 15),
        ("      member: {", "      resend: {", "bad-name", 15),
        ("{{ with.member }}", "{{ with.membre }}", "unknown-name", 19),
        ("{{ with.member }}", "{{ event.email }}", "unknown-name", 19),
        ("      json: {", "      form: {a: b}\n      json: {", "exclusive-keys", 19),
        ("if: response.body.ok", "if: 'response.body.ok |'", "bad-expression", 20),
        // A call that is repeated in a batch would not be recognised.
        (
            "{if: response.body.ok}\n",
            "{if: response.body.ok}\n    batch: {max: 5, item: {id: '{{ with.member }}'}, request: {url: /all, json: '{{ items }}'}}\n",
            "class-without-means",
            21,
        ),
    ] {
        assert!(CONNECTOR.contains(part), "{part}");
        let found = errors(&CONNECTOR.replacen(part, mistake, 1), FLOW);
        let expected = (code, "connector.yml".to_owned(), line);
        assert!(found.contains(&expected), "`{mistake}`: {found:?}");
        // What uses a connector that cannot be read is not reported as well.
        let elsewhere = found.iter().filter(|(_, file, _)| file == "flow.yml").count();
        assert!(elsewhere == 0 || mistake == "connector: loyalty", "`{mistake}`: {found:?}");
    }
}

#[test]
fn mistakes_in_the_use_of_a_connector_are_those_of_a_built_in_action() {
    for (part, mistake, code) in [
        ("with: { member:", "with: { membr:", "unknown-parameter"),
        (", with: { member: '{{ event.type }}' }", "", "missing-parameter"),
        ("run: x-loyalty.grant", "run: x-loyalty.grnt", "unknown-action"),
        ("type: x-loyalty", "type: x-loyalti", "unknown-type"),
        (", token: '${secrets.TOKEN}'", "", "missing-key"),
        ("token: '${secrets.TOKEN}'", "token: plain", "secret-in-file"),
        ("type: x-loyalty, token", "type: http, base_url: 'https://a.example', headers: {}, x", "unknown-key"),
    ] {
        assert!(FLOW.contains(part), "{part}");
        let found = errors(CONNECTOR, &FLOW.replacen(part, mistake, 1));
        assert!(found.iter().any(|(found, file, _)| *found == code && file == "flow.yml"), "`{mistake}`: {found:?}");
    }
}

#[test]
fn mail_service_takes_the_place_of_smtp_for_templates() {
    let others = FLOW
        .replace(
            "run: x-loyalty.grant, with: { member: '{{ event.type }}' }",
            "run: messaging.send_template, with: { channel: email, template: hi, to: 'a@x.org' }",
        )
        .replace("type: x-loyalty, token:", "type: postmark, from: 'shop@x.org', server_token:");
    let files = Files::from_texts([
        ("flow.yml", others.as_str()),
        ("templates/hi.subject", "Hi\n"),
        ("templates/hi.txt", "Hi\n"),
    ]);
    let compiled = compile(&files, &AnySecret);
    let config = compiled.config.unwrap_or_else(|| panic!("{:?}", compiled.problems));
    assert_eq!(&*config.workers["points"].steps[0].destination, "loyalty");
}

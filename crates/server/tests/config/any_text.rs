//! No text makes the reader panic, and every problem points into the text it is about.

use std::io;

use proptest::prelude::*;
use sluice_domain::verify::SecretValue;
use sluice_server::config::{Colours, Files, SecretSource, compile, render_all};

#[derive(Debug)]
struct NoSecrets;

impl SecretSource for NoSecrets {
    fn lookup(&self, _: &str) -> io::Result<Option<SecretValue>> {
        Ok(None)
    }

    fn describe(&self, name: &str) -> String {
        format!("set SLUICE_SECRET_{name}")
    }
}

const GOOD: &str = "\
name: in
triggers:
  - http:
      path: /in
      verify: {scheme: hmac, header: X-Sig, secret: ${secrets.KEY}}
      idempotency: {key_from: [body.id, header:X-Id], ttl: 48h}
      rate_limit: {rate: 5/min, burst: 2}
event:
  identity: {email: {{ body.email | lower }}}
  attributes: [first_name, company.name]
  required: [identity.email]
steps: [{name: put, if: {{ body.x > 1 }}, queue: {name: jobs, body_from: {{ body.y }}}}]
queues: [{name: jobs, retention: 4d}]
destinations: {d: {type: http, base_url: https://x.example, headers: {A: \"é${secrets.B}\"}, auth: {basic: {user: u, password: ${secrets.P}}}}}
---
name: out
consumes: {queue: jobs}
retry: {strategy: phased, phases: [{attempts: 2, delay: immediate}, {attempts: 9, exponential: {base: 1s}}]}
run:
  - id: a-b
    run: http.request
    with:
      url: /x/{{ event.event_id }}
      text: |
        \"quoted {{ event.name }}
";

fn check(text: &str, name: &str) -> Result<(), TestCaseError> {
    let files = Files::from_texts([(name, text)]);
    let compiled = compile(&files, &NoSecrets);
    for problem in &compiled.problems {
        let Some(span) = problem.span else { continue };
        prop_assert!(span.start <= span.end && span.end <= text.len(), "{problem:?}");
        prop_assert!(text.is_char_boundary(span.start) && text.is_char_boundary(span.end), "{problem:?}");
        let before = &text[..span.start];
        prop_assert_eq!(span.line, before.matches('\n').count() + 1, "{:?}", problem);
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        prop_assert_eq!(span.column, column, "{:?}", problem);
    }
    render_all(&compiled.problems, &files, Colours::Ansi);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_rejected(text in "(?s).{0,200}") {
        check(&text, "a.yml")?;
    }

    #[test]
    fn any_yaml_like_text_is_read_or_rejected(
        text in "([-?:,\\[\\]{}#&*!|>'\"%@` \t\r\n]|\\{\\{|\\}\\}|\\$\\{secrets\\.|[a-cé]|queues|triggers|consumes|- |: |\n  ){0,80}",
    ) {
        check(&text, "a.yml")?;
        check(&text, "a.json")?;
    }

    #[test]
    fn damaged_configuration_is_read_or_rejected(
        at in 0usize..1300, gone in 0usize..40, put in "[-?:,\\[\\]{}#&*!|>'\"a1é \n\t]{0,6}",
    ) {
        let characters: Vec<char> = GOOD.chars().collect();
        let at = at.min(characters.len());
        let end = (at + gone).min(characters.len());
        let text: String = characters[..at].iter().copied().chain(put.chars()).chain(characters[end..].iter().copied()).collect();
        check(&text, "a.yml")?;
    }
}

#[test]
fn the_undamaged_configuration_lacks_only_its_secrets() {
    let compiled = compile(&Files::from_texts([("a.yml", GOOD)]), &NoSecrets);
    let codes: Vec<&str> = compiled.problems.iter().map(|problem| problem.code).collect();
    assert_eq!(codes, ["missing-secret"; 3]);
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    let text = format!("\u{feff}{}", GOOD.replace('\n', "\r\n"));
    let compiled = compile(&Files::from_texts([("a.yml", text.clone())]), &NoSecrets);
    let codes: Vec<&str> = compiled.problems.iter().map(|problem| problem.code).collect();
    assert_eq!(codes, ["missing-secret"; 3]);
    for problem in compiled.problems {
        let span = problem.span.unwrap();
        assert!(text[span.start..span.end].contains("${secrets."), "{:?}", &text[span.start..span.end]);
    }
}

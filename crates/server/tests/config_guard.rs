//! Messages, policies, approvals and safe mode in a configuration: what is read, and what `check` says about a mistake.

#![allow(clippy::unwrap_used)]

use std::io;

use sluice_domain::config::Config;
use sluice_domain::verify::SecretValue;
use sluice_server::config::{Colours, Compiled, Files, SecretSource, compile, render_all};

/// Knows every secret.
#[derive(Debug)]
struct Any;

impl SecretSource for Any {
    fn lookup(&self, name: &str) -> io::Result<Option<SecretValue>> {
        Ok(Some(SecretValue::from(format!("hunter2-{name}"))))
    }

    fn describe(&self, name: &str) -> String {
        format!("set SLUICE_SECRET_{name}")
    }
}

const FLOW: &str = "\
name: in
triggers: [{http: {path: /in, verify: {scheme: bearer, secret: '${secrets.IN}'}, idempotency: {key_from: body.id}}}]
event: {type: cart.abandoned, identity: {email: body.email}}
steps: [{queue: carts}]
queues: [carts]
destinations:
  mail: {type: smtp, host: mail.example, from: Shop <shop@example.com>}
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
";

const SUBJECT: &str = "Your cart, {{ event.first_name }}\n";
const TEXT: &str = "Hello {{ event.first_name }}\nUse {{ steps.code.output.body.code }}: {{ vars.offer }}\n";

fn compiled(edits: &[(&str, &str)]) -> (Compiled, Files) {
    let mut files = vec![
        ("flow.yml", FLOW.to_owned()),
        ("worker.yml", WORKER.to_owned()),
        ("templates/cart_v3.subject", SUBJECT.to_owned()),
        ("templates/cart_v3.txt", TEXT.to_owned()),
    ];
    for (old, new) in edits {
        let hits: usize = files.iter().map(|(_, text)| text.matches(old).count()).sum();
        assert_eq!(hits, 1, "{old:?} must stand in one place");
        files.iter_mut().for_each(|(_, text)| *text = text.replace(old, new));
    }
    files.retain(|(_, text)| !text.is_empty());
    let files = Files::from_texts(files);
    (compile(&files, &Any), files)
}

fn good() -> Config {
    let (compiled, files) = compiled(&[]);
    let errors = render_all(&compiled.problems, &files, Colours::None);
    compiled.config.unwrap_or_else(|| panic!("{errors}"))
}

#[test]
fn a_message_is_part_of_the_revision() {
    let before = good();
    assert_eq!(before.messages.names().collect::<Vec<_>>(), ["cart_v3"]);
    let (after, _) = compiled(&[("Hello", "Dear")]);
    assert_ne!(before.revision, after.config.unwrap().revision);
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
}

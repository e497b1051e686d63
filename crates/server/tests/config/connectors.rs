//! Databases, mail, Slack and scripts in a configuration: what is read, and what `check` says about a mistake.

use std::path::Path;
use std::time::Duration;

use sluice_domain::action::Action;
use sluice_domain::config::Config;
use sluice_domain::destination::{DestinationKind, SlackTransport, SmtpTls};
use sluice_domain::outcome::EffectClass;
use sluice_domain::script::Runtime;
use sluice_domain::template::{Scope, Secrets};
use sluice_server::config::{Colours, Compiled, ConfigProblem, Files, Severity, compile, render_all};

use crate::editor;

const FLOW: &str = "\
name: in
triggers: [{http: {path: /in, verify: none, idempotency: {key_from: body.id}}}]
steps: [{queue: jobs}]
queues: [jobs]
";

const DESTINATIONS: &str = "\
destinations:
  db: {type: postgres, url: '${secrets.DB_URL}', statement_timeout: 3s}
  mail: {type: smtp, host: mail.example, user: ann, password: '${secrets.MAIL}', from: Shop <shop@example.com>}
  chat: {type: slack, token: '${secrets.SLACK}'}
  hook: {type: slack, webhook_url: '${secrets.HOOK}'}
";

const WORKER: &str = "\
name: everything
consumes: jobs
run:
  - name: row
    run: postgres.upsert
    with:
      table: contacts
      key: [tenant, email]
      values: {tenant: acme, email: '{{ event.email }}'}
      returning: id
  - name: mail
    run: email.send
    with:
      to: '{{ event.email }}'
      subject: Hello
      text: Your number is {{ steps.row.output.id }}
  - name: message
    run: slack.post
    destination: chat
    with: {channel: C1, text: hello}
  - name: hooked
    run: slack.post
    destination: hook
    with: {text: hello}
  - name: upsert
    uses: node:18
    env:
      DB_URL: ${secrets.DB_URL}
    script: |
      import { upsertContact } from './lib/contacts.js';
      const body = JSON.parse(process.env.BODY);
      await upsertContact(body, `${process.env.IDEMPOTENCY_KEY} {{ not.ours }}`);
  - name: program
    run: script
    with: {class: blind, timeout: 5s}
    command: [./notify, --to, '{{ event.email }}']
";

fn compiled(edits: &[(&str, &str)]) -> (Compiled, Files) {
    let mut files = vec![
        ("flow.yml", FLOW.to_owned()),
        ("destinations.yml", DESTINATIONS.to_owned()),
        ("worker.yml", WORKER.to_owned()),
    ];
    for (old, new) in edits {
        let hits: usize = files.iter().map(|(_, text)| text.matches(old).count()).sum();
        assert_eq!(hits, 1, "{old:?} must stand in one place");
        files.iter_mut().for_each(|(_, text)| *text = text.replace(old, new));
    }
    let files = Files::from_texts(files).within("/etc/shop");
    (compile(&files, &editor::AnySecret), files)
}

/// What is wrong; what is only worth a warning is shown elsewhere.
fn errors(compiled: &Compiled, files: &Files) -> String {
    let is_error = |problem: &&ConfigProblem| problem.severity == Severity::Error;
    let errors: Vec<ConfigProblem> = compiled.problems.iter().filter(is_error).cloned().collect();
    render_all(&errors, files, Colours::None)
}

fn good() -> Config {
    editor::valid(compiled(&[]))
}

#[test]
fn destinations_are_read_with_their_secrets_inside() {
    let config = good();
    let kind = |name: &str| &config.destinations[name].kind;
    let DestinationKind::Postgres(db) = kind("db") else { panic!("db is a postgres") };
    assert_eq!((db.url.expose(), db.statement_timeout), ("hunter2-DB_URL", Duration::from_secs(3)));
    let DestinationKind::Smtp(mail) = kind("mail") else { panic!("mail is an smtp") };
    assert_eq!((mail.port, mail.tls, mail.login.as_ref().unwrap().user.as_str()), (587, SmtpTls::StartTls, "ann"));
    let DestinationKind::Slack(chat) = kind("chat") else { panic!("chat is a slack") };
    assert!(matches!(&chat.transport, SlackTransport::Token(token) if token.expose() == "hunter2-SLACK"));
    assert_eq!(chat.base_url, "https://slack.com/api");
    let DestinationKind::Script(script) = kind("script") else { panic!("script is there without being declared") };
    assert_eq!(script.directory, Path::new("/etc/shop"));
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn steps_have_the_class_of_their_destination() {
    let config = good();
    let steps: Vec<(Action, &str, EffectClass)> =
        config.workers["everything"].steps.iter().map(|step| (step.action, &*step.destination, step.class)).collect();
    assert_eq!(
        steps,
        [
            (Action::PostgresUpsert, "db", EffectClass::Transactional),
            (Action::EmailSend, "mail", EffectClass::Blind),
            (Action::SlackPost, "chat", EffectClass::Verifiable),
            (Action::SlackPost, "hook", EffectClass::Blind),
            (Action::Script, "script", EffectClass::Keyed),
            (Action::Script, "script", EffectClass::Blind),
        ]
    );
}

#[test]
fn script_is_not_a_template_and_gets_body_event_and_secrets() {
    let (compiled, _) = compiled(&[]);
    assert_eq!(compiled.runtimes.iter().map(|needed| needed.runtime).collect::<Vec<_>>(), [Runtime::Node(18)]);
    assert_eq!(compiled.secrets.secret("DB_URL").unwrap().expose(), "hunter2-DB_URL");
    let config = compiled.config.unwrap();
    let mut scope = Scope::new();
    scope.set("body", serde_json::json!({"id": 1}));
    scope.set("event", serde_json::json!({"email": "a@example.com"}));
    let with = config.workers["everything"].steps[4].with.render(&scope, &compiled.secrets).unwrap().unwrap();
    assert!(
        with["script"].as_str().unwrap().ends_with("`${process.env.IDEMPOTENCY_KEY} {{ not.ours }}`);\n"),
        "{with}"
    );
    assert_eq!(
        (&with["runtime"], &with["body"]["id"], &with["event"]["email"]),
        (&"node:18".into(), &1.into(), &"a@example.com".into())
    );
    assert_eq!(with["env"]["DB_URL"], "hunter2-DB_URL");
    let with = config.workers["everything"].steps[5].with.render(&scope, &compiled.secrets).unwrap().unwrap();
    assert_eq!(with["command"], serde_json::json!(["./notify", "--to", "a@example.com"]));
}

#[test]
fn missing_runtime_is_reported_at_its_location() {
    let (mut compiled, files) = compiled(&[]);
    compiled
        .require_runtimes(|runtime| Err(format!("{runtime} is required, but `node` is not installed on this machine")));
    assert!(compiled.config.is_none());
    insta::assert_snapshot!("a_missing_runtime", errors(&compiled, &files));
}

macro_rules! mistakes {
    ($($name:ident: $($edits:expr),+;)+) => {
        $(
            #[test]
            fn $name() {
                let (compiled, files) = compiled(&[$($edits),+]);
                let said = errors(&compiled, &files);
                assert!(compiled.config.is_none() && !said.contains("hunter2"), "{said}");
                insta::assert_snapshot!(stringify!($name), said);
            }
        )+
    };
}

mistakes! {
    a_database_in_plain_text: ("'${secrets.DB_URL}'", "postgres://u:hunter2@db/d");
    a_row_without_its_key: ("      key: [tenant, email]\n", "");
    mail_in_the_clear: ("host: mail.example", "host: mail.example, tls: none");
    a_password_without_a_user: ("user: ann, ", "");
    mail_from_nobody: ("from: Shop <shop@example.com>", "from: the shop");
    mail_without_a_body: ("      text: Your number is {{ steps.row.output.id }}\n", "");
    two_ways_to_slack: ("webhook_url:", "token: '${secrets.SLACK2}', webhook_url:");
    no_way_to_slack: (", token: '${secrets.SLACK}'", "");
    a_runtime_that_nobody_knows: ("uses: node:18", "uses: nodejs:18");
    a_script_without_a_runtime: ("uses: node:18", "run: script");
    a_script_and_a_command: ("command: [./notify", "script: ls\n    command: [./notify");
    nothing_to_run: ("    command: [./notify, --to, '{{ event.email }}']\n", "");
    a_variable_that_is_ours: ("DB_URL: ${", "BODY: ${");
    a_script_for_another_action: ("run: email.send", "run: email.send\n    script: ls");
    a_class_that_a_script_cannot_have: ("class: blind", "class: transactional");
}

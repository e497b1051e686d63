//! `contacts:` and `order: latest`: what is read, and what `check` says about a mistake.

use std::time::Duration;

use sluice_domain::config::Config;
use sluice_domain::contact::OnConflict;
use sluice_server::config::{Colours, Compiled, Files, compile, render_all};

use crate::editor;

const FLOW: &str = "\
name: in
source: shop
triggers: [{http: {path: /in, verify: {scheme: bearer, secret: '${secrets.IN}'}, idempotency: {key_from: body.id}}}]
event: {type: lead.created, identity: {email: body.email}, attributes: {name: body.name}}
steps: [{queue: leads}]
queues: [leads]
destinations:
  crm: {type: salesforce, instance_url: 'https://crm.example', auth: {client_id: a, client_secret: '${secrets.CRM}'}}
";

const CONTACTS: &str = "\
contacts:
  identifiers: [{field: external_id, shared: true}, {field: email, replaceable: true}]
  trust: 40
  sources:
    - {source: shop, trust: 80, fields: [{field: phone, trust: 10}]}
";

const WORKER: &str = "\
name: to-crm
consumes: leads
run:
  - name: upsert
    run: salesforce.upsert
    order: latest
    fields: all
    with: {object: Lead, external_id_field: Ext__c, external_id: '{{ event.email }}', fields: {LastName: '{{ event.name }}'}}
";

fn compiled(edits: &[(&str, &str)]) -> (Compiled, Files) {
    let mut files =
        vec![("flow.yml", FLOW.to_owned()), ("contacts.yml", CONTACTS.to_owned()), ("worker.yml", WORKER.to_owned())];
    for (old, new) in edits {
        let hits: usize = files.iter().map(|(_, text)| text.matches(old).count()).sum();
        assert_eq!(hits, 1, "{old:?} must stand in one place");
        files.iter_mut().for_each(|(_, text)| *text = text.replace(old, new));
    }
    files.retain(|(_, text)| !text.is_empty());
    let files = Files::from_texts(files);
    (compile(&files, &editor::AnySecret), files)
}

fn problems(edits: &[(&str, &str)]) -> String {
    let (compiled, files) = compiled(edits);
    render_all(&compiled.problems, &files, Colours::None)
}

fn good(edits: &[(&str, &str)]) -> Config {
    editor::valid(compiled(edits))
}

#[test]
fn contacts_are_compiled() {
    let config = good(&[]);
    let rules = config.contacts.as_ref().unwrap();
    let identifiers: Vec<(&str, bool)> =
        rules.identifiers.iter().map(|rule| (rule.field.as_str(), rule.shared)).collect();
    assert_eq!(identifiers, [("external_id", true), ("email", false)]);
    assert!(rules.replaceable.contains("email"));
    assert_eq!((rules.trust("shop", "name"), rules.trust("shop", "phone"), rules.trust("x", "name")), (80, 10, 40));
    let merged = config.workers["to-crm"].steps[0].merged.unwrap();
    assert_eq!((merged.parameter, merged.all_fields), ("fields", true));
    assert_eq!((&rules.correlate[..], rules.on_conflict), (&[][..], OnConflict::First));
    assert!(!good(&[("    fields: all\n", "")]).workers["to-crm"].steps[0].merged.unwrap().all_fields);
}

#[test]
fn an_empty_section_keeps_contacts_by_the_usual_identifiers() {
    let config = good(&[(CONTACTS, "contacts: {}\n")]);
    let rules = config.contacts.unwrap();
    let identifiers: Vec<&str> = rules.identifiers.iter().map(|rule| rule.field.as_str()).collect();
    assert_eq!(identifiers, ["contact_external_id", "external_id", "email", "phone_e164", "phone"]);
    assert_eq!(rules.trust, 50);
    assert!(good(&[(CONTACTS, ""), ("    order: latest\n    fields: all\n", "")]).contacts.is_none());
}

#[test]
fn links_and_the_rule_for_conflicts_are_compiled() {
    let more =
        "  trust: 40\n  correlate: [{field: session_id}, {field: name, within: 1d}]\n  on_conflict: quarantine\n";
    let edits = [("  trust: 40\n", more), ("{name: body.name}", "{name: body.name, session_id: body.session}")];
    let rules = good(&edits).contacts.unwrap();
    let day = Duration::from_secs(86_400);
    let links: Vec<(&str, Duration)> = rules.correlate.iter().map(|rule| (rule.field.as_str(), rule.within)).collect();
    assert_eq!((links, rules.on_conflict), (vec![("session_id", 7 * day), ("name", day)], OnConflict::Quarantine));
    assert!(problems(&edits).contains("no problems"), "{}", problems(&edits));
}

#[test]
fn mistakes_are_reported_with_what_to_do() {
    let cases: [(&[(&str, &str)], &str); 14] = [
        (&[("  trust: 40\n", "  correlate: [{field: nmae}]\n")], "no flow maps `nmae`, so it links no events"),
        (&[("  trust: 40\n", "  correlate: [{field: nmae}]\n")], "did you mean `name`?"),
        (&[("  trust: 40\n", "  correlate: [{field: name}, {field: name}]\n")], "`name` is listed twice"),
        (&[("  trust: 40\n", "  correlate: [{field: email}]\n")], "`email` is an identifier"),
        (&[("  trust: 40\n", "  correlate: [{field: name, within: 91d}]\n")], "a duration from"),
        (&[("  trust: 40\n", "  correlate: name\n")], "`correlate` must be"),
        (&[("  trust: 40\n", "  on_conflict: newest\n")], "one of `first`, `quarantine`"),
        (&[(CONTACTS, "")], "no contacts are kept"),
        (&[("order: latest", "order: fifo")], "`fields` requires `order: latest`"),
        (&[("trust: 80", "trust: 101")], "a whole number from 0 to 100"),
        (&[("{field: email, replaceable: true}", "{field: external_id}")], "`external_id` is listed twice"),
        (&[("source: shop, ", "source: shpo, ")], "did you mean `shop`?"),
        (&[("identity: {email: body.email}", "identity: {name: body.email}")], "no identifier of a contact"),
        (
            &[
                ("identity: {email: body.email}", "identity: {phone: body.phone}"),
                ("{field: email, replaceable: true}", "{field: phone}"),
            ],
            "a phone number alone",
        ),
    ];
    for (edits, expected) in cases {
        let problems = problems(edits);
        assert!(problems.contains(expected), "{edits:?}: {problems}");
    }
    let message = "    run: email.send\n    order: latest\n    with: {to: a@b.c, subject: s, text: t}\n";
    let step = WORKER.split_once("    run:").unwrap().1;
    let edits = [
        (step, message.strip_prefix("    run:").unwrap()),
        ("destinations:\n", "destinations:\n  mail: {type: smtp, host: mail.example, from: a@b.c}\n"),
    ];
    assert!(problems(&edits).contains("email.send does not write the fields of a record"), "{}", problems(&edits));
}

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

/// A worker whose first step looks the person up.
const LOOKUP: &str = "\
name: to-crm
consumes: leads
run:
  - name: person
    run: enrich.http
    destination: directory
    with: {url: '/v/{{ event.name }}', fields: {email: email}}
    identity: {email: '{{ steps.person.output.email }}'}
  - name: upsert
";

fn looked_up(edits: &[(&str, &str)]) -> String {
    let destinations = "destinations:\n  directory: {type: http, base_url: 'https://people.example'}\n";
    let with_lookup =
        [("name: to-crm\nconsumes: leads\nrun:\n  - name: upsert\n", LOOKUP), ("destinations:\n", destinations)];
    problems(&[&with_lookup[..], edits].concat())
}

#[test]
fn lookup_that_supplies_an_identity_is_read_and_requires_one() {
    assert!(looked_up(&[]).contains("no problems"), "{}", looked_up(&[]));
    let destinations = "destinations:\n  directory: {type: http, base_url: 'https://people.example'}\n";
    let edits =
        [("name: to-crm\nconsumes: leads\nrun:\n  - name: upsert\n", LOOKUP), ("destinations:\n", destinations)];
    let config = good(&edits);
    let worker = &config.workers["to-crm"];
    assert_eq!(worker.identity_lookups().len(), 1);
    assert_eq!(config.flows["in"].admission.require_identity, Some(true));
}

#[test]
fn mistakes_of_an_identity_lookup() {
    let said = |edits: &[(&str, &str)]| looked_up(edits);
    let unknown = said(&[("identity: {email: '{{ steps.person", "identity: {mail: '{{ steps.person")]);
    assert!(unknown.contains("`mail` identifies no contact") && unknown.contains("did you mean `email`?"), "{unknown}");
    let constant = said(&[("'{{ steps.person.output.email }}'", "ada@example.com")]);
    assert!(constant.contains("reads no output of a lookup"), "{constant}");
    let later = said(&[("steps.person.output.email", "steps.upsert.output.id")]);
    assert!(later.contains("which runs later"), "{later}");
    let nothing = said(&[("identity: {email: '{{ steps.person.output.email }}'}", "identity: {}")]);
    assert!(nothing.contains("`identity` must be a map"), "{nothing}");
    let unread = said(&[("steps.person.output.email", "steps.person.output.mail")]);
    assert!(unread.contains("never has a value"), "{unread}");
    let unused = said(&[("identity: {email: body.email}", "require_identity: false, identity: {email: body.email}")]);
    assert!(unused.contains("identity-unused"), "{unused}");
    let kept_nowhere = said(&[(CONTACTS, ""), ("    order: latest\n    fields: all\n", "")]);
    assert!(kept_nowhere.contains("no contacts are kept"), "{kept_nowhere}");
    let in_flow = said(&[("identity: {email: body.email}", "identity: {email: '{{ steps.person.output.email }}'}")]);
    assert!(
        in_flow.contains("a flow is mapped before any step runs") && in_flow.contains("`enrich` step"),
        "{in_flow}"
    );
}

#[test]
fn identity_belongs_to_a_leading_lookup() {
    let on_write = problems(&[(
        "    order: latest\n",
        "    order: latest\n    identity: {email: '{{ steps.upsert.output.id }}'}\n",
    )]);
    assert!(on_write.contains("salesforce.upsert is no lookup"), "{on_write}");
    let behind = "    fields: all\n    with: {object: Lead, external_id_field: Ext__c, external_id: '{{ event.email }}', fields: {LastName: '{{ event.name }}'}}\n";
    let lookup = "  - {name: company, run: enrich.company, identity: {email: '{{ steps.company.output.domain }}'}}\n";
    let said = problems(&[(behind, &format!("{behind}{lookup}"))]);
    assert!(said.contains("step-order") && said.contains("move the lookup to the front"), "{said}");
}

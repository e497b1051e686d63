//! HubSpot and Salesforce destinations: credentials, failure rules and batches, and what `check` says about a mistake.

use sluice_domain::action::Action;
use sluice_domain::config::Config;
use sluice_domain::destination::{DestinationKind, HubspotAuth, SalesforceAuth};
use sluice_domain::outcome::EffectClass;
use sluice_server::config::{Colours, Compiled, Files, compile, render_all};

use crate::editor;

const CONFIGURATION: &str = "\
name: in
triggers: [{http: {path: /in, verify: none, idempotency: {key_from: body.id}}}]
steps: [{queue: jobs}]
queues: [jobs]
---
destinations:
  hub:
    type: hubspot
    auth: {token: '${secrets.HUB}'}
    failure_rules:
      - {status: 500-599, code: BUSY*, action: wait, for: 30s, advice: it is busy}
      - {contains: odd, action: reject, class: mapping}
  app: {type: hubspot, api_version: 2026-03, auth: {client_id: abc, client_secret: '${secrets.A}', refresh_token: '${secrets.B}'}}
  crm:
    type: salesforce
    instance_url: https://acme.my.salesforce.com
    auth: {client_id: abc, user: ann@example.com, private_key: '${secrets.KEY}'}
---
name: leads
consumes: jobs
run:
  - name: contact
    run: hubspot.upsert
    destination: hub
    with: {object: contacts, id_property: email, id: '{{ event.email }}', properties: {firstname: Ada}}
  - name: company
    run: hubspot.upsert
    destination: app
    with: {object: companies, id_property: external_id, id: '{{ event.company }}', properties: {name: Kraal}}
  - name: works-at
    run: hubspot.associate
    destination: app
    with: {from_object: contacts, from: '{{ steps.contact.output.id }}', to_object: companies, to: '{{ steps.company.output.id }}'}
";

fn compiled(edits: &[(&str, &str)]) -> (Compiled, Files) {
    let text = edits.iter().fold(CONFIGURATION.to_owned(), |text, (old, new)| {
        assert_eq!(text.matches(old).count(), 1, "{old:?} must stand in one place");
        text.replace(old, new)
    });
    let files = Files::from_texts([("all.yml", text)]);
    (compile(&files, &editor::AnySecret), files)
}

fn good() -> Config {
    editor::valid(compiled(&[]))
}

#[test]
fn crm_destinations_are_read_with_credentials_and_rules() {
    let config = good();
    let kind = |name: &str| &config.destinations[name].kind;
    let DestinationKind::Hubspot(hub) = kind("hub") else { panic!("hub is a hubspot") };
    assert_eq!((hub.base_url.as_str(), hub.api_version.as_str()), ("https://api.hubapi.com", "v3"));
    assert!(matches!(&hub.auth, HubspotAuth::Token(token) if token.expose() == "hunter2-HUB"));
    let rules: Vec<String> = config.destinations["hub"]
        .failure_rules
        .iter()
        .map(|rule| format!("{} {}", rule.action, rule.advice))
        .collect();
    assert_eq!(rules, ["wait 30s it is busy", "reject mapping a failure rule of this destination matched: odd"]);
    let DestinationKind::Hubspot(app) = kind("app") else { panic!("app is a hubspot") };
    assert_eq!(app.api_version, "2026-03");
    assert!(matches!(&app.auth, HubspotAuth::RefreshToken { client_id, .. } if client_id == "abc"));
    let DestinationKind::Salesforce(crm) = kind("crm") else { panic!("crm is a salesforce") };
    let SalesforceAuth::JwtBearer { user, audience, .. } = &crm.auth else { panic!("crm signs assertions") };
    assert_eq!((user.as_str(), audience.as_str()), ("ann@example.com", "https://login.salesforce.com"));
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn hubspot_steps_are_natural_and_only_upserts_by_an_own_property_are_batched() {
    let config = good();
    let steps = config.workers["leads"].steps.iter();
    let found: Vec<_> = steps.map(|step| (step.action, step.class, step.batch.as_ref().map(|form| form.max))).collect();
    assert_eq!(
        found,
        [
            (Action::HubspotUpsert, EffectClass::Natural, None),
            (Action::HubspotUpsert, EffectClass::Natural, Some(100)),
            (Action::HubspotAssociate, EffectClass::Natural, None),
        ]
    );
    let limited = editor::valid(compiled(&[("api_version: 2026-03", "batch_max: 1")]));
    assert_eq!(limited.workers["leads"].steps[1].batch, None);
}

#[test]
fn mistakes_in_crm_destinations_are_reported() {
    for (old, new, expected) in [
        ("auth: {token: '${secrets.HUB}'}", "auth: {token: pat-na1-hunter2}", "secret"),
        ("auth: {token: '${secrets.HUB}'}", "auth: {}", "hubspot credentials need `token` or `refresh_token`"),
        (", refresh_token: '${secrets.B}'", "", "need `token` or `refresh_token`"),
        ("client_secret: '${secrets.A}', ", "", "hubspot credentials need `client_secret`"),
        ("api_version: 2026-03", "api_version: v2", "is not a version of the HubSpot API"),
        ("status: 500-599", "status: 599-500", "`status` must be a status such as 429"),
        ("status: 500-599, code: BUSY*, ", "", "a failure rule needs `status`, `code` or `contains`"),
        ("action: wait", "action: ignore", "`action` must be one of"),
        ("action: wait", "action: conflict", "only `retry` and `wait` take `for`"),
        ("action: reject, class: mapping", "action: retry, class: mapping", "only `reject` takes `class`"),
        ("class: mapping", "class: auth", "`class` must be one of"),
        ("user: ann@example.com, ", "", "salesforce credentials need `user` with `private_key`"),
        (", private_key: '${secrets.KEY}'", "", "need `client_secret`, `private_key` or `token`"),
        ("action: wait", "action: unsure", "only `retry` and `wait` take `for`"),
        ("id_property: email, ", "", "hubspot.upsert needs the parameter `id_property`"),
    ] {
        let (compiled, files) = compiled(&[(old, new)]);
        let said = render_all(&compiled.problems, &files, Colours::None);
        assert!(compiled.config.is_none() && said.contains(expected), "{old} → {new}: {said}");
    }
}

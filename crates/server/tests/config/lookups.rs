//! `enrich.*`: what is read, and what `check` says about a mistake.

use std::path::Path;

use sluice_domain::action::Action;
use sluice_domain::outcome::EffectClass;
use sluice_server::config::{Colours, Compiled, Files, Severity, compile, render_all};

use crate::editor;

const CONFIG: &str = "\
name: in
source: shop
triggers: [{http: {path: /in, verify: {scheme: bearer, secret: '${secrets.IN}'}, idempotency: {key_from: body.id}}}]
event: {type: lead.created, identity: {email: body.email}, attributes: {ip: body.ip}}
steps: [{queue: leads}]
queues: [leads]
destinations:
  profiles: {type: http, base_url: 'https://profiles.example'}
  crm: {type: salesforce, instance_url: 'https://crm.example', auth: {client_id: a, client_secret: '${secrets.CRM}'}}
---
name: to-crm
consumes: leads
run:
  - name: company
    run: enrich.company
  - name: geo
    run: enrich.geoip
    with: {ip: '{{ event.ip }}', database: geo/city.mmdb}
  - name: profile
    run: enrich.http
    with: {url: '/people/{{ event.email }}', fields: {size: company.size}, timeout: 3s}
  - name: upsert
    run: salesforce.upsert
    with: {object: Lead, external_id_field: Ext__c, external_id: '{{ event.email }}', fields: {City: '{{ steps.geo.output.city }}'}}
";

fn compiled(edits: &[(&str, &str)]) -> (Compiled, Files) {
    let mut text = CONFIG.to_owned();
    for (old, new) in edits {
        assert_eq!(text.matches(old).count(), 1, "{old:?} must stand in one place");
        text = text.replace(old, new);
    }
    let files = Files::from_texts(vec![("all.yml", text)]).within("/etc/sluice");
    (compile(&files, &editor::AnySecret), files)
}

#[test]
fn lookups_are_internal_and_may_read_from_a_destination() {
    let config = editor::valid(compiled(&[]));
    let steps = config.workers["to-crm"].steps.iter();
    let found: Vec<_> = steps.map(|step| (step.action, &*step.destination, step.action.is_internal())).collect();
    assert_eq!(
        found,
        [
            (Action::EnrichCompany, "", true),
            (Action::EnrichGeoip, "", true),
            (Action::EnrichHttp, "profiles", true),
            (Action::SalesforceUpsert, "crm", false),
        ]
    );
    assert_eq!(config.workers["to-crm"].steps[2].class, EffectClass::Transactional);
}

#[test]
fn mistakes_in_lookups_are_reported() {
    for (old, new, expected) in [
        (", database: geo/city.mmdb", "", "enrich.geoip needs the parameter `database`"),
        ("database: geo/city.mmdb", "database: '{{ body.file }}'", "`database` is read at startup"),
        ("database: geo/city.mmdb", "database: a, databse: b", "enrich.geoip has no parameter `databse`"),
        ("fields: {size: company.size}, ", "", "enrich.http needs the parameter `fields`"),
        ("fields: {size: company.size}", "fields: {}", "`fields` is empty"),
        ("fields: {size: company.size}", "fields: {found: a}", "every output of a lookup has its own `found`"),
        ("fields: {size: company.size}", "fields: {size: 'company..size'}", "`fields.size` must be a path"),
        ("fields: {size: company.size}", "fields: '{{ body.fields }}'", "`fields` is read at startup"),
        ("timeout: 3s", "timeout: 11s", "a lookup may take at most 10s"),
        ("timeout: 3s", "method: DELETE", "`method` must be one of `GET`, `POST`"),
        ("timeout: 3s", "cache: long", "`cache`"),
        ("  profiles: {type: http, base_url: 'https://profiles.example'}\n", "", "needs a destination of type http"),
        ("timeout: 3s", "destination: crm", "needs a destination of type http, but `crm` has the type salesforce"),
        ("run: enrich.company", "run: enrich.company\n    destination: crm", "is internal and has no destination"),
        ("run: enrich.company", "run: enrich.compny", "did you mean `enrich.company`?"),
        ("timeout: 3s}", "timeout: 3s}\n    policy: nice", "enrich.http has no external effect"),
    ] {
        let (compiled, files) = compiled(&[(old, new)]);
        let said = render_all(&compiled.problems, &files, Colours::None);
        assert!(said.contains(expected), "{new}: {expected}\n{said}");
        assert!(compiled.config.is_none(), "{new} is an error");
    }
}

#[test]
fn database_that_cannot_be_read_is_a_warning() {
    let (mut checked, _) = compiled(&[]);
    checked.warn_of_databases(|_| Ok(()));
    assert_eq!(checked.problems, []);
    checked.warn_of_databases(|path| {
        assert_eq!(path, Path::new("/etc/sluice/geo/city.mmdb"));
        Err("there is no database there".to_owned())
    });
    let [problem] = &checked.problems[..] else { panic!("one warning: {:?}", checked.problems) };
    assert_eq!((problem.severity, problem.code), (Severity::Warning, "database-unreadable"));
    assert_eq!(problem.place(), "all.yml:18:44");
    assert!(checked.config.is_some(), "leads arrive without it");
}

#[test]
fn output_that_no_lookup_has_is_a_warning() {
    let city = "City: '{{ steps.geo.output.city }}'";
    let warned = |new: &str| {
        let (compiled, files) = compiled(&[(city, new)]);
        assert!(compiled.config.is_some(), "a warning is no error");
        render_all(&compiled.problems, &files, Colours::None)
    };
    for known in ["steps.geo.output.timezone", "steps.company.output.name", "steps.profile.output.size"] {
        assert_eq!(warned(&format!("City: '{{{{ {known} }}}}'")), "no problems\n", "{known}");
    }
    assert_eq!(warned("City: \"{{ steps.profile.output.warning.code | default('none') }}\""), "no problems\n");
    let said = warned("City: '{{ steps.geo.output.ctiy | upper }}'");
    assert!(
        said.contains("`steps.geo.output.ctiy` never has a value") && said.contains("did you mean `city`?"),
        "{said}"
    );
    let said = warned("City: '{{ steps.profile.output.title }}'");
    assert!(said.contains("the output has found, size, warning"), "{said}");
}

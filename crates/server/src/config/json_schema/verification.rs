//! Required and unsupported settings per scheme, queried from the verifier.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::verify::{
    HmacSettings, HubspotVersion, Scheme, Secret, SecretValue, SettingsProblem, TokenLocation, Verifier,
    VerifierSettings,
};

use super::{pattern, rules};
use crate::config::verify::OWN_SETTINGS;

pub(super) fn schemes() -> Vec<Value> {
    // Schemes with the same rules are grouped.
    let mut kinds: Vec<(Vec<&str>, Vec<Value>)> = vec![];
    for scheme in Scheme::ALL {
        let rules = of_scheme(*scheme);
        match kinds.iter_mut().find(|(_, other)| *other == rules) {
            Some((names, _)) => names.push(scheme.name()),
            None => kinds.push((vec![scheme.name()], rules)),
        }
    }
    let of_kind = |(names, rules): (Vec<&str>, Vec<Value>)| {
        let named = json!({ "required": ["scheme"], "properties": { "scheme": { "enum": names } } });
        json!({ "if": named, "then": { "allOf": rules } })
    };
    let mut found: Vec<Value> = kinds.into_iter().map(of_kind).collect();
    for version in ["v1", "v2", "v3"] {
        let is_version = json!({ "required": ["version"], "properties": {
            "scheme": { "const": Scheme::Hubspot.name() },
            "version": { "type": "string", "pattern": format!("^({})$", pattern::any_case(&[version])) },
        } });
        found.push(json!({ "if": is_version, "then": needs(Scheme::Hubspot, Some(version)) }));
    }
    found
}

fn of_scheme(scheme: Scheme) -> Vec<Value> {
    let mut then = vec![];
    if scheme == Scheme::Hubspot {
        // Requirements depend on the version; without a version, on all of them.
        let auto =
            json!({ "properties": { "version": { "pattern": format!("^({})$", pattern::any_case(&["auto"])) } } });
        then.push(json!({ "if": auto, "then": needs(scheme, None) }));
    } else {
        then.push(needs(scheme, None));
    }
    match scheme {
        Scheme::None => then.push(json!({ "not": rules::any_of(&["secret", "secrets"]) })),
        _ => then.push(rules::any_of(&["secret", "secrets"])),
    }
    let useless: Vec<&str> =
        OWN_SETTINGS.iter().filter(|(_, schemes)| !schemes.contains(&scheme)).map(|(name, _)| *name).collect();
    then.push(json!({ "not": rules::any_of(&useless) }));
    match scheme {
        Scheme::Hmac => then.extend(hmac()),
        Scheme::Token => {
            then.push(json!({ "oneOf": [{ "required": ["header"] }, { "required": ["query"] }] }));
            then.push(json!({ "properties": { "header": { "not": { "type": "array" } } } }));
        }
        _ => {}
    }
    then
}

/// Settings that the verifier of a scheme rejects or requires.
fn needs(scheme: Scheme, version: Option<&str>) -> Value {
    let settings = || {
        let mut settings = VerifierSettings::new(scheme, vec![]);
        if scheme != Scheme::None {
            settings.secrets = vec![Secret::new("name", SecretValue::from("user:password"))];
        }
        settings.hmac = (scheme == Scheme::Hmac).then(|| HmacSettings::new("X-Signature"));
        settings.token = (scheme == Scheme::Token).then(|| TokenLocation::Header("X-Token".into()));
        settings.public_url = Some("https://in.example/".into());
        settings.hubspot_version = match version {
            Some("v1") => HubspotVersion::V1,
            Some("v2") => HubspotVersion::V2,
            Some("v3") => HubspotVersion::V3,
            _ => HubspotVersion::Auto,
        };
        settings
    };
    let refused = |change: &dyn Fn(&mut VerifierSettings)| {
        let mut settings = settings();
        change(&mut settings);
        let problem = Verifier::new(settings).err();
        problem.is_some_and(|problem| {
            matches!(
                problem,
                SettingsProblem::SettingUnused { .. }
                    | SettingsProblem::ToleranceWithoutTimestamp
                    | SettingsProblem::PublicUrlMissing
            )
        })
    };
    let secret = || Some(SecretValue::from("secret"));
    let mut useless: Vec<Value> = vec![];
    let mut unless = |name: &str, refused: bool| {
        if refused {
            useless.push(json!({ "required": [name] }));
        }
    };
    // The settings of a custom sender state whether it signs a time.
    let timed = |settings: &mut VerifierSettings| settings.tolerance = Some(Duration::from_secs(60));
    unless("tolerance", scheme != Scheme::Hmac && refused(&timed));
    unless("user", refused(&|settings| settings.user_name = Some("user".into())));
    unless("verify_token", refused(&|settings| settings.verify_token = secret()));
    unless("signing_key", refused(&|settings| settings.signing_key = secret()));
    if version.is_none() && refused(&|settings| settings.hubspot_version = HubspotVersion::V1) {
        let other = format!("^(?!({})$)", pattern::any_case(&["auto"]));
        useless.push(json!({ "required": ["version"], "properties": { "version": { "pattern": other } } }));
    }
    let mut rule = json!({});
    if !useless.is_empty() {
        rule["not"] = json!({ "anyOf": useless });
    }
    if refused(&|settings| settings.public_url = None) {
        rule["required"] = json!(["public_url"]);
    }
    rule
}

/// Rules of custom sender settings.
fn hmac() -> Vec<Value> {
    let signs = |what: &str| json!({ "required": ["signed"], "properties": { "signed": { "pattern": what } } });
    let needs = |what: &str, key: &str| json!({ "if": signs(what), "then": { "required": [key] } });
    let in_field = json!({ "required": ["timestamp"], "properties": { "timestamp": { "required": ["field"] } } });
    vec![
        json!({ "required": ["header"] }),
        json!({ "if": signs(r"\{timestamp\}"), "then": { "required": ["timestamp"] }, "else": { "not": { "required": ["timestamp"] } } }),
        needs(r"\{id\}", "id_header"),
        needs(r"\{url\}", "public_url"),
        json!({ "dependencies": { "tolerance": ["timestamp"] } }),
        json!({ "if": in_field, "then": { "required": ["list"] } }),
    ]
}

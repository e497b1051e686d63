//! Key rules of sections, and rules that depend on values.

use serde_json::{Value, json};
use sluice_domain::action::Action;
use sluice_domain::verify::{Preset, Scheme, preset};

use super::{action, pattern, verification};
use crate::config::retry::MEANINGLESS;
use crate::config::rule::{Holds, KeyRule};
use crate::config::table::SectionSpec;
use crate::config::worker::STARTS;

/// Rules of a section.
pub(super) fn of(table: &SectionSpec) -> Vec<Value> {
    let mut rules: Vec<Value> = table.rules.iter().map(of_rule).collect();
    rules.extend(of_values(table.title));
    rules
}

fn of_rule(rule: &KeyRule) -> Value {
    match (rule.holds, rule.keys) {
        (Holds::AtLeastOne, keys) => any_of(keys),
        (Holds::FirstNeedsSecond, keys) => json!({ "dependencies": { keys[0]: [keys[1]] } }),
        (Holds::AtMostOne, [one, other]) => json!({ "not": { "required": [one, other] } }),
        (Holds::AtMostOne, keys) => {
            let later = |place: usize| keys[place + 1..].iter();
            let pairs = keys.iter().enumerate().flat_map(|(place, one)| later(place).map(move |other| (one, other)));
            let pairs: Vec<Value> = pairs.map(|(one, other)| json!({ "required": [one, other] })).collect();
            json!({ "not": { "anyOf": pairs } })
        }
    }
}

pub(super) fn any_of(keys: &[&str]) -> Value {
    json!({ "anyOf": keys.iter().map(|key| json!({ "required": [key] })).collect::<Vec<_>>() })
}

/// Rules that depend on values.
fn of_values(title: &str) -> Vec<Value> {
    let is = |key: &str, word: &str| {
        let word = format!("^({})$", pattern::any_case(&[word]));
        json!({ "required": [key], "properties": { key: { "type": "string", "pattern": word } } })
    };
    match title {
        "a flow" => vec![
            json!({ "not": any_of(STARTS) }),
            unless_mapped("id", "key-without-id", |preset| !preset.event_id.is_empty()),
            unless_mapped("occurred_at", "key-without-moment", |preset| !preset.occurred_at.is_empty()),
        ],
        "an event" => {
            let wanted =
                json!({ "required": ["require_identity"], "properties": { "require_identity": { "const": true } } });
            let mapped = json!({ "required": ["identity"], "properties": { "identity": { "minProperties": 1 } } });
            vec![json!({ "if": wanted, "then": mapped })]
        }
        "a retry policy" => {
            let of_strategy =
                |(word, keys): &(&str, &[&str])| json!({ "if": is("strategy", word), "then": { "not": any_of(keys) } });
            let (_, not_phased) = MEANINGLESS[2];
            let unnamed = json!({ "required": ["phases"], "not": { "required": ["strategy"] } });
            let mut rules: Vec<Value> = MEANINGLESS.iter().map(of_strategy).collect();
            rules.push(json!({ "if": unnamed, "then": { "not": any_of(not_phased) } }));
            rules.push(json!({ "if": is("strategy", "phased"), "then": { "required": ["phases"] } }));
            rules
        }
        "a verification" => verification::schemes(),
        "a signature list" => {
            vec![
                json!({ "not": { "allOf": [is("assign", "comma"), { "properties": { "separator": { "pattern": "^[Cc][Oo][Mm][Mm][Aa]$" } } }] } }),
            ]
        }
        "an smtp destination" => {
            let elsewhere =
                json!({ "not": { "pattern": "^(localhost|127(\\.[0-9]{1,3}){3}|::1|(0{1,4}:){7}0{0,3}1)$" } });
            let mut open = is("tls", "none");
            open["required"] = json!(["tls", "host"]);
            open["properties"]["host"] = elsewhere;
            let meant =
                json!({ "required": ["allow_plaintext"], "properties": { "allow_plaintext": { "const": true } } });
            vec![json!({ "if": open, "then": meant })]
        }
        "a step" => {
            let mut rules = action::of_step();
            rules.extend(action::guarded());
            rules
        }
        "an undo" => action::of_step(),
        _ => vec![],
    }
}

/// A key cannot use a field that neither the event mapping nor the sender's scheme provides.
fn unless_mapped(key: &str, otherwise: &str, is_known: impl Fn(&Preset) -> bool) -> Value {
    let known = Scheme::ALL.iter().filter(|scheme| is_known(preset(**scheme))).map(|scheme| scheme.name());
    let sender = json!({ "required": ["verify"], "properties": {
        "verify": { "type": "object", "required": ["scheme"], "properties": { "scheme": { "enum": known.collect::<Vec<_>>() } } },
    } });
    let without = json!({ "properties": { "idempotency": { "properties": {
        "key_from": { "$ref": format!("#/definitions/{otherwise}") },
    } } } });
    let trigger = json!({ "properties": { "http": { "if": { "not": sender }, "then": without } } });
    let mapped = json!({ "required": ["event"], "properties": { "event": { "required": [key] } } });
    json!({ "if": { "not": mapped }, "then": { "properties": { "triggers": { "items": trigger, "properties": trigger["properties"] } } } })
}

/// Matches steps with one of these actions.
pub(super) fn runs(names: &[&str]) -> Value {
    let by = |key: &str| json!({ "required": [key], "properties": { key: { "enum": names } } });
    json!({ "anyOf": [by("run"), by("uses")] })
}

pub(super) fn actions(inner: impl Fn(Action) -> bool) -> Vec<&'static str> {
    Action::ALL.into_iter().filter(|action| inner(*action)).map(Action::name).collect()
}

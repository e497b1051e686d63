//! Applies the defaults of a sender's scheme to a flow.

use sluice_domain::event::EventMapping;
use sluice_domain::flow::{BodyFormat, BodySettings};
use sluice_domain::key::{KeyPart, KeyStrategy};
use sluice_domain::path::{Path, Segment};
use sluice_domain::template::{Coalesce, Expression, Template};
use sluice_domain::verify::{self, BodyForm, FieldLocation, FieldPath, Preset, Verifier};

/// Preset of the sender, by its verification scheme.
pub(super) fn of(verifier: Option<&Verifier>) -> Option<&'static Preset> {
    verifier.map(|verifier| verify::preset(verifier.scheme()))
}

/// Sets the paths of event id, type and time that the flow does not map.
pub(super) fn fill(mapping: &mut EventMapping, preset: &Preset, type_written: bool) {
    if !type_written && !preset.event_type.is_empty() {
        let fallback = match &mapping.event_type {
            Template::Literal(name) => name.as_str().map(str::to_owned),
            _ => None,
        };
        mapping.event_type = Template::Coalesce(coalesce(preset.event_type.iter().copied(), '.', fallback));
    }
    if mapping.source_event_id.is_none() && !preset.event_id.is_empty() {
        mapping.source_event_id = Some(Template::Coalesce(coalesce(preset.event_id.iter().copied(), '|', None)));
    }
    if mapping.occurred_at.is_none() && !preset.occurred_at.is_empty() {
        let single = preset.occurred_at.iter().map(|(source, _)| std::slice::from_ref(source));
        mapping.occurred_at = Some(Template::Coalesce(coalesce(single, ' ', None)));
    }
}

fn coalesce<'a>(all: impl Iterator<Item = &'a [FieldLocation]>, separator: char, fallback: Option<String>) -> Coalesce {
    let alternatives = all.map(|parts| parts.iter().filter_map(expression).collect()).collect();
    Coalesce { alternatives, separator, fallback }
}

fn expression(source: &FieldLocation) -> Option<Expression> {
    let text = match source {
        FieldLocation::Header(name) => format!("headers[\"{name}\"]"),
        FieldLocation::Body(path) => {
            names(path).iter().fold("body".to_owned(), |text, name| format!("{text}[\"{name}\"]"))
        }
    };
    Expression::parse(&text).ok()
}

/// Path segments of a field. The form field `data[id]` is `id` in `data`.
fn names(path: FieldPath) -> Vec<&'static str> {
    path.iter().flat_map(|name| name.split(['[', ']']).filter(|part| !part.is_empty())).collect()
}

/// Fields as paths into the body of one event.
pub(super) fn paths(fields: &[FieldPath]) -> Vec<Path> {
    let path = |field: &FieldPath| Path(names(field).into_iter().map(|name| Segment::Key(name.to_owned())).collect());
    fields.iter().map(path).collect()
}

/// Key of source, type and event id; of type and fingerprint if a request has no id. A request whose type may be missing gets a
/// plain fingerprint then.
pub(super) fn by_event_id(mapping: &EventMapping) -> Vec<KeyStrategy> {
    let fingerprint = |parts| KeyStrategy::Fingerprint { parts, volatile: vec![] };
    let mut strategies = vec![
        KeyStrategy::Parts(vec![KeyPart::Source, KeyPart::EventType, KeyPart::EventId]),
        fingerprint(vec![KeyPart::EventType]),
    ];
    let always_typed = match &mapping.event_type {
        Template::Literal(_) => true,
        Template::Coalesce(coalesce) => coalesce.fallback.is_some(),
        _ => false,
    };
    if !always_typed {
        strategies.push(fingerprint(vec![]));
    }
    strategies
}

/// True if the sender signs the body, but not every header that a key is derived from: a captured request can be sent again with
/// another id.
pub(super) fn has_unsigned_id(verifier: Option<&Verifier>, strategies: &[KeyStrategy], mapping: &EventMapping) -> bool {
    let Some(coverage) = verifier.map(Verifier::coverage).filter(|coverage| coverage.body) else { return false };
    let mut headers = strategies.iter().flat_map(|strategy| strategy.identifying_headers(mapping));
    headers.any(|name| !coverage.has_header(&name))
}

/// Body settings of the sender, and fields that must not be stored.
pub(super) fn body(preset: Option<&Preset>, verifier: Option<&Verifier>) -> BodySettings {
    let mut body = BodySettings::default();
    if let Some(preset) = preset {
        (body.format, body.events) = match preset.body {
            BodyForm::Json => (BodyFormat::Json, None),
            BodyForm::Form => (BodyFormat::Form, None),
            BodyForm::JsonOrForm => (BodyFormat::JsonOrForm, None),
            BodyForm::Events(path) => (BodyFormat::Json, Some(path.iter().map(|name| (*name).to_owned()).collect())),
        };
        body.dropped = paths(preset.secret_fields);
    }
    body.dropped_headers.extend(verifier.and_then(Verifier::credential_header).map(str::to_owned));
    body
}

/// Body paths of the event id and time, ignored when contents are compared. An id composed of several fields is
/// content and is compared.
pub(super) fn own_places(mapping: &EventMapping) -> Vec<Path> {
    let mut places = vec![];
    for template in [&mapping.source_event_id, &mapping.occurred_at].into_iter().flatten() {
        let single: Vec<&Expression> = match template {
            Template::Expression(expression) => vec![expression],
            Template::Coalesce(coalesce) => {
                coalesce.alternatives.iter().filter(|alternative| alternative.len() == 1).flatten().collect()
            }
            _ => vec![],
        };
        let in_body = single.into_iter().filter_map(Expression::as_path).filter(|(root, _)| *root == "body");
        places.extend(in_body.map(|(_, path)| path.clone()));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_domain::verify::Scheme;

    #[test]
    fn every_preset_field_can_be_looked_up() {
        for scheme in Scheme::ALL {
            let preset = verify::preset(*scheme);
            let parts = preset.event_id.iter().chain(preset.event_type).flat_map(|way| way.iter());
            let sources = parts.chain(preset.occurred_at.iter().map(|(source, _)| source));
            for source in sources {
                assert!(
                    expression(source).and_then(|found| found.as_path().map(|_| ())).is_some(),
                    "{scheme}: {source:?}"
                );
            }
        }
        assert_eq!(paths(&[&["data[id]"]])[0].to_string(), "data.id");
    }
}

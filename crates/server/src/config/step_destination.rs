//! Reads the destination of a step.

use sluice_domain::action::Action;
use sluice_domain::destination::DestinationKind;

use super::declarations::Declarations;
use super::fields::Fields;
use super::node::{Span, YamlNode};

/// Destination name with its location.
pub(super) fn read(
    fields: &Fields<'_, '_>,
    action: Action,
    with: Option<&YamlNode>,
    names: &Declarations,
) -> Option<(String, Span)> {
    let report = fields.report;
    let spec = action.spec();
    let inside = with.and_then(|with| with.get("destination"));
    let named = fields.node("destination").or(inside);
    if let (Some(outer), Some(inner)) = (fields.node("destination"), inside)
        && outer.text() != inner.text()
    {
        report
            .error(inner.span, "exclusive-keys", "`destination` is also set on the step, with another name")
            .hint("remove one of them");
    }
    let fitting = {
        let fits = |kind: &DestinationKind| action.accepts(kind);
        names
            .destinations
            .iter()
            .filter(|(_, placed)| placed.value.as_ref().is_some_and(|found| fits(&found.kind)))
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
    };
    let Some(named) = named else {
        return choose(fields, action, &fitting, with, names);
    };
    let Some(name) = named.text() else {
        report.error(named.span, "wrong-type", format!("`destination` must be a name, found {}", named.describe()));
        return None;
    };
    match names.destinations.get(name).map(|placed| &placed.value) {
        Some(Some(found)) if action.accepts(&found.kind) => {}
        Some(None) => return None,
        Some(Some(found)) => {
            report
                .error(
                    named.span,
                    "wrong-destination",
                    format!(
                        "{} needs a destination of type {}, but `{name}` has the type {}",
                        spec.name,
                        spec.destination,
                        found.kind.as_str()
                    ),
                )
                .meant("", [], &offer(&fitting));
            return None;
        }
        None if names.incomplete => return None,
        // The built-in destination may be named, unless another has its name.
        None if name == spec.destination && !spec.destination_required => {}
        None => {
            let known = names.destinations.keys().map(String::as_str);
            report.error(named.span, "unknown-destination", format!("unknown destination `{name}`")).meant(
                name,
                known,
                "declare it under `destinations:`",
            );
            return None;
        }
    }
    Some((name.to_owned(), named.span))
}

fn offer(fitting: &[&str]) -> String {
    match fitting {
        [] => String::new(),
        _ => format!("destinations of that type: {}", fitting.join(", ")),
    }
}

/// The only destination of the required type, or the built-in one.
fn choose(
    fields: &Fields<'_, '_>,
    action: Action,
    fitting: &[&str],
    with: Option<&YamlNode>,
    names: &Declarations,
) -> Option<(String, Span)> {
    let spec = action.spec();
    let report = fields.report;
    let span = fields.node("run").or(fields.node("uses")).map_or(fields.span, |node| node.span);
    match fitting {
        [only] if !leads_elsewhere(only, with, names) => Some(((*only).to_owned(), span)),
        [] | [_] if !spec.destination_required => Some((spec.destination.to_owned(), span)),
        [] => {
            if !names.incomplete && !names.destinations.values().any(|placed| placed.value.is_none()) {
                report
                    .error(
                        span,
                        "no-destination",
                        format!("{} needs a destination of type {}, but none is declared", spec.name, spec.destination),
                    )
                    .hint(format!("declare one: destinations: {{crm: {{type: {}, …}}}}", spec.destination));
            }
            None
        }
        several => {
            report
                .error(
                    span,
                    "ambiguous-destination",
                    format!("there are {} destinations of type {}", several.len(), spec.destination),
                )
                .hint(format!("write `destination:` with one of {}", several.join(", ")));
            None
        }
    }
}

/// An absolute URL outside the destination's base URL must not receive its credentials.
fn leads_elsewhere(destination: &str, with: Option<&YamlNode>, names: &Declarations) -> bool {
    let url = with.and_then(|with| with.get("url")).and_then(YamlNode::text).unwrap_or_default();
    let is_whole = url.starts_with("http://") || url.starts_with("https://");
    let base = names.destinations.get(destination).and_then(|placed| match &placed.value.as_ref()?.kind {
        DestinationKind::Http(http) => http.base_url.as_deref(),
        _ => None,
    });
    is_whole
        && base.is_none_or(|base| {
            let base = base.trim_end_matches('/');
            url.strip_prefix(base).is_none_or(|rest| !(rest.is_empty() || rest.starts_with(['/', '?', '#'])))
        })
}

/// Reports a destination on an internal step.
pub(super) fn refuse(fields: &Fields<'_, '_>, action: Action, with: Option<&YamlNode>) {
    let inside =
        with.and_then(|with| with.entries()).unwrap_or_default().iter().find(|entry| entry.key == "destination");
    let span = fields.node("destination").map(|_| fields.key_span("destination"));
    if let Some(span) = span.or(inside.map(|entry| entry.key_span)) {
        fields
            .report
            .error(span, "unknown-parameter", format!("{} is internal and has no destination", action.name()))
            .hint("remove `destination`");
    }
}

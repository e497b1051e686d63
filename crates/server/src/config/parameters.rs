//! Checks `with:` against the action catalogue.

use serde_json::Value;
use sluice_domain::action::{Action, Parameter, ParameterType};
use sluice_domain::key::is_time_field;
use sluice_domain::template::Template;
use sluice_domain::unit;

use super::connector::OF_ANSWER;
use super::diagnostics::Report;
use super::expression::{Visible, condition, template, warn_of_fallback};
use super::lookup;
use super::node::{Span, YamlEntry, YamlKind, YamlNode};
use super::problem::did_you_mean;
use super::renamed::current_name;
use super::upsert;

/// Parameters read at startup, of every action that has them; templates are not allowed.
const DECIDED_BEFORE: [&str; 3] = ["class", "resend", "policy"];

/// Whether a parameter is read at startup.
pub(super) fn is_decided_before(action: Action, parameter: &str) -> bool {
    DECIDED_BEFORE.contains(&parameter) || lookup::is_decided_before(action, parameter)
}

/// Mutually exclusive request bodies.
pub(super) const BODIES: [&str; 3] = ["json", "form", "text"];

/// Parameter required by an effect class.
pub(super) const MEANS: [(&str, &str); 2] = [("keyed", "idempotency_header"), ("verifiable", "verify")];

/// Parameters that are maps with fixed keys.
pub(super) const INNER_KEYS: [(Action, &str, &[&str]); 5] = [
    (Action::HttpRequest, "verify", &["url", "headers", "found"]),
    (Action::HttpUpsert, "find", &upsert::FIND),
    (Action::HttpUpsert, "create", &upsert::CREATE),
    (Action::HttpUpsert, "update", &upsert::UPDATE),
    (Action::ApprovalRequest, "slack", &["destination", "channel"]),
];

/// Parameters of which at least one is required.
pub(super) fn one_needed(action: Action) -> &'static [&'static str] {
    match action {
        Action::EmailSend | Action::SesSend => &["text", "html"],
        Action::S3Put | Action::WebPushSend => &["json", "text"],
        Action::SlackPost => &["text", "blocks"],
        Action::StoreSetnx => &["ttl_seconds", "ttl"],
        Action::Declared(declared) => declared.any_of(),
        _ => &[],
    }
}

/// Whether a value is computed when the step runs.
pub(super) fn is_filled_in(node: &YamlNode) -> bool {
    node.text().is_some_and(|text| text.contains("{{") || text.contains("${secrets."))
}

/// Reads and checks the parameters, except `destination`.
pub(super) fn read(
    report: Report<'_>,
    action: Action,
    node: Option<&YamlNode>,
    with_span: Span,
    action_span: Span,
    visible: Visible<'_>,
) -> Option<Template> {
    let spec = action.spec();
    let empty = YamlNode { span: action_span, kind: YamlKind::Map(vec![]) };
    let node = node.unwrap_or(&empty);
    let Some(entries) = node.entries() else {
        report
            .error(node.span, "wrong-type", format!("`with` must be a map, found {}", node.describe()))
            .hint(format!("its keys are {}", list(spec.parameters)));
        return None;
    };
    let mut meant = vec![];
    for entry in entries.iter().filter(|entry| entry.key != "destination") {
        match spec.parameters.iter().find(|parameter| parameter.name == entry.key) {
            Some(parameter) => check_shape(report, action, &entry.value, parameter),
            None => {
                let names = || spec.parameters.iter().map(|parameter| parameter.name).chain(["destination"]);
                if let Some(current) = current_name(&entry.key, names()) {
                    let message = format!("the parameter `{}` of {} is now called `{current}`", entry.key, spec.name);
                    let hint = format!("write `{current}:` with the same value");
                    report.error(entry.key_span, "renamed-key", message).hint(hint);
                    continue;
                }
                let near = did_you_mean(&entry.key, names());
                meant.extend(near);
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("its parameters are {}", list(spec.parameters)),
                };
                let message = format!("{} has no parameter `{}`", spec.name, entry.key);
                report.error(entry.key_span, "unknown-parameter", message).hint(hint);
            }
        }
    }
    let at = if entries.is_empty() { action_span } else { with_span };
    for parameter in spec.parameters.iter().filter(|parameter| parameter.required) {
        let is_blank = |value: &YamlNode| value.text().is_some_and(|text| text.trim().is_empty());
        let is_absent = |value: &YamlNode| value.is_null() || is_blank(value);
        if node.get(parameter.name).is_none_or(is_absent) && !meant.contains(&parameter.name) {
            report
                .error(at, "missing-parameter", format!("{} needs the parameter `{}`", spec.name, parameter.name))
                .hint(parameter.about);
        }
    }
    let needed = one_needed(action);
    if !needed.is_empty() && needed.iter().all(|name| node.get(name).is_none()) {
        report.error(at, "missing-parameter", format!("missing `{}`", needed.join("` or `")));
    }
    match action {
        Action::HttpRequest => check_http(report, node),
        Action::HttpUpsert => upsert::check(report, node),
        Action::EnrichHttp => lookup::check_http(report, node),
        Action::ComputeDedupKey => check_fields(report, node),
        Action::SalesforceUpsert | Action::HubspotUpsert => check_on_absent(report, node),
        _ => {}
    }
    for (_, name, keys) in INNER_KEYS.into_iter().filter(|(of, _, _)| *of == action) {
        check_keys(report, node.get(name), name, keys);
    }
    let taken = |entry: &&YamlEntry| entry.key != "destination" && !is_verbatim(action, &entry.key);
    let rest = entries.iter().filter(taken).cloned().collect();
    let read = template(report, &YamlNode { span: node.span, kind: YamlKind::Map(rest) }, visible)?;
    let Template::Map(parameters) = read else { return Some(read) };
    let mut parameters: Vec<(String, Template)> =
        parameters.into_iter().map(|(name, template)| url_parameter(report, action, node, name, template)).collect();
    if action.is_mail() {
        one_address_each(report, node, &mut parameters);
    }
    check_identities(report, node, action, &parameters);
    for entry in entries.iter().filter(|entry| is_verbatim(action, &entry.key)) {
        parameters.push((entry.key.clone(), Template::Literal(entry.value.to_value())));
    }
    Some(Template::Map(parameters))
}

/// Parameters with addresses of a mail.
const ADDRESSES: [&str; 4] = ["to", "cc", "bcc", "reply_to"];

/// Makes every text of an address parameter exactly one address. An event must not add recipients, neither with a comma nor
/// with a list: several are a list in the configuration.
fn one_address_each(report: Report<'_>, node: &YamlNode, parameters: &mut [(String, Template)]) {
    for (name, template) in parameters.iter_mut().filter(|(name, _)| ADDRESSES.contains(&name.as_str())) {
        let Some(written) = node.get(name).filter(|written| written.items().is_none() && !written.is_null()) else {
            continue;
        };
        if written.text().is_some_and(|text| !is_filled_in(written) && text.matches('@').count() > 1) {
            report
                .error(written.span, "several-addresses", format!("`{name}` is one address, or a list of them"))
                .hint(format!("write a list: {name}: [ada@example.com, grace@example.com]"));
        }
        let one = std::mem::replace(template, Template::Literal(Value::Null));
        *template = Template::List(vec![one]);
    }
}

/// Warns of fallbacks in the parameters that identify a record or a mark.
fn check_identities(report: Report<'_>, node: &YamlNode, action: Action, parameters: &[(String, Template)]) {
    for (name, template) in parameters {
        if action.identity_parameter() == Some(name.as_str()) {
            let span = node.get(name).map_or(node.span, |value| value.span);
            warn_of_fallback(report, span, template, &format!("`{name}`"));
        }
    }
}

/// Parameters that are maps with a URL in them.
const WITH_URL: [(Action, &str); 4] = [
    (Action::HttpRequest, "verify"),
    (Action::HttpUpsert, "find"),
    (Action::HttpUpsert, "create"),
    (Action::HttpUpsert, "update"),
];

/// Reads the templates of URLs as such.
fn url_parameter(
    report: Report<'_>,
    action: Action,
    node: &YamlNode,
    name: String,
    template: Template,
) -> (String, Template) {
    let span = node.get(&name).map_or(node.span, |value| value.span);
    let is_url = |parameter: &Parameter| parameter.name == name && parameter.value_type == ParameterType::Url;
    let template = match template {
        template if action.spec().parameters.iter().any(is_url) => url(report, span, template),
        Template::Map(entries) if WITH_URL.contains(&(action, name.as_str())) => Template::Map(
            entries
                .into_iter()
                .map(|(key, template)| match key.as_str() {
                    "url" => (key, url(report, span, template)),
                    _ => (key, template),
                })
                .collect(),
        ),
        other => other,
    };
    (name, template)
}

fn url(report: Report<'_>, span: Span, template: Template) -> Template {
    let template = template.into_url();
    if let Template::Url(url) = &template
        && let Some(expression) = url.leading_value()
    {
        let source = expression.source();
        report
            .warning(
                span,
                "url-starts-with-value",
                format!("`{source}` is percent-encoded and becomes part of the path"),
            )
            .hint(format!("for a path begin with `/`; for a whole URL write {{{{ {source} | raw_url }}}}"));
    }
    template
}

/// A program is not a template: braces and dollar signs are literal. Neither is a rule that is evaluated over the answer.
pub(super) fn is_verbatim(action: Action, name: &str) -> bool {
    let is_rule = |parameter: &Parameter| {
        parameter.name == name && matches!(parameter.value_type, ParameterType::Expression | ParameterType::Expressions)
    };
    (action == Action::Script && name == "script") || action.spec().parameters.iter().any(is_rule)
}

fn list(parameters: &[Parameter]) -> String {
    parameters.iter().map(|parameter| parameter.name).collect::<Vec<_>>().join(", ")
}

/// Description of a parameter type, as in "must be …".
pub(super) fn describe(shape: &ParameterType) -> String {
    match shape {
        ParameterType::Text | ParameterType::Url => "text".into(),
        ParameterType::Flag => "true or false".into(),
        ParameterType::OneOf(words) => super::table::ValueType::OneOf(words).describe(),
        ParameterType::Map => "a map of names to values".into(),
        ParameterType::Any => "anything".into(),
        ParameterType::Duration => "a duration such as 10s".into(),
        ParameterType::Expression => "an expression over the answer".into(),
        ParameterType::Expressions => "a map of names to expressions over the answer".into(),
        ParameterType::Numbers => "a list of whole numbers".into(),
        ParameterType::Texts => "text, or a list of texts".into(),
        ParameterType::Number => "a number above zero".into(),
    }
}

/// Reports a template in a parameter that is read at startup.
pub(super) fn decided_before(report: Report<'_>, span: Span, name: &str) {
    report.error(
        span,
        "expression-not-here",
        format!("`{name}` is read at startup, so {{{{ … }}}} is not available here"),
    );
}

fn check_shape(report: Report<'_>, action: Action, node: &YamlNode, parameter: &Parameter) {
    let filled_in = is_filled_in(node);
    let value = node.to_value();
    let good = match &parameter.value_type {
        _ if filled_in && is_decided_before(action, parameter.name) => {
            return decided_before(report, node.span, parameter.name);
        }
        ParameterType::Expression => {
            condition(report, node, OF_ANSWER);
            return;
        }
        ParameterType::Expressions if node.entries().is_some() => {
            for entry in node.entries().unwrap_or_default() {
                condition(report, &entry.value, OF_ANSWER);
            }
            return;
        }
        ParameterType::Expressions => false,
        ParameterType::Any => true,
        ParameterType::Map => node.entries().is_some() || filled_in,
        ParameterType::Numbers => node.items().is_some_and(|items| items.iter().all(|item| item.to_value().is_u64())),
        ParameterType::Texts if node.items().is_some() => {
            node.items().is_some_and(|items| items.iter().all(|item| item.text().is_some()))
        }
        _ if filled_in => true,
        ParameterType::Text | ParameterType::Url | ParameterType::Texts => node.text().is_some(),
        ParameterType::Number => value.as_f64().is_some_and(|number| number > 0.0),
        ParameterType::Flag => value.is_boolean(),
        ParameterType::OneOf(words) => node.text().is_some_and(|text| words.contains(&text)),
        ParameterType::Duration => match node.text().map(unit::duration) {
            Some(Err(problem)) => {
                report.error(node.span, "bad-value", format!("`{}`: {problem}", parameter.name));
                return;
            }
            found => found.is_some(),
        },
    };
    if good {
        return;
    }
    let written = match &value {
        Value::String(text) if text.len() <= 60 => format!("`{text}`"),
        _ => node.describe().to_owned(),
    };
    let message = format!("`{}` must be {}, found {written}", parameter.name, describe(&parameter.value_type));
    let reported = report.error(node.span, "wrong-type", message);
    if let (ParameterType::OneOf(words), Some(text)) = (&parameter.value_type, node.text()) {
        reported.meant(text, words.iter().copied(), "");
    }
}

/// Only an update can find no record.
fn check_on_absent(report: Report<'_>, node: &YamlNode) {
    let is_update = node.get("mode").is_some_and(|mode| is_filled_in(mode) || mode.text() == Some("update_only"));
    if let Some(on_absent) = node.get("on_absent").filter(|_| !is_update) {
        report
            .warning(on_absent.span, "unused-key", "`on_absent` is not used without `mode: update_only`")
            .hint("an upsert creates a record that is absent");
    }
}

/// A key with time buckets needs a timestamp field.
fn check_fields(report: Report<'_>, node: &YamlNode) {
    let Some(fields) = node.get("fields").and_then(YamlNode::items) else { return };
    let is_moment = |field: &YamlNode| field.text().is_some_and(|name| name.contains("{{") || is_time_field(name));
    if let Some(width) = node.get("bucket_minutes")
        && !fields.iter().any(is_moment)
    {
        report
            .warning(
                width.span,
                "no-moment",
                "no field looks like a timestamp, and only timestamps are divided into buckets",
            )
            .hint("add the timestamp of the event, such as timestamp or occurred_at");
    }
}

/// Checks mutually exclusive and dependent parameters of `http.request`.
fn check_http(report: Report<'_>, node: &YamlNode) {
    let bodies = node.entries().unwrap_or_default().iter().filter(|entry| BODIES.contains(&entry.key.as_str()));
    if let Some(second) = bodies.clone().nth(1) {
        report
            .error(second.key_span, "exclusive-keys", "a request has one body: `json`, `form` or `text`")
            .hint("remove one of them");
    }
    let Some(class) = node.get("class") else { return check_verify(report, node) };
    for (word, means) in MEANS {
        if class.text() == Some(word) && node.get(means).is_none() {
            report
                .error(class.span, "class-without-means", format!("a {word} effect needs `{means}`"))
                .hint(format!("add `{means}`, or remove `class`"));
        }
    }
    check_verify(report, node);
}

fn check_verify(report: Report<'_>, node: &YamlNode) {
    let Some(verify) = node.get("verify").filter(|verify| verify.entries().is_some()) else { return };
    if verify.get("url").is_none() {
        report.error(verify.span, "missing-parameter", "`verify` needs `url`, a URL that responds 2xx or 404");
    }
    if let Some(found) = verify.get("found") {
        if is_filled_in(found) {
            let message = "`found` is evaluated over the answer, so it has no braces";
            report.error(found.span, "expression-not-here", message).hint("such as: found: response.body.total > 0");
        } else {
            condition(report, found, OF_ANSWER);
        }
    }
}

/// Checks the keys of a map parameter.
fn check_keys(report: Report<'_>, node: Option<&YamlNode>, name: &str, keys: &'static [&'static str]) {
    for entry in node.and_then(YamlNode::entries).unwrap_or_default() {
        if !keys.contains(&entry.key.as_str()) {
            report.error(entry.key_span, "unknown-parameter", format!("`{name}` has no key `{}`", entry.key)).meant(
                &entry.key,
                keys.iter().copied(),
                &format!("its keys are {}", keys.join(", ")),
            );
        }
    }
}

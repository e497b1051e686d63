//! `actions:` of a connector.

use sluice_domain::action::Action;
use sluice_domain::connector::{
    ActionDefinition, BatchDefinition, DefinedType, ParameterDefinition, ReadBackRule, StatusRange, Success,
};
use sluice_domain::outcome::EffectClass;
use sluice_domain::template::Template;

use super::connector::{
    ConnectorOrigin, KnownNames, OF_ANSWER, OF_REQUEST, OWN_PREFIX, condition, entries, template, texts,
};
use super::connector_batch;
use super::connector_failure::statuses;
use super::connector_upsert;
use super::diagnostics::Report;
use super::expression::Visible;
use super::fields::{Fields, check_name};
use super::node::{YamlEntry, YamlNode};
use super::rule::at_most_one;
use super::table::{SectionSpec, ValueType, key};

/// Parameters of an action that sends a mail.
const MAIL_PARAMETERS: [&str; 8] = ["to", "cc", "bcc", "reply_to", "from", "subject", "text", "html"];
/// Parameters that every action may have, with a meaning of their own.
const RESERVED_PARAMETERS: [&str; 4] = ["resend", "destination", "class", "policy"];

pub(super) static ACTION: SectionSpec = SectionSpec {
    title: "an action of a connector",
    about: "What a step can run at a destination of the declared type.",
    keys: &[
        key("about", ValueType::Text, "One sentence for the reference.").required(),
        key("parameters", ValueType::Described("a map of names to parameters"), "Keys of `with:`."),
        key(
            "any_of",
            ValueType::Described("a list of parameters"),
            "Parameters of which at least one is required.",
        ),
        key(
            "effect",
            ValueType::OneOf(&["natural", "keyed", "verifiable", "blind"]),
            "Effect class. natural: sending it again changes nothing. keyed: the request carries `effect.key`, and the provider recognises it. verifiable: `read_back` finds it. blind: nothing can be learned.",
        )
        .required(),
        key("because", ValueType::Text, "What makes the class so, in one sentence.").required(),
        key(
            "mail",
            ValueType::Flag,
            "The action sends a mail: it has the parameters of `email.send`, requests read `mail`, and `messaging.send_template` can use the destination.",
        )
        .or("false"),
        key("request", ValueType::Table("a request of a connector"), "The request.").required(),
        key("success", ValueType::Table("a success rule"), "When the effect is applied.").or("any 2xx"),
        key(
            "result",
            ValueType::Described("a map of names to values"),
            "Output of the step. Expressions read `response`, `with` and `effect`.",
        )
        .or("status and body of the answer"),
        key("read_back", ValueType::Table("a read-back rule"), "Looks for the effect after an unknown outcome."),
        key(
            "batch",
            ValueType::Table("a batch of a connector"),
            "How calls of several waiting jobs share a request.",
        ),
        key(
            "upsert",
            ValueType::Table("an upsert rule"),
            "The request creates a record that is looked for first, at a provider that would create it twice.",
        ),
    ],
    later: &[],
    rules: &[],
};

pub(super) static PARAMETER: SectionSpec = SectionSpec {
    title: "a parameter of a connector",
    about: "One key of `with:`.",
    keys: &[
        key(
            "type",
            ValueType::OneOf(&["text", "texts", "flag", "number", "map", "any", "one_of"]),
            "Type of the value; texts is text or a list of texts.",
        )
        .or("text"),
        key("values", ValueType::Described("a list of texts"), "The values of `one_of`."),
        key("required", ValueType::Flag, "Whether a step must set it.").or("false"),
        key("about", ValueType::Text, "One sentence for the reference.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static REQUEST: SectionSpec = SectionSpec {
    title: "a request of a connector",
    about: "One HTTP request. Expressions read `with` (parameters of the step), `destination` (its keys), `effect.key`, and `mail` in an action that sends one. An entry without a value is omitted.",
    keys: &[
        key("method", ValueType::OneOf(&["GET", "POST", "PUT", "PATCH", "DELETE"]), "The method.").or("POST"),
        key(
            "url",
            ValueType::Template,
            "Below `base_url`, or a whole URL if the connector has none. Values are percent-encoded; `| raw_url` marks one that is a whole URL.",
        )
        .required(),
        key("query", ValueType::Described("a map of names to text"), "Query parameters; a list repeats its name."),
        key("headers", ValueType::Described("a map of header names to text"), "Headers."),
        key("json", ValueType::Described("anything"), "The body as JSON."),
        key("form", ValueType::Described("a map of names to text"), "The body as a form; a list repeats its name."),
    ],
    later: &[],
    rules: &[at_most_one(&["json", "form"], "a request has one body: `json` or `form`", "remove one of them")],
};

pub(super) static SUCCESS: SectionSpec = SectionSpec {
    title: "a success rule",
    about: "When an answer means that the effect is applied.",
    keys: &[
        key("status", ValueType::Described("a status, a range such as 200-299, or a list"), "HTTP statuses.")
            .or("200-299"),
        key(
            "if",
            ValueType::Condition,
            "Must hold too, for providers that answer 200 to a request that failed. Reads `response`, `with` and `effect`.",
        ),
    ],
    later: &[],
    rules: &[],
};

pub(super) static READ_BACK: SectionSpec = SectionSpec {
    title: "a read-back rule",
    about: "Status 404 means that the effect is absent; another status than 2xx means that nothing is known.",
    keys: &[
        key("request", ValueType::Table("a request of a connector"), "The request; use GET.").required(),
        key("found", ValueType::Condition, "Over a 2xx answer: whether it has the effect.").required(),
        key("result", ValueType::Described("a map of names to values"), "Output of the step if it is found."),
    ],
    later: &[],
    rules: &[],
};

pub(super) fn read_all(
    report: Report<'_>,
    node: &YamlNode,
    known: &KnownNames<'_>,
    origin: ConnectorOrigin,
) -> Vec<ActionDefinition> {
    let found = entries(report, node, "actions");
    if found.is_empty() && node.entries().is_some() {
        report.error(node.span, "no-actions", "the connector has no actions");
    }
    let actions: Vec<ActionDefinition> = found.iter().filter_map(|entry| read(report, entry, known, origin)).collect();
    if actions.iter().filter(|action| action.is_mail).count() > 1 {
        report.error(node.span, "contradiction", "only one action of a connector can have `mail: true`");
    }
    actions
}

fn read(
    report: Report<'_>,
    entry: &YamlEntry,
    known: &KnownNames<'_>,
    origin: ConnectorOrigin,
) -> Option<ActionDefinition> {
    check_name(report, entry.key_span, &entry.key);
    if Action::parse(&entry.key).is_some() {
        report.error(entry.key_span, "bad-name", format!("`{}` is a built-in action", entry.key));
    }
    if origin == ConnectorOrigin::Configuration && !entry.key.starts_with(OWN_PREFIX) {
        report
            .error(
                entry.key_span,
                "bad-name",
                format!("the action `{}` needs a name that starts with `{OWN_PREFIX}`", entry.key),
            )
            .hint("such as the name of the connector, a dot and a verb");
    }
    let fields = Fields::open(report, &entry.value, &[&ACTION])?;
    let parameters = fields.node("parameters").map(|node| read_parameters(report, node)).unwrap_or_default();
    let names = KnownNames {
        keys: known.keys.clone(),
        parameters: Some(parameters.iter().map(|parameter| parameter.name.as_str()).collect()),
    };
    let any_of = fields.node("any_of").map(|node| texts(report, node, "any_of")).unwrap_or_default();
    for name in any_of.iter().filter(|name| parameters.iter().all(|parameter| parameter.name != **name)) {
        report.error(fields.value_span("any_of"), "unknown-name", format!("`{name}` is not a parameter of the action"));
    }
    let class = fields.one_of("effect").and_then(EffectClass::parse);
    let request = fields.node("request").and_then(|node| read_request(report, node, (OF_REQUEST, &names)));
    let success = fields.node("success").map_or_else(
        || Some(Success { statuses: vec![StatusRange { first: 200, last: 299 }], condition: None }),
        |node| read_success(report, node, &names),
    );
    let result = fields.node("result").and_then(|node| template(report, node, (OF_ANSWER, &names)));
    let read_back = fields.node("read_back").and_then(|node| read_read_back(report, node, &names));
    let batch = fields.node("batch").map(|node| connector_batch::read(report, node, &names));
    let upsert = fields.node("upsert").map(|node| connector_upsert::read(report, node, &names));
    connector_upsert::check(&fields, class);
    let is_mail = fields.flag("mail").unwrap_or(false);
    check_mail(&fields, is_mail, &parameters);
    check_class(&fields, class, request.as_ref());
    check_batch_class(&fields, class, batch.as_ref().and_then(Option::as_ref));
    Some(ActionDefinition {
        name: entry.key.clone(),
        about: fields.text("about").unwrap_or_default().to_owned(),
        any_of,
        class: class?,
        because: fields.text("because").unwrap_or_default().to_owned(),
        is_mail,
        request: request?,
        success: success?,
        result,
        read_back,
        batch: match batch {
            Some(batch) => Some(batch?),
            None => None,
        },
        upsert: match upsert {
            Some(upsert) => Some(upsert?),
            None => None,
        },
        parameters,
    })
}

fn read_parameters(report: Report<'_>, node: &YamlNode) -> Vec<ParameterDefinition> {
    let mut parameters = vec![];
    for entry in entries(report, node, "parameters") {
        check_name(report, entry.key_span, &entry.key);
        if RESERVED_PARAMETERS.contains(&entry.key.as_str()) {
            report.error(entry.key_span, "bad-name", format!("`{}` is a parameter of every action", entry.key));
        }
        let Some(fields) = Fields::open(report, &entry.value, &[&PARAMETER]) else { continue };
        let values = fields.node("values").map(|node| texts(report, node, "values")).unwrap_or_default();
        let value_type = match fields.one_of("type") {
            Some("texts") => DefinedType::Texts,
            Some("flag") => DefinedType::Flag,
            Some("number") => DefinedType::Number,
            Some("map") => DefinedType::Map,
            Some("any") => DefinedType::Any,
            Some("one_of") => DefinedType::OneOf(values),
            _ => DefinedType::Text,
        };
        if matches!(&value_type, DefinedType::OneOf(values) if values.is_empty()) {
            report.error(entry.key_span, "missing-key", "a parameter of type `one_of` needs `values`");
        }
        parameters.push(ParameterDefinition {
            name: entry.key.clone(),
            value_type,
            required: fields.flag("required").unwrap_or(false),
            about: fields.text("about").unwrap_or_default().to_owned(),
        });
    }
    parameters
}

/// A request as the parameters of `http.request`.
pub(super) fn read_request(
    report: Report<'_>,
    node: &YamlNode,
    context: (Visible<'_>, &KnownNames<'_>),
) -> Option<Template> {
    let fields = Fields::open(report, node, &[&REQUEST])?;
    fields.one_of("method");
    for name in ["query", "headers", "form"] {
        if let Some(node) = fields.node(name) {
            entries(report, node, name);
        }
    }
    let Template::Map(parts) = template(report, node, context)? else { return None };
    let url = |(name, part): (String, Template)| match name.as_str() {
        "url" => (name, part.into_url()),
        _ => (name, part),
    };
    Some(Template::Map(parts.into_iter().map(url).collect()))
}

fn read_success(report: Report<'_>, node: &YamlNode, known: &KnownNames<'_>) -> Option<Success> {
    let fields = Fields::open(report, node, &[&SUCCESS])?;
    let statuses = match fields.node("status") {
        Some(node) => statuses(report, node),
        None => vec![StatusRange { first: 200, last: 299 }],
    };
    Some(Success { statuses, condition: fields.node("if").and_then(|node| condition(report, node, known)) })
}

fn read_read_back(report: Report<'_>, node: &YamlNode, known: &KnownNames<'_>) -> Option<ReadBackRule> {
    let fields = Fields::open(report, node, &[&READ_BACK])?;
    let request = fields.node("request").and_then(|node| read_request(report, node, (OF_REQUEST, known)));
    let found = fields.node("found").and_then(|node| condition(report, node, known));
    let result = fields.node("result").and_then(|node| template(report, node, (OF_ANSWER, known)));
    Some(ReadBackRule { request: request?, found: found?, result })
}

/// `messaging.send_template` passes every parameter of a mail, so the action must take all of them.
fn check_mail(fields: &Fields<'_, '_>, is_mail: bool, parameters: &[ParameterDefinition]) {
    if !is_mail {
        return;
    }
    let has = |name: &&str| parameters.iter().any(|parameter| parameter.name == **name);
    let missing: Vec<&str> = MAIL_PARAMETERS.into_iter().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        let message = format!("an action that sends a mail needs the parameters {}", missing.join(", "));
        fields.report.error(fields.key_span("mail"), "missing-parameter", message);
    }
}

fn carries_key(template: &Template) -> bool {
    let mut carries_key = false;
    template.visit_expressions(&mut |expression| carries_key |= expression.roots().contains("effect"));
    carries_key
}

/// A call that shares a request must be recognised as well.
fn check_batch_class(fields: &Fields<'_, '_>, class: Option<EffectClass>, batch: Option<&BatchDefinition>) {
    if class == Some(EffectClass::Keyed) && batch.is_some_and(|batch| !carries_key(&batch.item)) {
        fields
            .report
            .error(
                fields.key_span("batch"),
                "class-without-means",
                "a keyed effect sends `effect.key` in the `item` of its batch",
            )
            .hint("such as: item: {key: '{{ effect.key }}'}");
    }
}

/// The class must have what makes it so.
fn check_class(fields: &Fields<'_, '_>, class: Option<EffectClass>, request: Option<&Template>) {
    let carries_key = request.is_some_and(carries_key);
    let report = fields.report;
    let has_read_back = fields.node("read_back").is_some();
    match class {
        Some(EffectClass::Keyed) if !carries_key && request.is_some() => report
            .error(
                fields.value_span("effect"),
                "class-without-means",
                "a keyed effect sends `effect.key` in its request",
            )
            .hint("such as: headers: {Idempotency-Key: '{{ effect.key }}'}"),
        Some(EffectClass::Verifiable) if !has_read_back && fields.node("upsert").is_none() => report
            .error(fields.value_span("effect"), "class-without-means", "a verifiable effect needs `read_back`")
            .hint("add `read_back`, or write `effect: blind`"),
        Some(EffectClass::Natural | EffectClass::Keyed | EffectClass::Blind) if has_read_back => report
            .error(fields.key_span("read_back"), "unused-key", "only a verifiable effect is read back")
            .hint("write `effect: verifiable`, or remove `read_back`"),
        _ => {}
    }
}

//! A `connector:` document to a registered [`Connector`].

use sluice_domain::connector::{
    AssertionClaims, Connector, ConnectorAuth, DestinationKey, ErrorFields, Grant, KeyType, OAuth, RegisteredConnector,
    WaitSource, WaitUnit, register,
};
use sluice_domain::template::{Expression, Template};
use sluice_domain::verify::is_header_name;

use super::connector_action;
use super::connector_failure;
use super::diagnostics::Report;
use super::expression::{self, SecretUse, Visible};
use super::fields::{Fields, check_name};
use super::node::{Span, YamlEntry, YamlKind, YamlNode};
use super::rule::{at_least_one, at_most_one};
use super::table::{SectionSpec, ValueType, key};

/// Names of connectors and actions of a configuration start with this, so that they never clash with those of a later version.
pub(super) const OWN_PREFIX: &str = "x-";

/// Keys of every destination, which a connector cannot declare.
const RESERVED_KEYS: [&str; 10] = [
    "name",
    "type",
    "base_url",
    "timeout",
    "straggler_horizon",
    "concurrency",
    "rate",
    "burst",
    "breaker",
    "batch_max",
];

/// Variables of templates that are filled in when a destination is prepared.
pub(super) const AT_START: Visible<'static> =
    Visible { roots: &["destination"], earlier: &[], later: &[], secrets: SecretUse::OfDestination };
/// Variables of requests.
pub(super) const OF_REQUEST: Visible<'static> =
    Visible { roots: &["with", "destination", "effect", "mail"], ..AT_START };
/// Variables of rules over an answer.
pub(super) const OF_ANSWER: Visible<'static> = Visible { roots: &["response", "with", "effect"], ..AT_START };

pub(super) static CONNECTOR: SectionSpec = SectionSpec {
    title: "a connector",
    about: "A type of destination, described as data: how requests are made, and what the answers mean. See [declarative connectors](../declarative-connectors.md).",
    keys: &[
        key("connector", ValueType::Name, "Name of the type, for `type:` of a destination. Starts with `x-`.")
            .required(),
        key("version", ValueType::OneOf(&["1"]), "Version of the form.").or("1"),
        key("about", ValueType::Text, "One sentence for the reference.").required(),
        key(
            "destination",
            ValueType::Described("a map of names to keys"),
            "Keys of a destination of this type, besides `base_url` and those of every destination.",
        ),
        key(
            "base_url",
            ValueType::Template,
            "Address of the API; a destination may replace it with its own `base_url`. Expressions read `destination`.",
        ),
        key(
            "headers",
            ValueType::Described("a map of header names to text"),
            "Headers of every request. Expressions read `destination`.",
        ),
        key("auth", ValueType::Table("credentials of a connector"), "How requests are authenticated.").or("none"),
        key("error", ValueType::Table("an error of a connector"), "Where an error answer has its code and message."),
        key(
            "wait_from",
            ValueType::Tables("a wait of a connector"),
            "Where an answer says how long to wait; the first value found applies.",
        ),
        key(
            "failures",
            ValueType::Tables("a failure rule of a connector"),
            "Rules for answers that are no success; the first match applies. Without one the status decides: 429 and 503 with Retry-After wait, 408, 425, 503 retry, 409 and 423 conflict, 401 and 403 auth, other 4xx reject, 5xx unsure (retry if the effect is natural).",
        ),
        key("actions", ValueType::Described("a map of names to actions"), "What a step can run.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static KEY: SectionSpec = SectionSpec {
    title: "a key of a connector",
    about: "A key of a destination of the declared type.",
    keys: &[
        key("type", ValueType::OneOf(&["text", "secret", "url", "one_of"]), "Type of the value.").or("text"),
        key("values", ValueType::Described("a list of texts"), "The values of `one_of`."),
        key("required", ValueType::Flag, "Whether a destination must set it.").or("false"),
        key("default", ValueType::Text, "Value if it is absent."),
        key("about", ValueType::Text, "One sentence for the reference.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static AUTH: SectionSpec = SectionSpec {
    title: "credentials of a connector",
    about: "Set exactly one key. Expressions read `destination`.",
    keys: &[
        key("bearer", ValueType::Template, "Sent as `Authorization: Bearer …`."),
        key("basic", ValueType::Table("basic credentials of a connector"), "Sent as `Authorization: Basic …`."),
        key("header", ValueType::Table("a credential header"), "Sent in a header."),
        key("oauth", ValueType::Table("an oauth token"), "An access token that is fetched and cached until refused."),
    ],
    later: &[],
    rules: &[
        at_most_one(&["bearer", "basic", "header", "oauth"], "`auth` has one key", "remove one of them"),
        at_least_one(
            &["bearer", "basic", "header", "oauth"],
            "`auth` needs `bearer`, `basic`, `header` or `oauth`",
            "such as: bearer: '{{ destination.token }}'",
        ),
    ],
};

pub(super) static AUTH_BASIC: SectionSpec = SectionSpec {
    title: "basic credentials of a connector",
    about: "A user name and a password.",
    keys: &[
        key("user", ValueType::Template, "The user name.").required(),
        key("password", ValueType::Template, "The password.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static AUTH_HEADER: SectionSpec = SectionSpec {
    title: "a credential header",
    about: "A header with the credential.",
    keys: &[
        key("name", ValueType::Header, "Name of the header.").required(),
        key("value", ValueType::Template, "Value of the header.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static OAUTH: SectionSpec = SectionSpec {
    title: "an oauth token",
    about: "An OAuth 2 access token. A `refresh` rule under `failures` fetches a new one, once for each call.",
    keys: &[
        key("grant", ValueType::OneOf(&Grant::NAMES), "The grant type.").required(),
        key("token_url", ValueType::Template, "Address of the token endpoint.").required(),
        key("form", ValueType::Described("a map of names to text"), "Fields of the token request."),
        key(
            "assertion",
            ValueType::Table("an assertion"),
            "For jwt_bearer: the assertion that is exchanged for a token, signed with RS256.",
        ),
        key("scheme", ValueType::Text, "Word before the token in `Authorization`.").or("Bearer"),
    ],
    later: &[],
    rules: &[at_least_one(
        &["form", "assertion"],
        "an oauth token needs `form`, or `assertion` for the grant jwt_bearer",
        "such as: form: {client_id: '{{ destination.client_id }}'}",
    )],
};

pub(super) static ASSERTION: SectionSpec = SectionSpec {
    title: "an assertion",
    about: "A JWT (RFC 7523), signed for each token request and valid for three minutes. Expressions read `destination`.",
    keys: &[
        key("issuer", ValueType::Template, "Claim iss.").required(),
        key("subject", ValueType::Template, "Claim sub."),
        key("audience", ValueType::Template, "Claim aud.").required(),
        key("scope", ValueType::Template, "Claim scope."),
        key("private_key", ValueType::Template, "RSA key in PEM format; a key of the destination.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static ERROR: SectionSpec = SectionSpec {
    title: "an error of a connector",
    about: "Where an error answer has its parts. Expressions read `response`: status, headers (names in lower case) and body.",
    keys: &[
        key("code", ValueType::Template, "The provider's code, for rules and operators."),
        key("message", ValueType::Template, "The provider's message, for rules and operators."),
    ],
    later: &[],
    rules: &[],
};

pub(super) static WAIT_FROM: SectionSpec = SectionSpec {
    title: "a wait of a connector",
    about: "A value of an answer that says how long to wait.",
    keys: &[
        key("value", ValueType::Condition, "Expression over `response`.").required(),
        key(
            "unit",
            ValueType::OneOf(&WaitUnit::NAMES),
            "seconds, milliseconds, epoch (seconds since 1970) or retry_after (seconds or an HTTP date).",
        )
        .required(),
    ],
    later: &[],
    rules: &[],
};

/// Who wrote a connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectorOrigin {
    /// Part of the program.
    Shipped,
    /// A document of the configuration.
    Configuration,
}

/// Reads and registers a connector; returns its name with the location.
pub(super) fn read<'n>(
    report: Report<'_>,
    node: &'n YamlNode,
    origin: ConnectorOrigin,
) -> Option<(&'n str, Span, Option<&'static RegisteredConnector>)> {
    let errors = report.errors();
    let fields = Fields::open(report, node, &[&CONNECTOR])?;
    let (name, span) = fields.name("connector")?;
    fields.one_of("version");
    if origin == ConnectorOrigin::Configuration && !name.starts_with(OWN_PREFIX) {
        report
            .error(span, "bad-name", format!("the connector `{name}` needs a name that starts with `{OWN_PREFIX}`"))
            .hint(format!("write `connector: {OWN_PREFIX}{name}`; other names are kept for connectors of Sluice"));
    }
    let keys = fields.node("destination").map(|node| read_keys(report, node)).unwrap_or_default();
    let known = KnownNames { keys: keys.iter().map(|key| key.name.as_str()).collect(), parameters: None };
    let base_url = fields.node("base_url").and_then(|node| text_template(report, node, "base_url", (AT_START, &known)));
    let headers = fields.node("headers").map(|node| read_texts(report, node, "headers", &known)).unwrap_or_default();
    for entry in fields.node("headers").and_then(YamlNode::entries).unwrap_or_default() {
        check_header(report, entry);
    }
    let auth = fields.node("auth").and_then(|node| read_auth(report, node, &known)).unwrap_or(ConnectorAuth::None);
    let error = fields.node("error").and_then(|node| read_error(report, node, &known)).unwrap_or_default();
    let wait_from = each(report, fields.node("wait_from"), "wait_from", |node| read_wait(report, node, &known));
    let failures = each(report, fields.node("failures"), "failures", |node| connector_failure::read(report, node));
    connector_failure::check_refresh(report, &fields, &failures, &auth);
    let actions = fields.node("actions").map(|node| connector_action::read_all(report, node, &known, origin));
    let has_base = fields.node("base_url").is_some();
    let connector = Connector {
        name: name.to_owned(),
        about: fields.text("about").unwrap_or_default().to_owned(),
        keys,
        base_url,
        headers,
        auth,
        error,
        wait_from,
        failures,
        actions: actions.unwrap_or_default(),
        source: node.to_value().to_string(),
    };
    if !has_base && !connector.keys.iter().any(|key| key.key_type == KeyType::Url || key.key_type == KeyType::Secret) {
        report
            .error(fields.span, "missing-key", "a connector needs `base_url`, or a key of the destination with the URL")
            .hint("such as: base_url: https://api.example.com");
    }
    if report.errors() > errors {
        return Some((name, span, None));
    }
    match register(connector) {
        Ok(registered) => Some((name, span, Some(registered))),
        Err(full) => {
            report.error(span, "too-many-connectors", full.to_string());
            Some((name, span, None))
        }
    }
}

/// Names that templates of a connector may read.
pub(super) struct KnownNames<'a> {
    pub(super) keys: Vec<&'a str>,
    /// `None` outside of actions, where a parameter cannot be checked.
    pub(super) parameters: Option<Vec<&'a str>>,
}

impl KnownNames<'_> {
    /// Checks every text of a value where it is.
    fn check_texts(&self, report: Report<'_>, node: &YamlNode) {
        match &node.kind {
            YamlKind::List(items) => items.iter().for_each(|item| self.check_texts(report, item)),
            YamlKind::Map(entries) => entries.iter().for_each(|entry| self.check_texts(report, &entry.value)),
            YamlKind::Scalar(scalar) => {
                if let Ok(template) = Template::parse_text(&scalar.text) {
                    template.visit_expressions(&mut |expression| self.check(report, node.span, expression));
                }
            }
        }
    }

    /// Reports a parameter or a key that does not exist.
    fn check(&self, report: Report<'_>, span: Span, expression: &Expression) {
        let roots = [("destination", Some(&self.keys)), ("with", self.parameters.as_ref())];
        for (root, known) in roots {
            let Some(known) = known else { continue };
            for member in expression.members(root) {
                if !known.contains(&member.as_str()) {
                    let what = if root == "with" { "parameter" } else { "key of the destination" };
                    report
                        .error(
                            span,
                            "unknown-name",
                            format!("`{}` reads the {what} `{member}`, which is not declared", expression.source()),
                        )
                        .meant(&member, known.iter().copied(), "declare it, or remove the expression");
                }
            }
        }
    }
}

/// Template of any shape; its names are checked.
pub(super) fn template(
    report: Report<'_>,
    node: &YamlNode,
    (visible, known): (Visible<'_>, &KnownNames<'_>),
) -> Option<Template> {
    let template = expression::template(report, node, visible)?;
    known.check_texts(report, node);
    Some(template)
}

/// Template that must be text.
pub(super) fn text_template(
    report: Report<'_>,
    node: &YamlNode,
    name: &str,
    context: (Visible<'_>, &KnownNames<'_>),
) -> Option<Template> {
    if node.text().is_none() {
        report.error(node.span, "wrong-type", format!("`{name}` must be text, found {}", node.describe()));
        return None;
    }
    template(report, node, context)
}

/// One expression over an answer.
pub(super) fn condition(report: Report<'_>, node: &YamlNode, known: &KnownNames<'_>) -> Option<Expression> {
    condition_over(report, node, (OF_ANSWER, known))
}

/// One expression over these variables.
pub(super) fn condition_over(
    report: Report<'_>,
    node: &YamlNode,
    (visible, known): (Visible<'_>, &KnownNames<'_>),
) -> Option<Expression> {
    let expression = expression::condition(report, node, visible)?;
    known.check(report, node.span, &expression);
    Some(expression)
}

fn each<T>(report: Report<'_>, node: Option<&YamlNode>, name: &str, read: impl Fn(&YamlNode) -> Option<T>) -> Vec<T> {
    let Some(node) = node else { return vec![] };
    let Some(items) = node.items() else {
        report.error(node.span, "wrong-type", format!("`{name}` must be a list, found {}", node.describe()));
        return vec![];
    };
    items.iter().filter_map(read).collect()
}

/// Entries of a map; reports another type.
pub(super) fn entries<'n>(report: Report<'_>, node: &'n YamlNode, name: &str) -> &'n [YamlEntry] {
    node.entries().unwrap_or_else(|| {
        report.error(node.span, "wrong-type", format!("`{name}` must be a map, found {}", node.describe()));
        &[]
    })
}

fn read_keys(report: Report<'_>, node: &YamlNode) -> Vec<DestinationKey> {
    let mut keys = vec![];
    for entry in entries(report, node, "destination") {
        if RESERVED_KEYS.contains(&entry.key.as_str()) {
            report.error(entry.key_span, "bad-name", format!("`{}` is a key of every destination", entry.key));
        }
        check_name(report, entry.key_span, &entry.key);
        let Some(fields) = Fields::open(report, &entry.value, &[&KEY]) else { continue };
        let values = fields.node("values").map(|node| texts(report, node, "values")).unwrap_or_default();
        let key_type = match fields.one_of("type") {
            Some("secret") => KeyType::Secret,
            Some("url") => KeyType::Url,
            Some("one_of") => KeyType::OneOf(values),
            _ => KeyType::Text,
        };
        if matches!(&key_type, KeyType::OneOf(values) if values.is_empty()) {
            report.error(entry.key_span, "missing-key", "a key of type `one_of` needs `values`");
        }
        let default = fields.text("default").map(str::to_owned);
        if key_type == KeyType::Secret && default.is_some() {
            report.error(fields.key_span("default"), "bad-value", "a secret has no default");
        }
        keys.push(DestinationKey {
            name: entry.key.clone(),
            key_type,
            required: fields.flag("required").unwrap_or(false),
            default,
            about: fields.text("about").unwrap_or_default().to_owned(),
        });
    }
    keys
}

/// One text, or a list of them.
pub(super) fn texts(report: Report<'_>, node: &YamlNode, name: &str) -> Vec<String> {
    let items = node.items().unwrap_or(std::slice::from_ref(node));
    let mut found = vec![];
    for item in items {
        match item.text() {
            Some(text) => found.push(text.to_owned()),
            None => {
                report.error(item.span, "wrong-type", format!("`{name}` must be text, found {}", item.describe()));
            }
        }
    }
    found
}

fn read_texts(report: Report<'_>, node: &YamlNode, name: &str, known: &KnownNames<'_>) -> Vec<(String, Template)> {
    let read = |entry: &YamlEntry| {
        let template = text_template(report, &entry.value, &entry.key, (AT_START, known))?;
        Some((entry.key.clone(), template))
    };
    entries(report, node, name).iter().filter_map(read).collect()
}

fn check_header(report: Report<'_>, entry: &YamlEntry) {
    if !is_header_name(&entry.key) {
        report.error(entry.key_span, "bad-name", format!("`{}` cannot be the name of a header", entry.key));
    }
}

fn read_auth(report: Report<'_>, node: &YamlNode, known: &KnownNames<'_>) -> Option<ConnectorAuth> {
    let fields = Fields::open(report, node, &[&AUTH])?;
    let context = (AT_START, known);
    if let Some(node) = fields.node("bearer") {
        return text_template(report, node, "bearer", context).map(ConnectorAuth::Bearer);
    }
    if let Some(node) = fields.node("basic") {
        let fields = Fields::open(report, node, &[&AUTH_BASIC])?;
        let user = fields.node("user").and_then(|node| text_template(report, node, "user", context));
        let password = fields.node("password").and_then(|node| text_template(report, node, "password", context));
        return Some(ConnectorAuth::Basic { user: user?, password: password? });
    }
    if let Some(node) = fields.node("header") {
        let fields = Fields::open(report, node, &[&AUTH_HEADER])?;
        let name = fields.text("name")?;
        if !is_header_name(name) {
            let message = format!("`{name}` cannot be the name of a header");
            report.error(fields.value_span("name"), "bad-name", message);
        }
        let value = fields.node("value").and_then(|node| text_template(report, node, "value", context))?;
        return Some(ConnectorAuth::Header { name: name.to_owned(), value });
    }
    let fields = Fields::open(report, fields.node("oauth")?, &[&OAUTH])?;
    let grant = fields.one_of("grant").and_then(Grant::parse);
    let token_url = fields.node("token_url").and_then(|node| text_template(report, node, "token_url", context));
    let form = fields.node("form").map(|node| read_texts(report, node, "form", known)).unwrap_or_default();
    let scheme = fields.text("scheme").unwrap_or("Bearer").to_owned();
    let assertion = fields.node("assertion").and_then(|node| read_assertion(report, node, known));
    if grant.is_some_and(|grant| (grant == Grant::JwtBearer) != fields.node("assertion").is_some()) {
        let message = "`assertion` and the grant `jwt_bearer` belong together";
        report.error(fields.value_span("grant"), "contradiction", message);
    }
    let oauth = OAuth { grant: grant?, token_url: token_url?, form, scheme, assertion };
    Some(ConnectorAuth::OAuth(Box::new(oauth)))
}

fn read_assertion(report: Report<'_>, node: &YamlNode, known: &KnownNames<'_>) -> Option<AssertionClaims> {
    let fields = Fields::open(report, node, &[&ASSERTION])?;
    let part = |name| fields.node(name).and_then(|node| text_template(report, node, name, (AT_START, known)));
    let (issuer, audience, private_key) = (part("issuer"), part("audience"), part("private_key"));
    let (subject, scope) = (part("subject"), part("scope"));
    Some(AssertionClaims { issuer: issuer?, subject, audience: audience?, scope, private_key: private_key? })
}

fn read_error(report: Report<'_>, node: &YamlNode, known: &KnownNames<'_>) -> Option<ErrorFields> {
    let fields = Fields::open(report, node, &[&ERROR])?;
    let visible = Visible { roots: &["response"], ..AT_START };
    let part = |name| fields.node(name).and_then(|node| text_template(report, node, name, (visible, known)));
    Some(ErrorFields { code: part("code"), message: part("message") })
}

fn read_wait(report: Report<'_>, node: &YamlNode, known: &KnownNames<'_>) -> Option<WaitSource> {
    let fields = Fields::open(report, node, &[&WAIT_FROM])?;
    let value = fields.node("value").and_then(|node| condition(report, node, known));
    let unit = fields.one_of("unit").and_then(WaitUnit::parse);
    Some(WaitSource { value: value?, unit: unit? })
}

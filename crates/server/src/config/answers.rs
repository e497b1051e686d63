//! `answers:` documents: recorded answers of a connector, with what each of them means.

use std::time::Duration;

use serde_json::{Map, Value};
use sluice_domain::action::Action;
use sluice_domain::connector::{Declared, DeclaredDestination, RegisteredConnector};
use sluice_domain::outcome::FailureClass;
use sluice_domain::verify::SecretValue;

use super::catalogue::{Catalogue, NoSecrets, SHIPPED, shipped};
use super::connector::entries;
use super::diagnostics::{Diagnostics, Report};
use super::document::{DocumentKind, classify};
use super::fields::Fields;
use super::node::YamlNode;
use super::parse;
use super::problem::ConfigProblem;
use super::read::{Files, is_document};
use super::rule::{at_least_one, at_most_one};
use super::table::{SectionSpec, ValueType, key};

/// What an answer may be expected to mean. The last three are of a read-back.
const OUTCOMES: [&str; 9] = ["done", "noop", "retry", "wait", "reject", "unsure", "present", "absent", "unreadable"];

pub(super) static ANSWERS: SectionSpec = SectionSpec {
    title: "recorded answers",
    about: "Tests of a connector; `sluice connectors test` runs them. Nothing is sent. Every failure rule needs an answer that it decides.",
    keys: &[
        key("answers", ValueType::Name, "Name of the connector.").required(),
        key("version", ValueType::OneOf(&["1"]), "Version of the form.").or("1"),
        key(
            "destination",
            ValueType::Described("a map of names to text"),
            "Values of the destination's keys. They are made up, so secrets are plain text here.",
        ),
        key("cases", ValueType::Tables("a recorded case"), "The cases.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) static CASE: SectionSpec = SectionSpec {
    title: "a recorded case",
    about: "A call, the request that it makes, and answers to it. The effect key is 0123456789abcdef0123456789abcdef.",
    keys: &[
        key("name", ValueType::Text, "What the case shows.").required(),
        key("action", ValueType::Name, "The action.").required(),
        key("with", ValueType::Described("a map of the action's parameters"), "Rendered parameters."),
        key(
            "batch",
            ValueType::Described("a list of maps of the action's parameters"),
            "Rendered parameters of several calls that share the request. Their effect keys end with ef, f0, f1 and so on.",
        ),
        key("request", ValueType::Table("an expected request"), "The request that the call makes."),
        key("answers", ValueType::Tables("a recorded answer"), "Answers to the request."),
        key("read_back", ValueType::Table("an expected request"), "The request that looks for the effect."),
        key("read_back_answers", ValueType::Tables("a recorded answer"), "Answers to the read-back."),
    ],
    later: &[],
    rules: &[
        at_least_one(&["with", "batch"], "a recorded case needs `with`, or `batch`", "add the parameters of the call"),
        at_most_one(&["with", "batch"], "a recorded case has `with` or `batch`, not both", "remove one of them"),
    ],
};

pub(super) static EXPECTED_REQUEST: SectionSpec = SectionSpec {
    title: "an expected request",
    about: "A request with its secrets masked as `***`. Other headers than those named are not compared.",
    keys: &[
        key("method", ValueType::OneOf(&["GET", "POST", "PUT", "PATCH", "DELETE"]), "The method.").or("POST"),
        key("url", ValueType::Text, "The whole URL.").required(),
        key("headers", ValueType::Described("a map of header names to text"), "Headers, names in lower case."),
        key("body", ValueType::Described("anything"), "The body: JSON, or the text of a form."),
    ],
    later: &[],
    rules: &[],
};

pub(super) static ANSWER: SectionSpec = SectionSpec {
    title: "a recorded answer",
    about: "An answer of the provider, and what it means.",
    keys: &[
        key("status", ValueType::Count(100, 599), "HTTP status.").required(),
        key("headers", ValueType::Described("a map of header names to text"), "Headers."),
        key("body", ValueType::Described("anything"), "The body: JSON, or text."),
        key(
            "outcome",
            ValueType::OneOf(&OUTCOMES),
            "The outcome, of every call of a batch; of a read-back present, absent or unreadable.",
        ),
        key(
            "each",
            ValueType::Tables("an outcome of a batch"),
            "For a batch: one outcome for each call, in their order.",
        ),
        key(
            "class",
            ValueType::OneOf(&["retryable", "conflict", "permanent", "auth", "mapping", "identity"]),
            "Failure class.",
        ),
        key("code", ValueType::Text, "Code of the failure."),
        key("after", ValueType::Duration, "The wait."),
        key("result", ValueType::Described("anything"), "Output of the step."),
    ],
    later: &[],
    rules: &[
        at_least_one(
            &["outcome", "each"],
            "a recorded answer needs `outcome`, or `each` for a batch",
            "such as: outcome: done",
        ),
        at_most_one(&["outcome", "each"], "a recorded answer has `outcome` or `each`, not both", "remove one of them"),
    ],
};

pub(super) static EACH: SectionSpec = SectionSpec {
    title: "an outcome of a batch",
    about: "What an answer means for one of the calls that share a request.",
    keys: &[
        key("outcome", ValueType::OneOf(&OUTCOMES), "The outcome.").required(),
        key(
            "class",
            ValueType::OneOf(&["retryable", "conflict", "permanent", "auth", "mapping", "identity"]),
            "Failure class.",
        ),
        key("code", ValueType::Text, "Code of the failure."),
        key("after", ValueType::Duration, "The wait."),
        key("result", ValueType::Described("anything"), "Output of the step."),
    ],
    later: &[],
    rules: &[],
};

/// Recorded answers of one connector.
#[derive(Debug)]
pub struct ConnectorTests {
    pub connector: &'static RegisteredConnector,
    pub destination: DeclaredDestination,
    pub cases: Vec<AnswerCase>,
}

#[derive(Debug)]
pub struct AnswerCase {
    pub name: String,
    pub action: Action,
    /// Of one call, or of several that share the request.
    pub with: Vec<Value>,
    pub is_batch: bool,
    pub request: Option<ExpectedRequest>,
    pub answers: Vec<ExpectedAnswer>,
    pub read_back: Option<ExpectedRequest>,
    pub read_back_answers: Vec<ExpectedAnswer>,
}

/// A request that is expected.
#[derive(Debug)]
pub struct ExpectedRequest {
    pub method: &'static str,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

/// An answer and what it is expected to mean.
#[derive(Clone, Debug)]
pub struct ExpectedAnswer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
    /// One; or one for each call of a batch.
    pub outcomes: Vec<ExpectedOutcome>,
    /// Line in its file.
    pub line: usize,
}

impl ExpectedAnswer {
    /// Whether it means this for every call.
    pub fn means(&self, outcome: &str) -> bool {
        !self.outcomes.is_empty() && self.outcomes.iter().all(|expected| expected.outcome == outcome)
    }
}

/// What an answer is expected to mean for a call.
#[derive(Clone, Debug)]
pub struct ExpectedOutcome {
    pub outcome: &'static str,
    pub class: Option<FailureClass>,
    pub code: Option<String>,
    pub after: Option<Duration>,
    pub result: Option<Value>,
}

/// Reads recorded answers; `None` if the connector is unknown or could not be read.
pub(super) fn read(report: Report<'_>, node: &YamlNode, connectors: &Catalogue) -> Option<ConnectorTests> {
    let fields = Fields::open(report, node, &[&ANSWERS])?;
    fields.one_of("version");
    let (name, span) = fields.name("answers")?;
    let connector = match connectors.connector(name) {
        Some(found) => found?,
        None => {
            report.error(span, "unknown-connector", format!("unknown connector `{name}`")).meant(
                name,
                connectors.types(),
                "declare it: a document with `connector:`",
            );
            return None;
        }
    };
    let mut values: Vec<(String, SecretValue)> = connector
        .definition
        .keys
        .iter()
        .filter_map(|key| Some((key.name.clone(), SecretValue::from(key.default.as_deref()?))))
        .collect();
    for (key, value) in fields.node("destination").map(|node| pairs(report, node, "destination")).unwrap_or_default() {
        let known = connector.definition.keys.iter().map(|key| key.name.as_str());
        if !known.clone().any(|name| name == key) {
            let message = format!("a {name} destination has no key `{key}`");
            report.error(fields.value_span("destination"), "unknown-key", message).meant(&key, known, "");
        }
        values.retain(|(name, _)| *name != key);
        values.push((key, value.into()));
    }
    let items = fields.node("cases").and_then(YamlNode::items).unwrap_or_default();
    let cases = items.iter().filter_map(|item| read_case(report, item, connector)).collect();
    let destination = DeclaredDestination { connector, base_url: None, values };
    Some(ConnectorTests { connector, destination, cases })
}

fn read_case(report: Report<'_>, node: &YamlNode, connector: &'static RegisteredConnector) -> Option<AnswerCase> {
    let fields = Fields::open(report, node, &[&CASE])?;
    let (name, span) = fields.name("action")?;
    let Some(action) = connector.actions().find(|action| action.spec().name == name) else {
        report.error(span, "unknown-action", format!("the connector has no action `{name}`")).meant(
            name,
            connector.actions().map(|action| action.spec().name),
            "",
        );
        return None;
    };
    let request = |key| fields.node(key).and_then(|node| read_request(report, node));
    let answers = |key| {
        let items = fields.node(key).and_then(YamlNode::items).unwrap_or_default();
        items.iter().filter_map(|item| read_answer(report, item)).collect::<Vec<_>>()
    };
    Some(AnswerCase {
        name: fields.text("name").unwrap_or_default().to_owned(),
        action: Action::Declared(action),
        with: match fields.node("batch") {
            Some(node) => read_batch(report, node, action),
            None => vec![fields.node("with").map_or_else(|| Value::Object(Map::new()), YamlNode::to_value)],
        },
        is_batch: fields.node("batch").is_some(),
        request: request("request"),
        answers: answers("answers"),
        read_back: request("read_back"),
        read_back_answers: answers("read_back_answers"),
    })
}

fn read_request(report: Report<'_>, node: &YamlNode) -> Option<ExpectedRequest> {
    let fields = Fields::open(report, node, &[&EXPECTED_REQUEST])?;
    Some(ExpectedRequest {
        method: fields.one_of("method").unwrap_or("POST"),
        url: fields.text("url")?.to_owned(),
        headers: fields.node("headers").map(|node| pairs(report, node, "headers")).unwrap_or_default(),
        body: fields.node("body").map(YamlNode::to_value).unwrap_or_default(),
    })
}

fn read_answer(report: Report<'_>, node: &YamlNode) -> Option<ExpectedAnswer> {
    let fields = Fields::open(report, node, &[&ANSWER])?;
    Some(ExpectedAnswer {
        status: u16::try_from(fields.count("status")?).ok()?,
        headers: fields.node("headers").map(|node| pairs(report, node, "headers")).unwrap_or_default(),
        body: fields.node("body").map(YamlNode::to_value).unwrap_or_default(),
        outcomes: match fields.node("each") {
            Some(node) => {
                let items = node.items().unwrap_or_default();
                let each = |item: &YamlNode| read_outcome(&Fields::open(report, item, &[&EACH])?);
                items.iter().filter_map(each).collect()
            }
            None => vec![read_outcome(&fields)?],
        },
        line: node.span.line,
    })
}

fn read_outcome(fields: &Fields<'_, '_>) -> Option<ExpectedOutcome> {
    Some(ExpectedOutcome {
        outcome: fields.one_of("outcome")?,
        class: fields.one_of("class").and_then(FailureClass::parse),
        code: fields.text("code").map(str::to_owned),
        after: fields.duration("after"),
        result: fields.node("result").map(YamlNode::to_value),
    })
}

fn read_batch(report: Report<'_>, node: &YamlNode, action: Declared) -> Vec<Value> {
    let Some(items) = node.items().filter(|items| items.len() > 1) else {
        report.error(node.span, "wrong-type", "`batch` must be a list of at least two maps of parameters");
        return vec![];
    };
    if action.definition().batch.is_none() {
        report.error(node.span, "no-batch", format!("the action `{}` has no `batch`", action.spec().name));
    }
    items.iter().map(YamlNode::to_value).collect()
}

fn pairs(report: Report<'_>, node: &YamlNode, name: &str) -> Vec<(String, String)> {
    let mut found = vec![];
    for entry in entries(report, node, name) {
        match entry.value.text() {
            Some(text) => found.push((entry.key.clone(), text.to_owned())),
            None => {
                let message = format!("`{}` must be text, found {}", entry.key, entry.value.describe());
                report.error(entry.value.span, "wrong-type", message);
            }
        }
    }
    found
}

/// Recorded answers of every shipped connector, and the problems in them.
pub fn shipped_tests() -> (Vec<ConnectorTests>, Vec<ConfigProblem>) {
    let files = SHIPPED.iter().map(|file| (format!("{}.answers.yml", file.name), file.answers));
    own_tests(&Files::from_texts(files))
}

/// Recorded answers in a configuration, of its own connectors and of shipped ones, and the problems in them.
pub fn own_tests(files: &Files) -> (Vec<ConnectorTests>, Vec<ConfigProblem>) {
    let secrets = NoSecrets;
    let diagnostics = Diagnostics::new(&secrets);
    let mut catalogue = Catalogue::default();
    let mut tests = vec![];
    {
        let mut documents = vec![];
        for (file, text) in files.iter().filter(|(file, _)| is_document(file)) {
            let report = diagnostics.report(file);
            let (nodes, flaws) = parse::parse(text);
            for flaw in flaws {
                report.error(flaw.span, flaw.code, flaw.message);
            }
            documents.extend(nodes.into_iter().map(|node| (report, node)));
        }
        let is = |node: &YamlNode, key: &str| node.get(key).is_some() && node.get("triggers").is_none();
        for (report, node) in documents.iter().filter(|(_, node)| is(node, "connector")) {
            catalogue.read(*report, node);
        }
        for (report, node) in documents.iter().filter(|(_, node)| is(node, "answers")) {
            if classify(*report, node) == DocumentKind::Answers {
                tests.extend(read(*report, node, &catalogue));
            }
        }
    }
    (tests, diagnostics.finish().0)
}

/// Connectors that a configuration declares.
pub fn own_connectors(files: &Files) -> Vec<&'static RegisteredConnector> {
    let secrets = NoSecrets;
    let diagnostics = Diagnostics::new(&secrets);
    let mut catalogue = Catalogue::default();
    for (file, text) in files.iter().filter(|(file, _)| is_document(file)) {
        for node in parse::parse(text).0.iter().filter(|node| node.get("connector").is_some()) {
            catalogue.read(diagnostics.report(file), node);
        }
    }
    catalogue.own().collect()
}

/// Connectors that a configuration can use: shipped ones, then its own.
pub fn available(files: Option<&Files>) -> Vec<&'static RegisteredConnector> {
    shipped().iter().copied().chain(files.map(own_connectors).unwrap_or_default()).collect()
}

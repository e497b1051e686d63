//! Derives the idempotency key of a request, and explains the result.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::{TENANT, fingerprint};
use crate::event::{EventMapping, into_scalar, read_time};
use crate::mask;
use crate::normalize;
use crate::path::{Path, Segment};
use crate::pseudonym::PseudonymKey;
use crate::template::{Expression, Scope, Template, TemplateProblem, is_present};
use crate::time::Time;
use crate::unit::format_duration;

#[derive(Clone, Debug)]
pub enum KeyPart {
    Tenant,
    Source,
    EventType,
    /// The source's own id of the event.
    EventId,
    Value(Expression),
}

impl KeyPart {
    /// As written in the configuration.
    pub fn describe(&self) -> &str {
        match self {
            KeyPart::Tenant => "tenant",
            KeyPart::Source => "source",
            KeyPart::EventType => "event_type",
            KeyPart::EventId => "event_id",
            KeyPart::Value(expression) => expression.source(),
        }
    }

    /// `None` if the part is missing, null or blank: it never counts as empty.
    fn value(&self, scope: &Scope, context: KeyContext<'_>) -> Result<Option<String>, TemplateProblem> {
        let text = match self {
            KeyPart::Tenant => Some(TENANT.to_owned()),
            KeyPart::Source => Some(context.source.to_owned()),
            KeyPart::EventType => context.mapping.event_type.render_identity(scope)?.and_then(into_scalar),
            KeyPart::EventId => match &context.mapping.source_event_id {
                Some(template) => template.render_identity(scope)?.and_then(into_scalar),
                None => None,
            },
            KeyPart::Value(expression) => expression.evaluate(scope)?.filter(is_present).and_then(into_scalar),
        };
        Ok(text.map(|text| self.without_personal_data(text, scope.pseudonyms())))
    }

    /// A key is shown in plain text, so personal data is replaced by a pseudonym. An unkeyed digest of personal data is
    /// personal data: it can be computed from a guess.
    fn without_personal_data(&self, text: String, pseudonyms: &PseudonymKey) -> String {
        match self {
            _ if normalize::is_email(&text) => pseudonyms.email(&text),
            KeyPart::Value(expression) if expression.is_digest() => pseudonyms.digested(&text),
            KeyPart::Value(expression) if reads_phone(expression) => pseudonyms.phone(&text),
            _ => text,
        }
    }

    /// Headers that the part reads, in lower case.
    fn headers(&self, mapping: &EventMapping) -> BTreeSet<String> {
        match self {
            KeyPart::Tenant | KeyPart::Source => BTreeSet::new(),
            KeyPart::EventType => mapping.event_type.headers(),
            KeyPart::EventId => mapping.source_event_id.as_ref().map(Template::headers).unwrap_or_default(),
            KeyPart::Value(expression) => expression.headers(),
        }
    }
}

fn reads_phone(expression: &Expression) -> bool {
    let name = expression.as_path().and_then(|(_, path)| {
        path.0.iter().rev().find_map(|segment| match segment {
            Segment::Key(name) => Some(name.as_str()),
            Segment::Index(_) => None,
        })
    });
    name.is_some_and(is_phone)
}

/// True if a field of this name holds a phone number.
pub(super) fn is_phone(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["phone", "mobile", "msisdn"].iter().any(|word| name.contains(word))
}

/// One way to derive the key of a request.
#[derive(Clone, Debug)]
pub enum KeyStrategy {
    /// The value of a header, by its lower-case name.
    Header(String),
    /// These parts, joined with `|`; applies when every one has a value.
    Parts(Vec<KeyPart>),
    /// The parts, plus the time bucket in which the sender says that the event happened.
    ///
    /// Two events with the same parts are duplicates if they share a bucket, or if the later to arrive lies within half a
    /// bucket of the edge to the other one's bucket. Events at most half a width apart are always duplicates; events
    /// one and a half widths apart never are.
    Bucket {
        parts: Vec<KeyPart>,
        /// The sender's time of the event. The time of arrival would differ between two deliveries.
        at: Expression,
        /// Length of a bucket.
        width: Duration,
    },
    /// A digest of the content without the fields that change between deliveries, after the parts.
    Fingerprint {
        /// Usually none.
        parts: Vec<KeyPart>,
        /// Paths into the body that are ignored.
        volatile: Vec<Path>,
    },
}

/// Inputs of a key besides the request.
#[derive(Clone, Copy, Debug)]
pub struct KeyContext<'a> {
    pub source: &'a str,
    /// Provides the event's id and type.
    pub mapping: &'a EventMapping,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartValue {
    /// As written in the configuration.
    pub part: String,
    /// Masked.
    pub value: String,
}

/// A key under construction: joins parts with `|` and escapes them.
#[derive(Default)]
pub(super) struct KeyBuilder {
    pub(super) text: String,
    adjacent: Vec<String>,
    values: Vec<String>,
}

impl KeyBuilder {
    pub(super) fn push(&mut self, text: String) {
        if !self.values.is_empty() {
            self.text.push('|');
        }
        self.text.reserve(text.len());
        // Escaped, so that ("a|b", "c") and ("a", "b|c") give different keys.
        for c in text.chars() {
            if matches!(c, '|' | '\\') {
                self.text.push('\\');
            }
            self.text.push(c);
        }
        self.values.push(text);
    }
}

impl KeyStrategy {
    /// The inputs of this strategy, for messages.
    pub fn describe(&self) -> String {
        let join = |parts: &[KeyPart]| parts.iter().map(KeyPart::describe).collect::<Vec<_>>().join(" + ");
        match self {
            KeyStrategy::Header(name) => format!("header:{name}"),
            KeyStrategy::Parts(parts) => join(parts),
            KeyStrategy::Bucket { parts, at, width } => {
                format!("{} + {} in buckets of {}", join(parts), at.source(), format_duration(*width))
            }
            KeyStrategy::Fingerprint { parts, .. } if parts.is_empty() => "fingerprint of the content".into(),
            KeyStrategy::Fingerprint { parts, .. } => format!("{} + fingerprint of the content", join(parts)),
        }
    }

    /// Names of the values in [`DerivedKey::values`], in the same order.
    fn parts(&self) -> Vec<String> {
        let named = |parts: &[KeyPart]| parts.iter().map(|part| part.describe().to_owned()).collect::<Vec<_>>();
        match self {
            KeyStrategy::Header(_) => vec![self.describe()],
            KeyStrategy::Parts(parts) => named(parts),
            KeyStrategy::Bucket { parts, at, .. } => {
                let mut names = named(parts);
                names.push(at.source().to_owned());
                names
            }
            KeyStrategy::Fingerprint { parts, volatile } => {
                let paths: Vec<String> = volatile.iter().map(Path::to_string).collect();
                let content = match paths.is_empty() {
                    true => "the whole body".to_owned(),
                    false => format!("the body without {}", paths.join(", ")),
                };
                let mut names = named(parts);
                names.push(content);
                names
            }
        }
    }

    /// Headers that the key is derived from, in lower case. The type of the event is no part of its identity.
    pub fn identifying_headers(&self, mapping: &EventMapping) -> BTreeSet<String> {
        self.headers_of(mapping, |part| !matches!(part, KeyPart::EventType))
    }

    /// All headers that the strategy reads, in lower case.
    pub fn headers(&self, mapping: &EventMapping) -> BTreeSet<String> {
        self.headers_of(mapping, |_| true)
    }

    fn headers_of(&self, mapping: &EventMapping, counts: impl Fn(&KeyPart) -> bool) -> BTreeSet<String> {
        let (parts, at) = match self {
            KeyStrategy::Header(name) => return BTreeSet::from([name.clone()]),
            KeyStrategy::Parts(parts) | KeyStrategy::Fingerprint { parts, .. } => (parts, None),
            KeyStrategy::Bucket { parts, at, .. } => (parts, Some(at)),
        };
        let of_parts = parts.iter().filter(|part| counts(part)).flat_map(|part| part.headers(mapping));
        of_parts.chain(at.into_iter().flat_map(Expression::headers)).collect()
    }

    /// The key, or the name of the part that has no value.
    fn apply(&self, scope: &Scope, context: KeyContext<'_>) -> Result<Result<KeyBuilder, String>, TemplateProblem> {
        let mut found = KeyBuilder::default();
        match self {
            KeyStrategy::Header(name) => {
                let value = scope.get("headers").and_then(|headers| headers.get(name)).and_then(Value::as_str);
                let value = value.map(|value| value.trim().trim_matches('"')).filter(|value| !value.is_empty());
                let Some(value) = value else { return Ok(Err(format!("header:{name}"))) };
                let is_email = normalize::is_email(value);
                let value = if is_email { scope.pseudonyms().email(value) } else { value.to_owned() };
                found.values.push(value.clone());
                found.text = value;
            }
            KeyStrategy::Parts(parts) => {
                if let Err(missing) = add_parts(&mut found, parts, scope, context)? {
                    return Ok(Err(missing));
                }
            }
            KeyStrategy::Bucket { parts, at, width } => {
                if let Err(missing) = add_parts(&mut found, parts, scope, context)? {
                    return Ok(Err(missing));
                }
                let Some(time) = at.evaluate(scope)?.as_ref().and_then(read_time) else {
                    return Ok(Err(at.source().to_owned()));
                };
                let (own, adjacent) = bucket_starts(time, *width);
                found.adjacent = vec![format!("{}|{}", found.text, bucket_label(adjacent, *width))];
                found.push(bucket_label(own, *width));
            }
            KeyStrategy::Fingerprint { parts, volatile } => {
                if let Err(missing) = add_parts(&mut found, parts, scope, context)? {
                    return Ok(Err(missing));
                }
                let Some(body) = scope.get("body").filter(|body| !body.is_null()) else {
                    return Ok(Err("the body".to_owned()));
                };
                found.push(fingerprint(body, volatile));
            }
        }
        Ok(if found.text.is_empty() { Err(self.describe()) } else { Ok(found) })
    }
}

fn add_parts(
    found: &mut KeyBuilder,
    parts: &[KeyPart],
    scope: &Scope,
    context: KeyContext<'_>,
) -> Result<Result<(), String>, TemplateProblem> {
    for part in parts {
        match part.value(scope, context)? {
            Some(text) => found.push(text),
            None => return Ok(Err(part.describe().to_owned())),
        }
    }
    Ok(Ok(()))
}

/// A bucket as part of a key: its start and its length.
pub(super) fn bucket_label(start: Time, width: Duration) -> String {
    format!("{:.0}/{}", start.to_jiff(), format_duration(width))
}

/// The start of the bucket that holds a time, and of the nearer of the two adjacent buckets.
pub(super) fn bucket_starts(time: Time, width: Duration) -> (Time, Time) {
    let width = i64::try_from(width.as_millis()).unwrap_or(i64::MAX).max(1);
    let own = time.0.div_euclid(width) * width;
    let adjacent = if time.0 - own < width / 2 { own - width } else { own.saturating_add(width) };
    (Time(own), Time(adjacent))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedKey {
    /// Readable form. Personal data appears as a pseudonym only.
    pub text: String,
    /// Index of the strategy that applied; the number of strategies if none did.
    pub rank: usize,
    /// Keys under which a duplicate may be stored: those of the adjacent time bucket.
    pub adjacent: Vec<String>,
    /// True if the key is derived from the content alone, not from an identifier set by the sender.
    pub by_content: bool,
    /// Values of the parts, for [`DerivedKey::explain`].
    values: Vec<String>,
    /// For each skipped strategy the part that had no value.
    missing: Vec<String>,
}

/// How a key was derived, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The strategy that applied.
    pub strategy: String,
    pub parts: Vec<PartValue>,
    /// The strategies before it, each with the part that had no value.
    pub skipped: Vec<String>,
}

impl DerivedKey {
    /// A key of the content alone, used if no strategy applied.
    pub fn of_content(text: String, strategies: &[KeyStrategy]) -> DerivedKey {
        let (rank, adjacent, by_content) = (strategies.len(), vec![], true);
        DerivedKey { text, rank, adjacent, by_content, values: vec![], missing: vec![] }
    }

    pub fn explain(&self, strategies: &[KeyStrategy]) -> Explanation {
        let skipped = strategies.iter().zip(&self.missing);
        let applied = strategies.get(self.rank);
        let parts = applied.map(KeyStrategy::parts).unwrap_or_default().into_iter().zip(&self.values);
        Explanation {
            strategy: applied.unwrap_or(&KeyStrategy::Fingerprint { parts: vec![], volatile: vec![] }).describe(),
            parts: parts.map(|(part, value)| PartValue { part, value: mask::text(value).into_owned() }).collect(),
            skipped: skipped
                .map(|(strategy, missing)| format!("{}: {missing} has no value", strategy.describe()))
                .collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// No strategy applies.
    #[error("no idempotency key: {0} has no value in this request")]
    Missing(String),
    #[error("the idempotency key has {0} bytes; the maximum is {KEY_BYTES_MAX}")]
    TooLong(usize),
    #[error(transparent)]
    Expression(#[from] TemplateProblem),
}

/// Maximum length of a key. A longer one is a mistake of the sender.
pub const KEY_BYTES_MAX: usize = 1024;

/// Derives the key of a request with the first strategy that applies.
pub fn derive(strategies: &[KeyStrategy], scope: &Scope, context: KeyContext<'_>) -> Result<DerivedKey, KeyProblem> {
    let mut missing = Vec::new();
    for (rank, strategy) in strategies.iter().enumerate() {
        match strategy.apply(scope, context)? {
            Ok(KeyBuilder { text, adjacent, values }) => {
                if text.len() > KEY_BYTES_MAX {
                    return Err(KeyProblem::TooLong(text.len()));
                }
                let by_content = matches!(strategy, KeyStrategy::Fingerprint { .. });
                return Ok(DerivedKey { text, rank, adjacent, by_content, values, missing });
            }
            Err(part) => missing.push(part),
        }
    }
    Err(KeyProblem::Missing(strategies.iter().map(KeyStrategy::describe).collect::<Vec<_>>().join(", then ")))
}

#[cfg(test)]
#[path = "strategy_tests.rs"]
mod tests;

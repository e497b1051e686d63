//! How a request's key is found, and how to explain it.

use std::time::Duration;

use serde_json::Value;

use super::{TENANT, fingerprint};
use crate::event::{EventMapping, into_scalar, read_time};
use crate::mask;
use crate::normalize;
use crate::path::{Path, Segment};
use crate::template::{Expression, Scope, Template, TemplateProblem};
use crate::time::Time;
use crate::unit::format_duration;

/// One part of a key.
#[derive(Clone, Debug)]
pub enum KeyPart {
    /// The tenant.
    Tenant,
    /// The name of the source.
    Source,
    /// What happened. A request that does not say it still has a key.
    EventType,
    /// The source's own id of the event.
    EventId,
    /// The value of an expression.
    Value(Expression),
}

impl KeyPart {
    /// As it is written.
    pub fn describe(&self) -> &str {
        match self {
            KeyPart::Tenant => "tenant",
            KeyPart::Source => "source",
            KeyPart::EventType => "event_type",
            KeyPart::EventId => "event_id",
            KeyPart::Value(expression) => expression.source(),
        }
    }

    fn value(&self, scope: &Scope, context: KeyContext<'_>) -> Result<Option<String>, TemplateProblem> {
        let of = |template: Option<&Template>| match template {
            Some(template) => Ok(template.render_plain(scope)?.and_then(into_scalar)),
            None => Ok(None),
        };
        let text = match self {
            KeyPart::Tenant => Some(TENANT.to_owned()),
            KeyPart::Source => Some(context.source.to_owned()),
            KeyPart::EventType => Some(of(Some(&context.mapping.event_type))?.unwrap_or_default()),
            KeyPart::EventId => of(context.mapping.source_event_id.as_ref())?,
            KeyPart::Value(expression) => expression.evaluate(scope)?.and_then(into_scalar),
        };
        Ok(text.map(|text| self.without_person(text)))
    }

    /// A key is stored and shown as it stands, so a person stands in it as a digest only.
    fn without_person(&self, text: String) -> String {
        if normalize::is_email(&text) {
            return normalize::email_hash(&text);
        }
        match self {
            KeyPart::Value(expression) if !expression.is_digest() && reads_phone(expression) => {
                normalize::phone_hash(&text, None)
            }
            _ => text,
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

/// Whether a field of this name holds a phone number.
pub(super) fn is_phone(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["phone", "mobile", "msisdn"].iter().any(|word| name.contains(word))
}

/// One way to find the key of a request.
#[derive(Clone, Debug)]
pub enum KeyStrategy {
    /// The value of a header, by its lower-case name.
    Header(String),
    /// These parts, joined with `|`; applies when every one has a value.
    Parts(Vec<KeyPart>),
    /// The same, and the stretch of time in which the sender says that it happened.
    ///
    /// Two events about the same thing are one if they lie in one stretch, or if the later to arrive lies within half a
    /// stretch of the edge to the stretch of the other. So two that are at most half a stretch apart are always one, and
    /// two that are one and a half apart are always two.
    Bucket {
        /// Who or what it is about.
        parts: Vec<KeyPart>,
        /// The sender's own moment of the event. Ours would differ between two deliveries.
        at: Expression,
        /// How long a stretch is.
        width: Duration,
    },
    /// A digest of the content, whatever the order of its members, without the fields that change on a resend.
    Fingerprint {
        /// Paths into the body that do not count.
        volatile: Vec<Path>,
    },
}

/// What a key is made from beside the request.
#[derive(Clone, Copy, Debug)]
pub struct KeyContext<'a> {
    /// Who sends.
    pub source: &'a str,
    /// How the payload becomes an event: it knows the event's id and type.
    pub mapping: &'a EventMapping,
}

/// A part of a key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartValue {
    /// As it is written in the configuration.
    pub part: String,
    /// Masked, for a person.
    pub value: String,
}

#[derive(Default)]
pub(super) struct Found {
    pub(super) text: String,
    adjacent: Vec<String>,
    values: Vec<String>,
}

impl Found {
    pub(super) fn push(&mut self, text: String) {
        if !self.values.is_empty() {
            self.text.push('|');
        }
        self.text.reserve(text.len());
        // Escaped, so that ("a|b", "c") and ("a", "b|c") stay two keys.
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
    /// For a person: what this strategy looks at.
    pub fn describe(&self) -> String {
        let join = |parts: &[KeyPart]| parts.iter().map(KeyPart::describe).collect::<Vec<_>>().join(" + ");
        match self {
            KeyStrategy::Header(name) => format!("header:{name}"),
            KeyStrategy::Parts(parts) => join(parts),
            KeyStrategy::Bucket { parts, at, width } => {
                format!("{} + {} in buckets of {}", join(parts), at.source(), format_duration(*width))
            }
            KeyStrategy::Fingerprint { .. } => "fingerprint of the content".into(),
        }
    }

    /// The names of what its keys are made of.
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
            KeyStrategy::Fingerprint { volatile } if volatile.is_empty() => vec!["the whole body".to_owned()],
            KeyStrategy::Fingerprint { volatile } => {
                let paths: Vec<String> = volatile.iter().map(Path::to_string).collect();
                vec![format!("the body without {}", paths.join(", "))]
            }
        }
    }

    /// What it found, or the part that has no value.
    fn apply(&self, scope: &Scope, context: KeyContext<'_>) -> Result<Result<Found, String>, TemplateProblem> {
        let mut found = Found::default();
        match self {
            KeyStrategy::Header(name) => {
                let value = scope.get("headers").and_then(|headers| headers.get(name)).and_then(Value::as_str);
                let value = value.map(|value| value.trim().trim_matches('"')).filter(|value| !value.is_empty());
                let Some(value) = value else { return Ok(Err(format!("header:{name}"))) };
                let value = if normalize::is_email(value) { normalize::email_hash(value) } else { value.to_owned() };
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
                let Some(moment) = at.evaluate(scope)?.as_ref().and_then(read_time) else {
                    return Ok(Err(at.source().to_owned()));
                };
                let (own, neighbour) = bucket_starts(moment, *width);
                found.adjacent = vec![format!("{}|{}", found.text, bucket_label(neighbour, *width))];
                found.push(bucket_label(own, *width));
            }
            KeyStrategy::Fingerprint { volatile } => {
                let Some(body) = scope.get("body").filter(|body| !body.is_null()) else {
                    return Ok(Err("the body".to_owned()));
                };
                found.text = fingerprint(body, volatile);
                found.values.push(found.text.clone());
            }
        }
        Ok(if found.text.is_empty() { Err(self.describe()) } else { Ok(found) })
    }
}

fn add_parts(
    found: &mut Found,
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

/// As it stands in a key: where it starts, and how long it is.
pub(super) fn bucket_label(start: Time, width: Duration) -> String {
    format!("{:.0}/{}", start.to_jiff(), format_duration(width))
}

/// The start of the stretch that a moment lies in, and of the neighbour that it is nearer to.
pub(super) fn bucket_starts(moment: Time, width: Duration) -> (Time, Time) {
    let width = i64::try_from(width.as_millis()).unwrap_or(i64::MAX).max(1);
    let own = moment.0.div_euclid(width) * width;
    let neighbour = if moment.0 - own < width / 2 { own - width } else { own.saturating_add(width) };
    (Time(own), Time(neighbour))
}

/// The key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedKey {
    /// As a person can read it. Holds no personal data but as a digest.
    pub text: String,
    /// The place in the list of the strategy that applied, from 0; behind the last if none did.
    pub rank: usize,
    /// Keys under which the same event may already be known: the neighbouring stretch of time.
    pub adjacent: Vec<String>,
    /// Whether the key is the content itself, so that it says nothing that the sender meant as an identifier.
    pub by_content: bool,
    /// What it is made of.
    values: Vec<String>,
    /// What each strategy before it had no value for.
    missing: Vec<String>,
}

/// How a key was found, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The strategy that applied.
    pub strategy: String,
    /// What the key is made of.
    pub parts: Vec<PartValue>,
    /// The strategies before it, and what each had no value for.
    pub skipped: Vec<String>,
}

impl DerivedKey {
    /// A key by the content alone, where none of the strategies applied.
    pub fn of_content(text: String, strategies: &[KeyStrategy]) -> DerivedKey {
        let (rank, adjacent, by_content) = (strategies.len(), vec![], true);
        DerivedKey { text, rank, adjacent, by_content, values: vec![], missing: vec![] }
    }

    /// How these strategies came to it.
    pub fn explain(&self, strategies: &[KeyStrategy]) -> Explanation {
        let skipped = strategies.iter().zip(&self.missing);
        let applied = strategies.get(self.rank);
        let parts = applied.map(KeyStrategy::parts).unwrap_or_default().into_iter().zip(&self.values);
        Explanation {
            strategy: applied.unwrap_or(&KeyStrategy::Fingerprint { volatile: vec![] }).describe(),
            parts: parts.map(|(part, value)| PartValue { part, value: mask::text(value).into_owned() }).collect(),
            skipped: skipped
                .map(|(strategy, missing)| format!("{}: {missing} has no value", strategy.describe()))
                .collect(),
        }
    }
}

/// Why a request has no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// No strategy applies.
    #[error("no idempotency key: {0} has no value in this request")]
    Missing(String),
    /// A key over this length is a mistake of the sender.
    #[error("the idempotency key has {0} bytes; {KEY_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// An expression failed.
    #[error(transparent)]
    Expression(#[from] TemplateProblem),
}

/// The longest key that is taken.
pub const KEY_BYTES_MAX: usize = 1024;

/// The key of a request: the first strategy that applies gives it.
pub fn derive(strategies: &[KeyStrategy], scope: &Scope, context: KeyContext<'_>) -> Result<DerivedKey, KeyProblem> {
    let mut missing = Vec::new();
    for (rank, strategy) in strategies.iter().enumerate() {
        match strategy.apply(scope, context)? {
            Ok(Found { text, adjacent, values }) => {
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

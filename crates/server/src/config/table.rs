//! Specification of the configuration language, shared by the reader, the reference pages and the JSON schema.

use std::time::Duration;

use sluice_domain::unit;

use super::rule::KeyRule;

/// Keys of one kind of map.
#[derive(Debug)]
pub(super) struct SectionSpec {
    /// Name in messages, with an article: `a retry policy`.
    pub title: &'static str,
    /// Description in the reference.
    pub about: &'static str,
    pub keys: &'static [KeySpec],
    /// Planned keys, rejected as not supported yet.
    pub later: &'static [&'static str],
    pub rules: &'static [KeyRule],
}

#[derive(Debug)]
pub(super) struct KeySpec {
    pub name: &'static str,
    pub shape: ValueType,
    pub default: Absent,
    /// Description in the reference.
    pub about: &'static str,
}

/// Effect of an absent key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    Required,
    Nothing,
    Default(&'static str),
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Text,
    /// Letters, digits, `-`, `_` and `.`.
    Name,
    /// Integer in this inclusive range.
    Count(u32, u32),
    /// Number in this inclusive range.
    Number(u32, u32),
    /// `true` or `false`.
    Flag,
    /// `90s`, `48h`, `7d`.
    Duration,
    /// Duration in this inclusive range.
    Between(Duration, Duration),
    /// `256KiB`, from one byte to this many.
    Size(u64),
    /// `5/min`.
    Rate,
    OneOf(&'static [&'static str]),
    /// `${secrets.NAME}`.
    Secret,
    /// Text read at startup; `${secrets.NAME}` is replaced.
    Plain,
    /// `https://host/path`, read at startup.
    Url,
    Header,
    /// `21:00`.
    Clock,
    /// `Europe/Berlin`.
    Zone,
    /// `20%`.
    Share,
    /// Text with `{{ … }}`.
    Template,
    Expression(&'static str),
    /// Expression whose value is taken as true or false.
    Condition,
    /// Map with the keys of the section of this title.
    Table(&'static str),
    Tables(&'static str),
    /// Type described in words.
    Described(&'static str),
}

impl ValueType {
    /// Description, as in "must be …".
    pub(super) fn describe(&self) -> String {
        match self {
            ValueType::Text => "text".into(),
            ValueType::Name => "a name (letters, digits, `-`, `_` and `.`)".into(),
            ValueType::Count(min, max) => format!("a whole number from {min} to {max}"),
            ValueType::Number(min, max) => format!("a number from {min} to {max}"),
            ValueType::Flag => "true or false".into(),
            ValueType::Duration => "a duration such as 250ms, 90s, 15m, 48h or 7d".into(),
            ValueType::Between(least, most) => match (*least, *most) {
                (SOME_TIME, unit::DURATION_MAX) => "a duration above zero such as 90s, 15m or 7d".into(),
                (least, most) => {
                    format!("a duration from {} to {}", unit::format_duration(least), unit::format_duration(most))
                }
            },
            ValueType::Size(max) => format!("a size such as 64KiB, from 1B to {}", unit::format_size(*max)),
            ValueType::Rate => "a rate such as 5/min or 100/s".into(),
            ValueType::OneOf(words) => match words {
                [one] => format!("`{one}`"),
                _ => format!("one of {}", words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")),
            },
            ValueType::Secret => "a secret, written ${secrets.NAME}".into(),
            ValueType::Plain => "text, in which ${secrets.NAME} is replaced".into(),
            ValueType::Url => "a URL such as https://host/path".into(),
            ValueType::Header => "the name of a header".into(),
            ValueType::Clock => "a time of day such as 21:00".into(),
            ValueType::Zone => "a time zone such as Europe/Berlin".into(),
            ValueType::Share => "a share below 100% such as 20%".into(),
            ValueType::Expression(example) => format!("an expression such as {example}"),
            ValueType::Template => "text, optionally with {{ … }}".into(),
            ValueType::Condition => "an expression such as {{ event.score > 5 }}".into(),
            ValueType::Table(title) => (*title).into(),
            ValueType::Tables(title) => format!("a list, each item {title}"),
            ValueType::Described(words) => (*words).into(),
        }
    }
}

impl SectionSpec {
    pub(super) fn key(&self, name: &str) -> Option<&'static KeySpec> {
        self.keys.iter().find(|key| key.name == name)
    }
}

/// Shortest non-zero duration.
pub(super) const SOME_TIME: Duration = Duration::from_millis(1);

/// Non-zero duration.
pub(super) const LASTING: ValueType = ValueType::Between(SOME_TIME, unit::DURATION_MAX);

/// Optional key.
pub(super) const fn key(name: &'static str, shape: ValueType, about: &'static str) -> KeySpec {
    KeySpec { name, shape, default: Absent::Nothing, about }
}

impl KeySpec {
    /// Sets the default, as shown in the reference.
    pub(super) const fn or(self, default: &'static str) -> KeySpec {
        KeySpec { default: Absent::Default(default), ..self }
    }

    pub(super) const fn required(self) -> KeySpec {
        KeySpec { default: Absent::Required, ..self }
    }
}

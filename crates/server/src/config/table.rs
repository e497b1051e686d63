//! The words of the language, as data: what the reader accepts and what the reference page says
//! come from the same rows.

use std::time::Duration;

use sluice_domain::unit;

use super::rule::KeyRule;

/// A kind of map: the keys that may stand in it.
#[derive(Debug)]
pub struct SectionSpec {
    /// What such a map is called in a message: `a retry policy`.
    pub title: &'static str,
    /// One or two sentences for the reference.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [KeySpec],
    /// Keys that a later release will read. They are refused by name, not ignored.
    pub later: &'static [&'static str],
    /// How its keys go together.
    pub rules: &'static [KeyRule],
}

/// One key.
#[derive(Debug)]
pub struct KeySpec {
    /// As it is written.
    pub name: &'static str,
    /// What its value may be.
    pub shape: ValueType,
    /// What holds when it is left out.
    pub default: Absent,
    /// One sentence for the reference.
    pub about: &'static str,
}

/// What holds when a key is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// It must not be.
    Required,
    /// Nothing takes its place.
    Nothing,
    /// This does.
    Default(&'static str),
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Any text.
    Text,
    /// A name: letters, digits, `-`, `_` and `.`.
    Name,
    /// A whole number in this range.
    Count(u32, u32),
    /// A number in this range.
    Number(u32, u32),
    /// `true` or `false`.
    Flag,
    /// `90s`, `48h`, `7d`.
    Duration,
    /// A duration of at least the one and at most the other.
    Between(Duration, Duration),
    /// `256KiB`, of at least one byte and at most so many.
    Size(u64),
    /// `5/min`.
    Rate,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// `${secrets.NAME}`.
    Secret,
    /// Text that is read before any event: `${secrets.NAME}` is filled in.
    Plain,
    /// `https://host/path`, read before any event.
    Url,
    /// The name of a header.
    Header,
    /// `21:00`.
    Clock,
    /// `Europe/Berlin`.
    Zone,
    /// `20%`.
    Share,
    /// Text in which `{{ … }}` stands for values.
    Template,
    /// One expression.
    Expression(&'static str),
    /// An expression that holds or does not.
    Condition,
    /// A map with the keys of the table of this title.
    Table(&'static str),
    /// A list of such maps.
    Tables(&'static str),
    /// A map of names to values, or whatever these words say.
    Described(&'static str),
}

impl ValueType {
    /// In words, as in "must be …".
    pub fn describe(&self) -> String {
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
            ValueType::Plain => "text, in which ${secrets.NAME} is filled in".into(),
            ValueType::Url => "a URL such as https://host/path".into(),
            ValueType::Header => "the name of a header".into(),
            ValueType::Clock => "a time of day such as 21:00".into(),
            ValueType::Zone => "a time zone such as Europe/Berlin".into(),
            ValueType::Share => "a share below 100% such as 20%".into(),
            ValueType::Expression(example) => format!("an expression such as {example}"),
            ValueType::Template => "text, in which {{ … }} stands for values".into(),
            ValueType::Condition => "an expression such as {{ event.score > 5 }}".into(),
            ValueType::Table(title) => (*title).into(),
            ValueType::Tables(title) => format!("a list, each item {title}"),
            ValueType::Described(words) => (*words).into(),
        }
    }
}

impl SectionSpec {
    /// The row of this key.
    pub fn key(&self, name: &str) -> Option<&'static KeySpec> {
        self.keys.iter().find(|key| key.name == name)
    }
}

/// The shortest time that is one.
pub(super) const SOME_TIME: Duration = Duration::from_millis(1);

/// A duration that is more than nothing.
pub(super) const LASTING: ValueType = ValueType::Between(SOME_TIME, unit::DURATION_MAX);

/// A row for a key that may be left out.
pub(super) const fn key(name: &'static str, shape: ValueType, about: &'static str) -> KeySpec {
    KeySpec { name, shape, default: Absent::Nothing, about }
}

impl KeySpec {
    /// The same, and this holds when it is left out.
    pub(super) const fn or(self, default: &'static str) -> KeySpec {
        KeySpec { default: Absent::Default(default), ..self }
    }

    /// The same, and it must be there.
    pub(super) const fn required(self) -> KeySpec {
        KeySpec { default: Absent::Required, ..self }
    }
}

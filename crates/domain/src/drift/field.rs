//! What is known of one field.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Values of a field that are counted; with more it has no typical values.
const VALUES_MAX: usize = 8;
/// Longest typical value, in bytes.
const VALUE_BYTES_MAX: usize = 24;
/// A value is typical once it has come this often, in a field that was present [`TYPICAL_PRESENT_MIN`] times.
const TYPICAL_COUNT_MIN: u32 = 5;
const TYPICAL_PRESENT_MIN: u32 = 50;
/// Counts are halved here, so that they follow the sender.
const COUNT_MAX: u32 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    Text,
    Number,
    Flag,
    List,
    Object,
}

impl FieldType {
    const ALL: [FieldType; 5] =
        [FieldType::Text, FieldType::Number, FieldType::Flag, FieldType::List, FieldType::Object];

    /// `None` for null, which is the absence of a value.
    pub fn of(value: &Value) -> Option<FieldType> {
        match value {
            Value::Null => None,
            Value::String(_) => Some(FieldType::Text),
            Value::Number(_) => Some(FieldType::Number),
            Value::Bool(_) => Some(FieldType::Flag),
            Value::Array(_) => Some(FieldType::List),
            Value::Object(_) => Some(FieldType::Object),
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            FieldType::Text => "text",
            FieldType::Number => "number",
            FieldType::Flag => "flag",
            FieldType::List => "list",
            FieldType::Object => "object",
        }
    }
}

/// A set of types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FieldTypes(u8);

impl FieldTypes {
    pub fn insert(&mut self, other: FieldType) {
        self.0 |= 1 << other as u8;
    }

    pub fn union(self, other: FieldTypes) -> FieldTypes {
        FieldTypes(self.0 | other.0)
    }

    /// Those that the other set does not have.
    pub fn without(self, other: FieldTypes) -> FieldTypes {
        FieldTypes(self.0 & !other.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for FieldTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = FieldType::ALL.into_iter().filter(|kind| self.0 & (1 << *kind as u8) != 0);
        let names: Vec<&str> = names.map(FieldType::as_str).collect();
        f.write_str(&names.join(" or "))
    }
}

/// What is known of one field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FieldShape {
    pub types: FieldTypes,
    /// Types that a notice is open for.
    #[serde(default, skip_serializing_if = "FieldTypes::is_empty")]
    pub(super) noticed: FieldTypes,
    /// Samples that had it, of `samples`; both are halved from time to time.
    pub(super) present: u32,
    pub(super) samples: u32,
    /// Samples without it since it was last present.
    #[serde(default)]
    pub(super) absent_run: u32,
    /// Appeared after the shape was learned, and not accepted yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_new: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_vanished: bool,
    #[serde(default)]
    values: ValueCounts,
}

impl FieldShape {
    /// Share of the samples that had it up to the last one that did, 0 to 1.
    pub fn rate(&self) -> f64 {
        f64::from(self.present) / f64::from(self.samples.saturating_sub(self.absent_run).max(self.present).max(1))
    }

    /// Values that come often, if there are only a few: the most frequent first.
    pub fn typical_values(&self) -> Vec<&str> {
        let mut known: Vec<(&u32, &str)> =
            self.values.counts.values().filter_map(|(count, text)| Some((count, text.as_deref()?))).collect();
        known.sort_by_key(|(count, text)| (std::cmp::Reverse(**count), *text));
        known.into_iter().map(|(_, text)| text).collect()
    }

    pub(super) fn see(&mut self, value: Option<&Value>, is_personal: bool) {
        (self.present, self.samples, self.absent_run) = (self.present + 1, self.samples + 1, 0);
        self.halve();
        self.values.add(value, self.present, is_personal);
    }

    pub(super) fn miss(&mut self) {
        (self.samples, self.absent_run) = (self.samples + 1, self.absent_run.saturating_add(1));
        self.halve();
    }

    fn halve(&mut self) {
        if self.samples >= COUNT_MAX {
            (self.present, self.samples) = (self.present.div_ceil(2), self.samples / 2);
        }
    }
}

/// Counts of values by digest. The text of a value is kept once it is typical.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct ValueCounts {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    counts: BTreeMap<u64, (u32, Option<String>)>,
    /// Too many values, or values that may be those of a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_open: bool,
}

impl ValueCounts {
    fn add(&mut self, value: Option<&Value>, present: u32, is_personal: bool) {
        let text = match value {
            Some(Value::String(text)) if is_plain(text) && !is_personal => text,
            Some(Value::String(_)) => return self.give_up(),
            _ => return,
        };
        if self.is_open {
            return;
        }
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let digest = hasher.finish();
        if self.counts.len() >= VALUES_MAX && !self.counts.contains_key(&digest) {
            return self.give_up();
        }
        let (count, kept) = self.counts.entry(digest).or_default();
        *count = count.saturating_add(1);
        if *count >= TYPICAL_COUNT_MIN && present >= TYPICAL_PRESENT_MIN && kept.is_none() {
            *kept = Some(text.clone());
        }
    }

    fn give_up(&mut self) {
        self.counts.clear();
        self.is_open = true;
    }
}

/// Whether a text can be one of a few fixed words: short, without an address or a long number.
fn is_plain(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    text.len() <= VALUE_BYTES_MAX
        && digits <= 4
        && !text.contains(['@', '+', '/'])
        && !text.chars().any(char::is_control)
}

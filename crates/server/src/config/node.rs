//! YAML tree with source locations.

use serde_json::Value;

/// Range in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span {
    pub start: usize,
    /// Exclusive, in bytes.
    pub end: usize,
    /// Line of the first character, from 1.
    pub line: usize,
    /// Column of the first character, in characters, from 1.
    pub column: usize,
}

#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    pub span: Span,
    pub kind: YamlKind,
}

#[derive(Clone, Debug)]
pub(super) enum YamlKind {
    /// Text; an unquoted scalar may be a number, a flag or null.
    Scalar(Scalar),
    List(Vec<YamlNode>),
    /// Entries in source order.
    Map(Vec<YamlEntry>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scalar {
    /// Without quotes.
    pub text: String,
    /// Quoted or block scalar, which is always text.
    pub quoted: bool,
}

#[derive(Clone, Debug)]
pub(super) struct YamlEntry {
    pub key: String,
    pub key_span: Span,
    pub value: YamlNode,
}

impl YamlNode {
    pub(super) fn scalar(&self) -> Option<&Scalar> {
        match &self.kind {
            YamlKind::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// Text of a non-null scalar.
    pub(super) fn text(&self) -> Option<&str> {
        self.scalar().filter(|scalar| !scalar.is_null()).map(|scalar| scalar.text.as_str())
    }

    pub(super) fn entries(&self) -> Option<&[YamlEntry]> {
        match &self.kind {
            YamlKind::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn items(&self) -> Option<&[YamlNode]> {
        match &self.kind {
            YamlKind::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        self.scalar().is_some_and(Scalar::is_null)
    }

    pub(super) fn get(&self, key: &str) -> Option<&YamlNode> {
        self.entries()?.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    pub(super) fn to_value(&self) -> Value {
        match &self.kind {
            YamlKind::Scalar(scalar) => scalar.to_value(),
            YamlKind::List(items) => Value::Array(items.iter().map(YamlNode::to_value).collect()),
            YamlKind::Map(entries) => {
                Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value())).collect())
            }
        }
    }

    /// Kind of the value, for messages.
    pub(super) fn describe(&self) -> &'static str {
        match &self.kind {
            YamlKind::List(_) => "a list",
            YamlKind::Map(_) => "a map",
            YamlKind::Scalar(scalar) => match scalar.to_value() {
                Value::Null => "nothing",
                Value::Bool(_) => "true or false",
                Value::Number(_) => "a number",
                _ => "text",
            },
        }
    }
}

impl Scalar {
    pub(super) fn is_null(&self) -> bool {
        !self.quoted && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// Value by the core schema of YAML 1.2: `yes`, `on` and `0777` are text.
    pub(super) fn to_value(&self) -> Value {
        let text = self.text.as_str();
        if self.quoted {
            return Value::String(text.to_owned());
        }
        if self.is_null() {
            return Value::Null;
        }
        match text {
            "true" | "True" | "TRUE" => return Value::Bool(true),
            "false" | "False" | "FALSE" => return Value::Bool(false),
            _ => {}
        }
        let number = text.strip_prefix('+').unwrap_or(text);
        let digits = number.strip_prefix('-').unwrap_or(number);
        let octal_like = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
        if digits.starts_with(|c: char| c.is_ascii_digit())
            && !octal_like
            && let Ok(Value::Number(number)) = serde_json::from_str(number)
        {
            return Value::Number(number);
        }
        Value::String(text.to_owned())
    }
}

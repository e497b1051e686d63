//! A tree of values in which everything knows where it stands.

use serde_json::Value;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// The line of the first character, from 1.
    pub line: usize,
    /// The column of the first character, in characters, from 1.
    pub column: usize,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct YamlNode {
    /// Where.
    pub span: Span,
    /// What.
    pub kind: YamlKind,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum YamlKind {
    /// Text, or something that reads as a number, a flag or nothing when it has no quotes.
    Scalar(Scalar),
    /// A list.
    List(Vec<YamlNode>),
    /// Names to values, in the order written.
    Map(Vec<YamlEntry>),
}

/// A scalar as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// Its text, without quotes.
    pub text: String,
    /// Whether it had quotes or was a block: then it is text, whatever it looks like.
    pub quoted: bool,
}

/// One line of a map.
#[derive(Clone, Debug)]
pub struct YamlEntry {
    /// The name.
    pub key: String,
    /// Where the name stands.
    pub key_span: Span,
    /// The value.
    pub value: YamlNode,
}

impl YamlNode {
    /// The scalar that this is.
    pub fn scalar(&self) -> Option<&Scalar> {
        match &self.kind {
            YamlKind::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// The text of a scalar that is not nothing.
    pub fn text(&self) -> Option<&str> {
        self.scalar().filter(|scalar| !scalar.is_null()).map(|scalar| scalar.text.as_str())
    }

    /// The entries of a map.
    pub fn entries(&self) -> Option<&[YamlEntry]> {
        match &self.kind {
            YamlKind::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn items(&self) -> Option<&[YamlNode]> {
        match &self.kind {
            YamlKind::List(items) => Some(items),
            _ => None,
        }
    }

    /// Whether nothing stands here.
    pub fn is_null(&self) -> bool {
        self.scalar().is_some_and(Scalar::is_null)
    }

    /// The value of this name in a map.
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        self.entries()?.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The value as JSON.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            YamlKind::Scalar(scalar) => scalar.to_value(),
            YamlKind::List(items) => Value::Array(items.iter().map(YamlNode::to_value).collect()),
            YamlKind::Map(entries) => {
                Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value())).collect())
            }
        }
    }

    /// What stands here, in words.
    pub fn describe(&self) -> &'static str {
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
    /// Whether it stands for nothing.
    pub fn is_null(&self) -> bool {
        !self.quoted && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// What it means by the core schema of YAML 1.2: `yes`, `on` and `0777` are text.
    pub fn to_value(&self) -> Value {
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

//! How the keys of one map go together, as data: what breaks a rule is refused by the reader and by the schema for editors.

/// One rule about keys of a table.
#[derive(Debug)]
pub struct KeyRule {
    /// The keys that it is about.
    pub keys: &'static [&'static str],
    /// What holds for them.
    pub holds: Holds,
    /// The code of the problem when it does not.
    pub code: &'static str,
    /// What is wrong then; `{first}` and `{second}` stand for the keys that are there.
    pub message: &'static str,
    /// What to do about it.
    pub hint: &'static str,
}

/// What holds for the keys of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// No two of them are there.
    AtMostOne,
    /// One of them is there.
    AtLeastOne,
    /// Where the first is, the second is too.
    FirstNeedsSecond,
}

/// No two of these keys.
pub(super) const fn at_most_one(keys: &'static [&'static str], message: &'static str, hint: &'static str) -> KeyRule {
    KeyRule { keys, holds: Holds::AtMostOne, code: "exclusive-keys", message, hint }
}

/// Two keys with one meaning.
pub(super) const fn same(keys: &'static [&'static str; 2], message: &'static str) -> KeyRule {
    at_most_one(keys, message, "keep one of them")
}

/// One of these keys.
pub(super) const fn at_least_one(keys: &'static [&'static str], message: &'static str, hint: &'static str) -> KeyRule {
    KeyRule { keys, holds: Holds::AtLeastOne, code: "missing-key", message, hint }
}

/// The first key is nothing without the second.
pub(super) const fn needs(keys: &'static [&'static str; 2], message: &'static str, hint: &'static str) -> KeyRule {
    KeyRule { keys, holds: Holds::FirstNeedsSecond, code: "missing-key", message, hint }
}

impl KeyRule {
    /// The same under another code.
    pub(super) const fn coded(self, code: &'static str) -> KeyRule {
        KeyRule { code, ..self }
    }
}

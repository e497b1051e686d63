//! Rules between the keys of one map, used by the reader and by the JSON schema.

#[derive(Debug)]
pub(super) struct KeyRule {
    pub keys: &'static [&'static str],
    pub holds: Holds,
    /// Problem code of a violation.
    pub code: &'static str,
    /// Message of a violation; `{first}` and `{second}` are the present keys.
    pub message: &'static str,
    pub hint: &'static str,
}

/// Constraint of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    AtMostOne,
    AtLeastOne,
    /// The first key requires the second.
    FirstNeedsSecond,
}

/// At most one of these keys.
pub(super) const fn at_most_one(keys: &'static [&'static str], message: &'static str, hint: &'static str) -> KeyRule {
    KeyRule { keys, holds: Holds::AtMostOne, code: "exclusive-keys", message, hint }
}

/// Two synonymous keys.
pub(super) const fn same(keys: &'static [&'static str; 2], message: &'static str) -> KeyRule {
    at_most_one(keys, message, "remove one of them")
}

pub(super) const fn at_least_one(keys: &'static [&'static str], message: &'static str, hint: &'static str) -> KeyRule {
    KeyRule { keys, holds: Holds::AtLeastOne, code: "missing-key", message, hint }
}

/// The first key requires the second.
pub(super) const fn needs(keys: &'static [&'static str; 2], message: &'static str, hint: &'static str) -> KeyRule {
    KeyRule { keys, holds: Holds::FirstNeedsSecond, code: "missing-key", message, hint }
}

impl KeyRule {
    /// Sets the problem code.
    pub(super) const fn coded(self, code: &'static str) -> KeyRule {
        KeyRule { code, ..self }
    }
}

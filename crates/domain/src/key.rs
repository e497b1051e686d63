//! Idempotency keys: what makes a repeat recognisable.

use std::fmt;

use serde_json::Value;

use crate::event::scalar;
use crate::path::{Path, Segment};
use crate::template::{Expression, Scope, TemplateProblem};

/// A key as the ledger keeps it: a digest, so that neither its length nor what it says matters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyDigest(pub [u8; 16]);

impl KeyDigest {
    /// The digest of a key in its scope. The tenant and the flow are part of it: the same key from two
    /// senders is two keys.
    pub fn new(tenant: &str, flow: &str, key: &str) -> KeyDigest {
        let mut hasher = blake3::Hasher::new_derive_key("sluice idempotency key");
        for part in [tenant, flow, key] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut digest = [0; 16];
        hasher.finalize_xof().fill(&mut digest);
        KeyDigest(digest)
    }

    /// The first half: enough to find candidates by, never enough to decide.
    pub fn prefix(self) -> u64 {
        u64::from_be_bytes(self.0[..8].try_into().expect("eight of sixteen bytes"))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

/// One way to find the key of a request.
#[derive(Clone, Debug)]
pub enum KeyStrategy {
    /// The value of a header, by its lower-case name.
    Header(String),
    /// These expressions, joined with `|`; applies when every one has a value.
    Parts(Vec<Expression>),
    /// A digest of the content, whatever the order of its members, without the fields that change on a resend.
    Fingerprint {
        /// Paths into the body that do not count.
        volatile: Vec<Path>,
    },
}

impl KeyStrategy {
    /// For a person: what this strategy looks at.
    pub fn describe(&self) -> String {
        match self {
            KeyStrategy::Header(name) => format!("header:{name}"),
            KeyStrategy::Parts(parts) => {
                parts.iter().map(Expression::source).collect::<Vec<_>>().join(" + ")
            }
            KeyStrategy::Fingerprint { .. } => "fingerprint of the content".into(),
        }
    }

    fn apply(&self, scope: &Scope) -> Result<Option<String>, TemplateProblem> {
        match self {
            KeyStrategy::Header(name) => Ok(scope
                .get("headers")
                .and_then(|headers| headers.get(name))
                .and_then(Value::as_str)
                .map(|value| value.trim().trim_matches('"').to_owned())
                .filter(|value| !value.is_empty())),
            KeyStrategy::Parts(parts) => {
                let mut key = String::new();
                for part in parts {
                    let Some(text) = part.evaluate(scope)?.as_ref().and_then(scalar) else {
                        return Ok(None);
                    };
                    if !key.is_empty() {
                        key.push('|');
                    }
                    // Escaped, so that ("a|b", "c") and ("a", "b|c") stay two keys.
                    key.push_str(&text.replace('\\', "\\\\").replace('|', "\\|"));
                }
                Ok((!key.is_empty()).then_some(key))
            }
            KeyStrategy::Fingerprint { volatile } => Ok(scope
                .get("body")
                .filter(|body| !body.is_null())
                .map(|body| fingerprint(body, volatile))),
        }
    }
}

/// The key of a request and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// As a person can read it.
    pub text: String,
    /// The strategy that applied.
    pub strategy: String,
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
pub fn derive(strategies: &[KeyStrategy], scope: &Scope) -> Result<Key, KeyProblem> {
    for strategy in strategies {
        if let Some(text) = strategy.apply(scope)? {
            if text.len() > KEY_BYTES_MAX {
                return Err(KeyProblem::TooLong(text.len()));
            }
            return Ok(Key { text, strategy: strategy.describe() });
        }
    }
    Err(KeyProblem::Missing(strategies.iter().map(KeyStrategy::describe).collect::<Vec<_>>().join(", then ")))
}

/// A digest of a JSON value that does not depend on the order of members, on white space or on how a number is
/// written, and leaves out what stands at the volatile paths.
pub fn fingerprint(value: &Value, volatile: &[Path]) -> String {
    data_encoding::HEXLOWER.encode(digest(value, volatile).as_ref())
}

/// The first half of the same digest, to tell a repeat from another content under the same key.
pub fn fingerprint_digest(value: &Value, volatile: &[Path]) -> [u8; 16] {
    digest(value, volatile).as_ref()[..16].try_into().expect("SHA-256 has 32 bytes")
}

fn digest(value: &Value, volatile: &[Path]) -> aws_lc_rs::digest::Digest {
    let mut canonical_form = Vec::with_capacity(1024);
    canonical(value, &mut Vec::new(), volatile, &mut |bytes| canonical_form.extend_from_slice(bytes));
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &canonical_form)
}

fn canonical(value: &Value, at: &mut Vec<Segment>, volatile: &[Path], out: &mut dyn FnMut(&[u8])) {
    match value {
        Value::Null => out(b"n"),
        Value::Bool(flag) => out(if *flag { b"t" } else { b"f" }),
        Value::Number(number) => {
            out(b"#");
            // 1, 1.0 and 1e0 are one number; integers beyond 2^53 stay exact.
            match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(integer), _, _) => out(integer.to_string().as_bytes()),
                (_, Some(integer), _) => out(integer.to_string().as_bytes()),
                (_, _, Some(float)) if float.fract() == 0.0 && float.abs() < 9e15 => out((float as i64).to_string().as_bytes()),
                (_, _, Some(float)) => out(float.to_string().as_bytes()),
                _ => out(number.to_string().as_bytes()),
            }
            out(b";");
        }
        Value::String(text) => {
            out(b"\"");
            out(&(text.len() as u64).to_le_bytes());
            out(text.as_bytes());
        }
        Value::Array(items) => {
            out(b"[");
            for (index, item) in items.iter().enumerate() {
                at.push(Segment::Index(index));
                if !is_volatile(at, volatile) {
                    canonical(item, at, volatile, out);
                }
                at.pop();
            }
            out(b"]");
        }
        Value::Object(members) => {
            out(b"{");
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable();
            for name in names {
                at.push(Segment::Key(name.clone()));
                if !is_volatile(at, volatile) {
                    out(&(name.len() as u64).to_le_bytes());
                    out(name.as_bytes());
                    canonical(&members[name], at, volatile, out);
                }
                at.pop();
            }
            out(b"}");
        }
    }
}

fn is_volatile(at: &[Segment], volatile: &[Path]) -> bool {
    volatile.iter().any(|path| path.0 == at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope(body: Value) -> Scope {
        let mut scope = Scope::new();
        scope.set("body", body);
        scope.set("headers", json!({"idempotency-key": " \"k-1\" "}));
        scope
    }

    fn parts(sources: &[&str]) -> KeyStrategy {
        KeyStrategy::Parts(sources.iter().map(|source| Expression::parse(source).unwrap()).collect())
    }

    #[test]
    fn the_first_strategy_that_applies_gives_the_key() {
        let strategies = [parts(&["body.id", "body.op"]), KeyStrategy::Header("idempotency-key".into())];
        assert_eq!(derive(&strategies, &scope(json!({"id": 5, "op": "up"}))).unwrap().text, "5|up");
        let second = derive(&strategies, &scope(json!({"id": 5}))).unwrap();
        assert_eq!((second.text.as_str(), second.strategy.as_str()), ("k-1", "header:idempotency-key"));
        let none = derive(&strategies[..1], &scope(json!({}))).unwrap_err();
        assert_eq!(none.to_string(), "no idempotency key: body.id + body.op has no value in this request");
    }

    #[test]
    fn parts_cannot_be_shifted_into_one_another() {
        let strategy = [parts(&["body.a", "body.b"])];
        let key = |a, b| derive(&strategy, &scope(json!({"a": a, "b": b}))).unwrap().text;
        assert_ne!(key("x|y", "z"), key("x", "y|z"));
    }

    #[test]
    fn a_fingerprint_sees_content_and_not_form() {
        let volatile = [Path::parse("sent_at").unwrap(), Path::parse("meta.try").unwrap()];
        let a = json!({"b": 1.0, "a": "x", "sent_at": 1, "meta": {"try": 1, "k": [1, 2]}});
        let b = json!({"sent_at": 2, "meta": {"k": [1, 2], "try": 9}, "a": "x", "b": 1});
        assert_eq!(fingerprint(&a, &volatile), fingerprint(&b, &volatile));
        assert_ne!(fingerprint(&a, &volatile), fingerprint(&a, &[]));
        for other in [json!({"a": "x"}), json!({"a": "x", "b": "1"}), json!({"a": ["x"], "b": 1})] {
            assert_ne!(fingerprint(&a, &volatile), fingerprint(&other, &volatile));
        }
        assert_ne!(fingerprint(&json!(9007199254740993u64), &[]), fingerprint(&json!(9007199254740992u64), &[]));
    }

    #[test]
    fn the_same_key_of_two_flows_is_two_keys() {
        assert_ne!(KeyDigest::new("t", "a", "bc"), KeyDigest::new("t", "ab", "c"));
        assert_eq!(KeyDigest::new("t", "a", "b"), KeyDigest::new("t", "a", "b"));
    }
}

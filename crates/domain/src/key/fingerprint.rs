//! A digest of what a body says, not of how it says it.

use serde_json::Value;

use crate::path::{Path, Segment};

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
    canonical(value, &mut Place { at: Vec::new(), volatile }, &mut canonical_form);
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &canonical_form)
}

/// Where in a value the digest has come to. Nobody needs to know when nothing is volatile.
struct Place<'v> {
    at: Vec<Segment>,
    volatile: &'v [Path],
}

impl Place<'_> {
    /// Does something one level deeper, unless what stands there is volatile.
    fn within(&mut self, segment: impl FnOnce() -> Segment, act: impl FnOnce(&mut Self)) {
        if self.volatile.is_empty() {
            return act(self);
        }
        self.at.push(segment());
        if !is_volatile(&self.at, self.volatile) {
            act(self);
        }
        self.at.pop();
    }
}

fn canonical(value: &Value, place: &mut Place<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'n'),
        Value::Bool(flag) => out.push(if *flag { b't' } else { b'f' }),
        Value::Number(number) => {
            // 1, 1.0 and 1e0 are one number; integers beyond 2^53 stay exact.
            let text = match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(integer), _, _) => integer.to_string(),
                (_, Some(integer), _) => integer.to_string(),
                (_, _, Some(float)) if float.fract() == 0.0 && float.abs() < 9e15 => (float as i64).to_string(),
                (_, _, Some(float)) => float.to_string(),
                _ => number.to_string(),
            };
            out.push(b'#');
            out.extend_from_slice(text.as_bytes());
            out.push(b';');
        }
        Value::String(text) => {
            out.push(b'"');
            sized(text, out);
        }
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                place.within(|| Segment::Index(index), |place| canonical(item, place, out));
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            for (name, member) in members {
                place.within(
                    || Segment::Key(name.clone()),
                    |place| {
                        sized(name, out);
                        canonical(member, place, out);
                    },
                );
            }
            out.push(b'}');
        }
    }
}

fn sized(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A path that names no place in a list means every place in it.
fn is_volatile(at: &[Segment], volatile: &[Path]) -> bool {
    volatile.iter().any(|path| path.leads_to(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fingerprint_sees_content_and_not_form() {
        let volatile =
            [Path::parse("sent_at").unwrap(), Path::parse("meta.try").unwrap(), Path::parse("items.at").unwrap()];
        let a =
            json!({"b": 1.0, "a": "x", "sent_at": 1, "meta": {"try": 1, "k": [1, 2]}, "items": [{"n": 1, "at": 3}]});
        let b = json!({"sent_at": 2, "items": [{"at": 4, "n": 1}], "meta": {"k": [1, 2], "try": 9}, "a": "x", "b": 1});
        assert_eq!(fingerprint(&a, &volatile), fingerprint(&b, &volatile));
        assert_ne!(fingerprint(&a, &volatile), fingerprint(&a, &[]));
        for other in [json!({"a": "x"}), json!({"a": "x", "b": "1"}), json!({"a": ["x"], "b": 1})] {
            assert_ne!(fingerprint(&a, &volatile), fingerprint(&other, &volatile));
        }
        assert_ne!(fingerprint(&json!(9007199254740993u64), &[]), fingerprint(&json!(9007199254740992u64), &[]));
    }
}

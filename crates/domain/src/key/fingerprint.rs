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
                (_, _, Some(float)) if float.fract() == 0.0 && float.abs() < 9e15 => {
                    out((float as i64).to_string().as_bytes())
                }
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

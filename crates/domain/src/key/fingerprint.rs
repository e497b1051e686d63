//! Fingerprint: a digest of a JSON value that ignores its notation.

use std::io::Write;

use serde_json::Value;

use crate::path::{Path, Segment};

/// SHA-256 of the canonical form of a JSON value, in hexadecimal. Order of members, white space and number notation do not
/// matter. Values at the volatile paths are left out.
pub fn fingerprint(value: &Value, volatile: &[Path]) -> String {
    data_encoding::HEXLOWER.encode(digest(value, volatile).as_ref())
}

/// First half of the same digest. Distinguishes a duplicate from other content under the same key.
pub fn fingerprint_digest(value: &Value, volatile: &[Path]) -> [u8; 16] {
    digest(value, volatile).as_ref()[..16].try_into().expect("SHA-256 has 32 bytes")
}

fn digest(value: &Value, volatile: &[Path]) -> aws_lc_rs::digest::Digest {
    let mut canonical_form = Vec::with_capacity(1024);
    let volatile: Vec<&[Segment]> = volatile.iter().map(|path| path.0.as_slice()).collect();
    canonical(value, &volatile, &mut canonical_form);
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &canonical_form)
}

/// Appends the canonical form of a value, without the values at the volatile paths. Stored digests depend on this form.
fn canonical(value: &Value, volatile: &[&[Segment]], out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'n'),
        Value::Bool(flag) => out.push(if *flag { b't' } else { b'f' }),
        Value::Number(number) => {
            out.push(b'#');
            // 1, 1.0 and 1e0 are the same number; integers beyond 2^53 stay exact.
            let written = match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(integer), _, _) => write!(out, "{integer}"),
                (_, Some(integer), _) => write!(out, "{integer}"),
                (_, _, Some(float)) if float.fract() == 0.0 && float.abs() < 9e15 => write!(out, "{}", float as i64),
                (_, _, Some(float)) => write!(out, "{float}"),
                _ => write!(out, "{number}"),
            };
            written.expect("a Vec accepts every write");
            out.push(b';');
        }
        Value::String(text) => {
            out.push(b'"');
            write_with_length(text, out);
        }
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if let Some(volatile) = descend_all(volatile, |path| in_item(path, index)) {
                    canonical(item, &volatile, out);
                }
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            for (name, member) in members {
                if let Some(volatile) = descend_all(volatile, |path| in_member(path, name)) {
                    write_with_length(name, out);
                    canonical(member, &volatile, out);
                }
            }
            out.push(b'}');
        }
    }
}

/// Remainders of the paths one level deeper; `None` if one of them ends there.
fn descend_all<'v>(
    volatile: &[&'v [Segment]],
    descend: impl Fn(&'v [Segment]) -> Option<&'v [Segment]>,
) -> Option<Vec<&'v [Segment]>> {
    let deeper: Vec<&[Segment]> = volatile.iter().filter_map(|path| descend(path)).collect();
    deeper.iter().all(|path| !path.is_empty()).then_some(deeper)
}

fn in_member<'v>(path: &'v [Segment], name: &str) -> Option<&'v [Segment]> {
    match path {
        [Segment::Key(key), rest @ ..] if key == name => Some(rest),
        _ => None,
    }
}

/// A path without an index applies to every item of a list.
fn in_item(path: &[Segment], index: usize) -> Option<&[Segment]> {
    match path {
        [Segment::Index(at), rest @ ..] => (*at == index).then_some(rest),
        [Segment::Key(_), ..] => Some(path),
        [] => None,
    }
}

fn write_with_length(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fingerprint_depends_on_content_not_notation() {
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

    #[test]
    fn canonical_form_of_stored_digests_is_unchanged() {
        let value = json!({"b": 1.0, "a": ["x", null, true, -0.5, u64::MAX, 1e300], "at": {"n": {}}});
        let mut form = Vec::new();
        canonical(&value, &[], &mut form);
        let size = |n: u8| String::from_utf8(vec![n, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        let (one, two, large) = (size(1), size(2), format!("1{}", "0".repeat(300)));
        let wanted =
            format!("{{{one}a[\"{one}xnt#-0.5;#18446744073709551615;#{large};]{two}at{{{one}n{{}}}}{one}b#1;}}");
        assert_eq!(String::from_utf8(form).unwrap(), wanted);
        assert_eq!(
            fingerprint(&json!({"a": 1, "b": "x"}), &[]),
            "2ce1484e6479de2036273f416f021c9d8c20575198c6989e4188087fc9cab87a"
        );
    }

    #[test]
    fn volatile_path_through_a_list_applies_to_the_addressed_items() {
        let of = |paths: &[&str]| {
            let volatile: Vec<Path> = paths.iter().map(|path| Path::parse(path).unwrap()).collect();
            fingerprint(&json!({"items": [{"at": 1, "n": 2}, {"at": 3, "n": 4}], "k": [[5], [6]]}), &volatile)
        };
        let same = |value: Value| fingerprint(&value, &[]);
        assert_eq!(of(&["items.at"]), same(json!({"items": [{"n": 2}, {"n": 4}], "k": [[5], [6]]})));
        assert_eq!(of(&["items[1].at"]), same(json!({"items": [{"at": 1, "n": 2}, {"n": 4}], "k": [[5], [6]]})));
        assert_eq!(of(&["items[0]", "k[1][0]"]), same(json!({"items": [{"at": 3, "n": 4}], "k": [[5], []]})));
        assert_eq!(of(&["items.at.deeper", "k.x", "items[7]"]), of(&[]));
    }
}

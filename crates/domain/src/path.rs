//! Paths into a JSON value: `body.contact.emails[0].value`.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Member of an object.
    Key(String),
    /// Index into an array, from 0.
    Index(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(pub Vec<Segment>);

impl Path {
    /// Parses `a.b[0]["c d"]`. An unquoted name consists of letters, digits, `_`, `-`, `$` and `@`; other names need
    /// brackets and quotes.
    pub fn parse(text: &str) -> Option<Path> {
        let mut segments = Vec::new();
        let mut rest = text.trim();
        let mut expect_name = true;
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                if expect_name && !segments.is_empty() {
                    return None;
                }
                let quote = inside.chars().next()?;
                if quote == '"' || quote == '\'' {
                    let end = inside[1..].find(quote)? + 1;
                    segments.push(Segment::Key(inside[1..end].to_owned()));
                    rest = inside[end + 1..].strip_prefix(']')?;
                } else {
                    let end = inside.find(']')?;
                    segments.push(Segment::Index(inside[..end].trim().parse().ok()?));
                    rest = &inside[end + 1..];
                }
            } else {
                if !expect_name {
                    rest = rest.strip_prefix('.')?;
                }
                let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
                if end == 0 {
                    return None;
                }
                let name = &rest[..end];
                segments.push(match name.parse() {
                    Ok(index) if !segments.is_empty() => Segment::Index(index),
                    _ => Segment::Key(name.to_owned()),
                });
                rest = &rest[end..];
            }
            expect_name = false;
        }
        (!segments.is_empty()).then_some(Path(segments))
    }

    /// The value at this path.
    pub fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        find(&self.0, value)
    }

    /// Removes the value at this path. A path without an index applies to every item of a list. True if a value was
    /// removed.
    pub fn remove(&self, value: &mut Value) -> bool {
        remove(&self.0, value)
    }

    /// The first name, and the remaining path.
    pub fn split_root(&self) -> Option<(&str, &[Segment])> {
        match self.0.as_slice() {
            [Segment::Key(root), rest @ ..] => Some((root, rest)),
            _ => None,
        }
    }
}

/// The value at the path of these segments.
pub(crate) fn find<'a>(segments: &[Segment], mut value: &'a Value) -> Option<&'a Value> {
    for segment in segments {
        value = match segment {
            Segment::Key(key) => value.get(key)?,
            Segment::Index(index) => match value {
                Value::Array(items) => items.get(*index)?,
                Value::Object(members) => members.get(&index.to_string())?,
                _ => return None,
            },
        };
    }
    Some(value)
}

fn remove(segments: &[Segment], value: &mut Value) -> bool {
    let [first, rest @ ..] = segments else { return false };
    match (first, value) {
        (Segment::Key(key), Value::Object(members)) if rest.is_empty() => members.shift_remove(key).is_some(),
        (Segment::Key(key), Value::Object(members)) => members.get_mut(key).is_some_and(|inner| remove(rest, inner)),
        (Segment::Index(index), Value::Object(members)) => {
            let key = index.to_string();
            match rest {
                [] => members.shift_remove(&key).is_some(),
                _ => members.get_mut(&key).is_some_and(|inner| remove(rest, inner)),
            }
        }
        (Segment::Index(index), Value::Array(items)) if *index < items.len() => match rest {
            [] => {
                items.remove(*index);
                true
            }
            _ => remove(rest, &mut items[*index]),
        },
        (Segment::Key(_), Value::Array(items)) => {
            let mut found = false;
            for item in items {
                found |= remove(segments, item);
            }
            found
        }
        _ => false,
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if !key.is_empty() && key.chars().all(is_name) => {
                    write!(f, "{}{key}", if position == 0 { "" } else { "." })?;
                }
                Segment::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '@')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn path_finds_its_value() {
        let value = json!({"a": {"b-c": [{"d e": 1}, 2]}, "n": {"7": "seven"}});
        let find = |path: &str| Path::parse(path).and_then(|path| path.find(&value).cloned());
        assert_eq!(find("a.b-c[0][\"d e\"]"), Some(json!(1)));
        assert_eq!(find("a.b-c.1"), Some(json!(2)));
        assert_eq!(find("n.7"), Some(json!("seven")));
        assert_eq!(find("a.x"), None);
        for wrong in ["", ".", "a.", "a..b", "a[", "a[x]", "a b", "a['x]"] {
            assert_eq!(Path::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn remove_applies_to_every_item_of_a_list() {
        let mut value = json!({"a": [{"ip": 1, "n": 2}, {"ip": 3}], "k": {"ip": 4}, "7": 1});
        let remove = |path: &str, value: &mut Value| Path::parse(path).unwrap().remove(value);
        assert!(remove("a.ip", &mut value));
        assert!(remove("k", &mut value));
        assert!(!remove("k.ip", &mut value));
        assert!(remove("a[1]", &mut value));
        assert_eq!(value, json!({"a": [{"n": 2}], "7": 1}));
        assert_eq!(Path::parse("a.b[0]['c d']").unwrap().to_string(), "a.b[0][\"c d\"]");
    }

    proptest::proptest! {
        #[test]
        fn parse_never_panics(text in ".{0,60}") {
            let _ = Path::parse(&text);
        }
    }
}

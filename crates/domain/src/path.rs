//! Paths into a JSON value: `body.contact.emails[0].value`.

use serde_json::Value;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A member of an object.
    Key(String),
    /// A place in an array, from 0.
    Index(usize),
}

/// A path into a JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(pub Vec<Segment>);

impl Path {
    /// Reads `a.b[0]["c d"]`. A name may hold letters, digits, `_`, `-`, `$` and `@`; anything else goes
    /// into brackets and quotes.
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

    /// What the path leads to.
    pub fn find<'a>(&self, mut value: &'a Value) -> Option<&'a Value> {
        for segment in &self.0 {
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

    /// The first name, and the path after it.
    pub fn split_root(&self) -> Option<(&str, Path)> {
        match self.0.first()? {
            Segment::Key(root) => Some((root, Path(self.0[1..].to_vec()))),
            Segment::Index(_) => None,
        }
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
    fn paths_lead_where_they_say() {
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

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,60}") {
            let _ = Path::parse(&text);
        }
    }
}

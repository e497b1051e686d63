//! Signed string of the general HMAC scheme: `v0:{timestamp}:{body}`.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Literal(Box<[u8]>),
    Body,
    Timestamp,
    Id,
    Url,
    /// Path and query of the request.
    Path,
    Method,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignedStringProblem {
    #[error(
        "unknown placeholder {{{0}}}; known are {{body}}, {{timestamp}}, \
         {{id}}, {{url}}, {{path}} and {{method}}"
    )]
    UnknownPlaceholder(String),
    #[error("unbalanced brace")]
    Brace,
    /// The signature would match any body.
    #[error("it does not contain {{body}}, so the body could be forged")]
    NoBody,
}

pub(super) fn parse(template: &str) -> Result<Box<[Part]>, SignedStringProblem> {
    let mut parts = Vec::new();
    let mut rest = template;
    while !rest.is_empty() {
        let literal = &rest[..rest.find('{').unwrap_or(rest.len())];
        if literal.contains('}') {
            return Err(SignedStringProblem::Brace);
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.as_bytes().into()));
        }
        rest = &rest[literal.len()..];
        if let Some(inside) = rest.strip_prefix('{') {
            let (name, after) = inside.split_once('}').ok_or(SignedStringProblem::Brace)?;
            parts.push(placeholder(name)?);
            rest = after;
        }
    }
    if parts.contains(&Part::Body) { Ok(parts.into()) } else { Err(SignedStringProblem::NoBody) }
}

fn placeholder(name: &str) -> Result<Part, SignedStringProblem> {
    Ok(match name {
        "body" => Part::Body,
        "timestamp" => Part::Timestamp,
        "id" => Part::Id,
        "url" => Part::Url,
        "path" => Part::Path,
        "method" => Part::Method,
        other => return Err(SignedStringProblem::UnknownPlaceholder(other.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> Part {
        Part::Literal(text.as_bytes().into())
    }

    #[test]
    fn template_is_split_into_parts() {
        let parts = |template| parse(template).map(Vec::from);
        assert_eq!(parts("{body}"), Ok(vec![Part::Body]));
        assert_eq!(parts("v0:{timestamp}:{body}"), Ok(vec![literal("v0:"), Part::Timestamp, literal(":"), Part::Body]));
        assert_eq!(
            parts("{method}{url}{path}{body}{id}é"),
            Ok(vec![Part::Method, Part::Url, Part::Path, Part::Body, Part::Id, literal("é")])
        );
    }

    #[test]
    fn invalid_templates_are_rejected() {
        let unknown = SignedStringProblem::UnknownPlaceholder("ts".into());
        assert_eq!(parse("{ts}.{body}"), Err(unknown.clone()));
        assert!(unknown.to_string().contains("{ts}"), "{unknown}");
        assert_eq!(parse("{body"), Err(SignedStringProblem::Brace));
        assert_eq!(parse("body}{body}"), Err(SignedStringProblem::Brace));
        assert_eq!(parse("{timestamp}"), Err(SignedStringProblem::NoBody));
        assert_eq!(parse(""), Err(SignedStringProblem::NoBody));
    }
}

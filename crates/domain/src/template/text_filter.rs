//! The most frequent text filters without the interpreter: `body.email | lower | trim`.

/// Filters in the order written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextFilters(Vec<TextFilter>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextFilter {
    Lower,
    Upper,
    Trim,
}

impl TextFilters {
    /// Parses `inside | lower | trim`; `None` for anything else.
    pub(super) fn parse(source: &str) -> Option<(TextFilters, &str)> {
        let mut parts = source.split('|').map(str::trim);
        let inside = parts.next()?;
        let filters: Option<Vec<TextFilter>> = parts
            .map(|part| match part {
                "lower" => Some(TextFilter::Lower),
                "upper" => Some(TextFilter::Upper),
                "trim" => Some(TextFilter::Trim),
                _ => None,
            })
            .collect();
        filters.filter(|filters| !filters.is_empty()).map(|filters| (TextFilters(filters), inside))
    }

    pub(super) fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for filter in &self.0 {
            text = match filter {
                TextFilter::Lower => text.to_lowercase(),
                TextFilter::Upper => text.to_uppercase(),
                TextFilter::Trim => text.trim().to_owned(),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Expression, Scope};
    use serde_json::{Value, json};

    /// Parentheses disable the fast path; both must agree.
    #[test]
    fn fast_path_agrees_with_the_interpreter() {
        for value in [json!(" Ada@X.org "), json!("ǅ ΣΑΣ\u{a0}"), json!(""), json!(7), json!(null), json!(["A"])] {
            let mut scope = Scope::new();
            scope.set("body", json!({ "email": value }));
            let evaluate = |source: &str| Expression::parse(source).unwrap().evaluate(&scope);
            for filters in ["lower", "upper|trim", "lower | trim", "trim | upper | lower"] {
                let fast = evaluate(&format!("body.email | {filters}"));
                let interpreted = evaluate(&format!("(body.email) | {filters}"));
                assert_eq!(fast.is_ok(), interpreted.is_ok(), "{value} {filters}");
                assert_eq!(
                    fast.unwrap_or(Some(Value::Null)),
                    interpreted.unwrap_or(Some(Value::Null)),
                    "{value} {filters}"
                );
            }
        }
    }
}

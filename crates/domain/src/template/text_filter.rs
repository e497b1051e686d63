//! The most frequent filters over one text, without the interpreter: `body.email | lower | trim`.

/// Changes to a text, in the order written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextFilters(Vec<TextFilter>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextFilter {
    Lower,
    Upper,
    Trim,
}

impl TextFilters {
    /// Reads `inside | lower | trim`. Anything else is for the interpreter.
    pub(super) fn parse(source: &str) -> Option<(TextFilters, &str)> {
        let mut parts = source.split('|').map(str::trim);
        let inside = parts.next()?;
        let tweaks: Option<Vec<TextFilter>> = parts
            .map(|part| match part {
                "lower" => Some(TextFilter::Lower),
                "upper" => Some(TextFilter::Upper),
                "trim" => Some(TextFilter::Trim),
                _ => None,
            })
            .collect();
        tweaks.filter(|tweaks| !tweaks.is_empty()).map(|tweaks| (TextFilters(tweaks), inside))
    }

    pub(super) fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for tweak in &self.0 {
            text = match tweak {
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

    /// The short way and the interpreter must agree, whatever stands there: `~ ""` makes the short way impossible.
    #[test]
    fn the_short_way_means_what_the_interpreter_means() {
        for value in [json!(" Ada@X.org "), json!("ǅ ΣΑΣ\u{a0}"), json!(""), json!(7), json!(null), json!(["A"])] {
            let mut scope = Scope::new();
            scope.set("body", json!({ "email": value }));
            let evaluate = |source: &str| Expression::parse(source).unwrap().evaluate(&scope);
            for filters in ["lower", "upper|trim", "lower | trim", "trim | upper | lower"] {
                let short = evaluate(&format!("body.email | {filters}"));
                let long = evaluate(&format!("(body.email) | {filters}"));
                assert_eq!(short.is_ok(), long.is_ok(), "{value} {filters}");
                assert_eq!(short.unwrap_or(Some(Value::Null)), long.unwrap_or(Some(Value::Null)), "{value} {filters}");
            }
        }
    }
}

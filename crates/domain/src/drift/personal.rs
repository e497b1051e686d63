//! Paths of a payload that a mapping reads values of a person from.

use super::PersonalPaths;
use super::sample::is_inside;
use crate::event::EventMapping;
use crate::mask;

/// Paths that fields of a person are mapped from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappedPersonalPaths {
    paths: Vec<String>,
    /// Some field is mapped from the whole body.
    everything: bool,
}

impl MappedPersonalPaths {
    /// Of the identity fields, and of the attributes whose names denote personal data.
    pub fn of(mapping: &EventMapping) -> MappedPersonalPaths {
        let attributes = mapping.attributes.iter().flatten().filter(|(name, _)| mask::is_personal_path(name));
        let mut found = MappedPersonalPaths::default();
        for (_, field) in mapping.identity.iter().chain(attributes) {
            field.from.visit_expressions(&mut |expression| found.read(expression.source()));
        }
        found
    }

    /// Every `body.PATH` in an expression; a `body` without a path reads everything.
    fn read(&mut self, source: &str) {
        for (at, word) in source.match_indices("body") {
            let before = source[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = source[at + word.len()..].replace(['[', '"', '\''], ".").replace(']', "");
            let path: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')).collect();
            let parts = path.split('.').filter(|part| !part.is_empty());
            // An index names an item of a list, which has no path of its own.
            let parts: Vec<&str> = parts.take_while(|part| part.parse::<usize>().is_err()).collect();
            match parts.is_empty() {
                true => self.everything = true,
                false => self.paths.push(parts.join(".")),
            }
        }
    }
}

impl PersonalPaths for MappedPersonalPaths {
    fn is_personal(&self, path: &str) -> bool {
        self.everything || self.paths.iter().any(|read| path == read || is_inside(path, read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Template;

    fn template(text: &str) -> Template {
        Template::parse_text(text).unwrap()
    }

    #[test]
    fn paths_of_identity_and_personal_attributes_are_found() {
        let mapping = EventMapping {
            identity: vec![
                ("email".into(), template("{{ body.field_7 | lower }}").into()),
                ("external_id".into(), template("shop:{{ body['customer']['nr'] }}").into()),
            ],
            attributes: Some(vec![
                ("first_name".into(), template("{{ body.answers[0].text }}").into()),
                ("plan".into(), template("{{ body.plan }}").into()),
            ]),
            ..EventMapping::plain("lead")
        };
        let found = MappedPersonalPaths::of(&mapping);
        for (path, expected) in [
            ("field_7", true),
            ("customer.nr", true),
            ("customer", false),
            ("answers[].text", true),
            ("plan", false),
            ("field_77", false),
        ] {
            assert_eq!(found.is_personal(path), expected, "{path}");
        }
        let whole = EventMapping { identity: vec![("id".into(), template("{{ body }}").into())], ..mapping };
        assert!(MappedPersonalPaths::of(&whole).is_personal("anything"));
    }
}

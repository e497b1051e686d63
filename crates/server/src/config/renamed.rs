//! Keys of earlier versions. They are rejected with the name that replaces them.

/// Former and current names. An entry applies to every section that has the current name.
const RENAMED: [(&str, &str); 4] = [
    ("second_net", "content_window"),
    ("max_attempts_maybe", "max_attempts_conflict"),
    ("answer", "success_status"),
    ("repeat", "resend"),
];

/// The current name of a former key, if the section has it.
pub(super) fn current_name<'k>(former: &str, mut keys: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let (_, current) = RENAMED.into_iter().find(|(name, _)| *name == former)?;
    keys.find(|name| *name == current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_name_maps_only_in_sections_with_the_current_name() {
        assert_eq!(current_name("repeat", ["class", "resend"].into_iter()), Some("resend"));
        assert_eq!(current_name("repeat", ["class"].into_iter()), None);
        assert_eq!(current_name("class", ["class"].into_iter()), None);
    }
}

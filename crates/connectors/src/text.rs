//! Text helpers for requests and for failure messages: escaping, excerpts, redaction.

use sluice_domain::mask;
use sluice_domain::outcome::Outcome;
use sluice_domain::verify::SecretValue;

/// Longest excerpt of a response body in a failure message.
const EXCERPT_CHARACTERS_MAX: usize = 300;

/// Shorter secrets are not redacted: replacing every occurrence of such a short string would garble the text.
const SECRET_CHARACTERS_MIN: usize = 4;

/// Replacement for a redacted secret.
pub(crate) const MASK: &str = "***";

/// First words of a body on one line, without control characters and with personal data masked.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(EXCERPT_CHARACTERS_MAX * 8)]);
    let text = mask::text(&start);
    let mut line = String::with_capacity(EXCERPT_CHARACTERS_MAX);
    let mut count = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        let space = usize::from(!line.is_empty());
        let room = EXCERPT_CHARACTERS_MAX.saturating_sub(count + space + 1);
        if room == 0 {
            line.push('…');
            return line;
        }
        if space == 1 {
            line.push(' ');
        }
        let length = word.chars().count();
        if length > room {
            line.extend(word.chars().take(room));
            line.push('…');
            return line;
        }
        line.push_str(word);
        count += space + length;
    }
    line
}

/// Replaces every secret in the text with [`MASK`].
pub(crate) fn redact<'a>(text: String, secrets: impl IntoIterator<Item = &'a str>) -> String {
    secrets.into_iter().fold(text, |text, secret| {
        if secret.len() >= SECRET_CHARACTERS_MIN && text.contains(secret) { text.replace(secret, MASK) } else { text }
    })
}

/// What an outcome says to operators; `None` for one that says nothing.
pub(crate) fn message_of(outcome: &mut Outcome) -> Option<&mut String> {
    match outcome {
        Outcome::Retry { failure, .. }
        | Outcome::Wait { failure, .. }
        | Outcome::Reject { failure }
        | Outcome::Unsure { failure } => Some(&mut failure.message),
        Outcome::Noop { reason } => Some(reason),
        Outcome::Done { .. } => None,
    }
}

/// Redacts the secrets in the message: a destination may quote the request it received.
pub(crate) fn redact_outcome<'a>(mut outcome: Outcome, secrets: impl IntoIterator<Item = &'a str>) -> Outcome {
    if let Some(message) = message_of(&mut outcome) {
        *message = redact(std::mem::take(message), secrets);
    }
    outcome
}

/// Plain text of the secrets, for [`redact`].
pub(crate) fn exposed(secrets: &[SecretValue]) -> impl Iterator<Item = &str> + Clone {
    secrets.iter().map(SecretValue::expose)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_is_one_short_line() {
        assert_eq!(excerpt(b"  <html>\r\n\t<b>no\x07\x1b[31m</b> "), "<html> <b>no [31m</b>");
        assert_eq!(excerpt(b""), "");
        assert_eq!(excerpt(b"no ann@example.com here"), "no a***@example.com here");
        for long in ["x".repeat(5000), "wörd ".repeat(500), "\u{1F600}".repeat(2000)] {
            let line = excerpt(long.as_bytes());
            assert!(line.chars().count() <= 300 && line.ends_with('…'), "{line}");
        }
    }

    #[test]
    fn secrets_are_redacted() {
        let text = redact("token hunter2 and hunter2, pin 12".into(), ["hunter2", "12"]);
        assert_eq!(text, "token *** and ***, pin 12");
        let noop = Outcome::Noop { reason: "there is hunter2 already".into() };
        assert_eq!(redact_outcome(noop, ["hunter2"]), Outcome::Noop { reason: "there is *** already".into() });
    }

    proptest::proptest! {
        #[test]
        fn excerpt_never_exceeds_its_limit(body in proptest::collection::vec(0u8.., 0..4000)) {
            proptest::prop_assert!(excerpt(&body).chars().count() <= 300);
        }
    }
}

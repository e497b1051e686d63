//! The description of an HMAC scheme, as a configuration or a sender's row gives it.

use std::borrow::Cow;

use data_encoding::{BASE64_NOPAD, HEXLOWER_PERMISSIVE};

use super::digest::{Algorithm, Encoding};
use super::freshness::TimestampUnit;
use super::problem::SettingsProblem;
use super::secret::Secret;

/// A description of an HMAC scheme. `S` is `String` for one that was configured.
#[derive(Clone, Debug)]
pub struct HmacSettings<S = String> {
    /// Where the signature is.
    pub header: SignatureHeader<S>,
    /// The hash.
    pub algorithm: Algorithm,
    /// How the digest is written.
    pub encoding: Encoding,
    /// How the secret becomes the key.
    pub secret_encoding: SecretEncoding,
    /// What to strip from the secret before it is decoded, if it starts so: `whsec_`.
    pub secret_prefix: Option<S>,
    /// What the signature starts with, exactly: `sha256=`.
    pub prefix: Option<S>,
    /// How the header's value is laid out.
    pub layout: Layout<S>,
    /// The signed string, with `{body}`, `{timestamp}`, `{id}`, `{url}` and `{method}`.
    pub signed: S,
    /// Where the time of signing is; needed if and only if the signed string holds it.
    pub timestamp: Option<TimestampSettings<S>>,
    /// The header of the event id; needed if the signed string holds it.
    pub id_header: Option<S>,
}

impl HmacSettings {
    /// A lower-case hexadecimal HMAC-SHA256 of the body, alone in this header.
    pub fn new(header: impl Into<String>) -> HmacSettings {
        HmacSettings {
            header: SignatureHeader::One(header.into()),
            algorithm: Algorithm::Sha256,
            encoding: Encoding::Hex,
            secret_encoding: SecretEncoding::Text,
            secret_prefix: None,
            prefix: None,
            layout: Layout::Whole,
            signed: "{body}".to_owned(),
            timestamp: None,
            id_header: None,
        }
    }
}

/// The header, or the two, in which a signature comes.
#[derive(Clone, Debug)]
pub enum SignatureHeader<S = String> {
    /// One header.
    One(S),
    /// Two names for the same thing: the first that is there decides, alone.
    FirstOf(S, S),
    /// Two signatures, by an old and a new secret: either will do.
    EitherOf(S, S),
}

/// How the value of the header is laid out.
#[derive(Clone, Debug)]
pub enum Layout<S = String> {
    /// The whole value is the signature, after the prefix.
    Whole,
    /// A list of fields, of which those of one key are signatures; others are ignored.
    List {
        /// What stands between fields.
        separator: Separator,
        /// What stands between a key and its value.
        assign: Assign,
        /// The key of the signatures.
        signature_key: S,
    },
}

/// What stands between the fields of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// `,`
    Comma,
    /// `;`
    Semicolon,
    /// A space.
    Space,
}

impl Separator {
    pub(super) fn byte(self) -> u8 {
        match self {
            Separator::Comma => b',',
            Separator::Semicolon => b';',
            Separator::Space => b' ',
        }
    }
}

/// What stands between the key and the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assign {
    /// `=`
    Equals,
    /// `,`
    Comma,
}

impl Assign {
    pub(super) fn byte(self) -> u8 {
        match self {
            Assign::Equals => b'=',
            Assign::Comma => b',',
        }
    }
}

/// How a secret, as text, becomes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretEncoding {
    /// The text's own bytes.
    Text,
    /// Base64, with or without padding.
    Base64,
    /// Hexadecimal, in either case.
    Hex,
    /// The text's own bytes after `&amp;`, `&lt;`, `&gt;` and quotes were unescaped.
    HtmlText,
}

/// Where the time of signing is, and how it is written.
#[derive(Clone, Debug)]
pub struct TimestampSettings<S = String> {
    /// Where.
    pub source: TimestampSource<S>,
    /// How.
    pub unit: TimestampUnit,
}

/// Where the time of signing is.
#[derive(Clone, Debug)]
pub enum TimestampSource<S = String> {
    /// In a header of its own.
    Header(S),
    /// In the field of this key, beside the signature.
    Field(S),
    /// In the JSON body, at this path: `meta.sent_at`. Costs a parse of the body.
    Body(S),
}

impl SecretEncoding {
    /// The key in a secret, after the prefix if it has it.
    pub(super) fn decode<'a>(self, secret: &'a Secret, prefix: &str) -> Result<Cow<'a, [u8]>, SettingsProblem> {
        let text = secret.value.expose();
        let text = text.strip_prefix(prefix).unwrap_or(text);
        let key = match self {
            SecretEncoding::Text => Cow::Borrowed(text.as_bytes()),
            SecretEncoding::HtmlText => Cow::Owned(unescape_html(text).into_bytes()),
            SecretEncoding::Base64 => {
                let key = BASE64_NOPAD.decode(text.trim_end_matches('=').as_bytes());
                Cow::Owned(key.map_err(|_| SettingsProblem::NotBase64 {
                    secret: secret.name.clone(),
                    after: if prefix.is_empty() { String::new() } else { format!(" after {prefix}") },
                })?)
            }
            SecretEncoding::Hex => {
                let key = HEXLOWER_PERMISSIVE.decode(text.as_bytes());
                Cow::Owned(key.map_err(|_| SettingsProblem::NotHex(secret.name.clone()))?)
            }
        };
        if key.is_empty() {
            return Err(SettingsProblem::EmptySecret(secret.name.clone()));
        }
        Ok(key)
    }
}

/// Undoes the five escapes that WordPress makes, in one pass: `&amp;lt;` becomes `&lt;`.
fn unescape_html(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = rest.split_once(';').and_then(|(entity, after)| {
            let character = match &entity[1..] {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                number => numbered(number)?,
            };
            Some((character, after))
        });
        match known {
            Some((character, after)) => {
                plain.push(character);
                rest = after;
            }
            None => {
                plain.push('&');
                rest = &rest[1..];
            }
        }
    }
    plain + rest
}

/// `#039`, `#x27` and the like, for the same five characters.
fn numbered(entity: &str) -> Option<char> {
    let number = entity.strip_prefix('#')?;
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok()?,
        None => number.parse().ok()?,
    };
    char::from_u32(code).filter(|character| "&<>\"'".contains(*character))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(encoding: SecretEncoding, prefix: &str, value: &str) -> Result<Vec<u8>, SettingsProblem> {
        encoding.decode(&Secret::new("main", value), prefix).map(Cow::into_owned)
    }

    #[test]
    fn secrets_become_keys() {
        assert_eq!(key(SecretEncoding::Text, "", "whsec_x"), Ok(b"whsec_x".to_vec()));
        assert_eq!(key(SecretEncoding::Base64, "whsec_", "whsec_c2Vj"), Ok(b"sec".to_vec()));
        assert_eq!(key(SecretEncoding::Base64, "whsec_", "c2VjcmV0MQ=="), Ok(b"secret1".to_vec()));
        assert_eq!(key(SecretEncoding::Base64, "", "c2VjcmV0MQ"), Ok(b"secret1".to_vec()));
        assert_eq!(key(SecretEncoding::Hex, "", "00Ff"), Ok(vec![0, 255]));
    }

    #[test]
    fn a_secret_that_is_no_key_is_named_but_not_shown() {
        let problem = key(SecretEncoding::Base64, "whsec_", "whsec_hunter*2").unwrap_err();
        let shown = problem.to_string();
        assert!(shown.contains("main") && shown.contains("after whsec_"), "{shown}");
        assert!(!shown.contains("hunter"), "{shown}");
        assert_eq!(key(SecretEncoding::Hex, "", "0g"), Err(SettingsProblem::NotHex("main".into())));
        let empty = Err(SettingsProblem::EmptySecret("main".into()));
        assert_eq!(key(SecretEncoding::Base64, "whsec_", "whsec_"), empty);
        assert_eq!(key(SecretEncoding::Text, "", ""), empty);
    }

    #[test]
    fn html_escapes_are_undone_once() {
        let unescaped = |text| String::from_utf8(key(SecretEncoding::HtmlText, "", text).unwrap()).unwrap();
        assert_eq!(unescaped("a&amp;b"), "a&b");
        assert_eq!(unescaped("a&b;c"), "a&b;c");
        assert_eq!(unescaped("&amp;lt;"), "&lt;");
        assert_eq!(unescaped("&#039;&#39;&#x27;&quot;&lt;&gt;&"), "'''\"<>&");
        assert_eq!(unescaped("&#65;&eacute;&é;"), "&#65;&eacute;&é;");
    }
}

//! Settings of an HMAC scheme, from the configuration or from a preset.

use std::borrow::Cow;

use data_encoding::{BASE64_NOPAD, HEXLOWER_PERMISSIVE};

use super::digest::{Algorithm, Encoding};
use super::freshness::TimestampUnit;
use super::problem::SettingsProblem;
use super::secret::Secret;

/// Settings of an HMAC scheme. `S` is `String` if they come from the configuration.
#[derive(Clone, Debug)]
pub struct HmacSettings<S = String> {
    pub header: SignatureHeader<S>,
    pub algorithm: Algorithm,
    pub encoding: Encoding,
    pub secret_encoding: SecretEncoding,
    /// Stripped from the secret before decoding, if present: `whsec_`.
    pub secret_prefix: Option<S>,
    /// Required prefix of a signature: `sha256=`.
    pub prefix: Option<S>,
    pub layout: Layout<S>,
    /// With placeholders `{body}`, `{timestamp}`, `{id}`, `{url}`, `{path}` and `{method}`.
    pub signed: S,
    /// Required if and only if the signed string contains `{timestamp}`.
    pub timestamp: Option<TimestampSettings<S>>,
    /// Header of the event id; required if the signed string contains `{id}`.
    pub id_header: Option<S>,
}

impl HmacSettings {
    /// HMAC-SHA256 of the body in lower-case hexadecimal, alone in this header.
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

#[derive(Clone, Debug)]
pub enum SignatureHeader<S = String> {
    One(S),
    /// Two names of one header: only the first that is present counts.
    FirstOf(S, S),
    /// Two signatures, by an old and a new secret: either may match.
    EitherOf(S, S),
}

/// Structure of the header's value.
#[derive(Clone, Debug)]
pub enum Layout<S = String> {
    /// The whole value, after the prefix, is the signature.
    Whole,
    /// A list of fields; those with the signature key are signatures, others are ignored.
    List {
        /// Between fields.
        separator: Separator,
        /// Between key and value.
        assign: Assign,
        signature_key: S,
    },
}

/// Separator between the fields of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// `,`
    Comma,
    /// `;`
    Semicolon,
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

/// Separator between key and value of a field.
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

/// How the text of a secret becomes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretEncoding {
    /// Bytes of the text.
    Text,
    /// With or without padding.
    Base64,
    /// Either case.
    Hex,
    /// Bytes of the text after unescaping `&amp;`, `&lt;`, `&gt;` and quotes.
    HtmlText,
}

/// Source and format of the signing time.
#[derive(Clone, Debug)]
pub struct TimestampSettings<S = String> {
    pub source: TimestampSource<S>,
    pub unit: TimestampUnit,
}

#[derive(Clone, Debug)]
pub enum TimestampSource<S = String> {
    Header(S),
    /// Field of the signature header with this key.
    Field(S),
    /// JSON path into the body, such as `meta.sent_at`. Requires parsing the body.
    Body(S),
}

impl SecretEncoding {
    /// Decodes the key of a secret, after the prefix if present.
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

/// Reverses the five escapes of WordPress in one pass: `&amp;lt;` becomes `&lt;`.
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

/// Numeric entities such as `#039` and `#x27`, for the same five characters.
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
    fn secrets_decode_to_keys() {
        assert_eq!(key(SecretEncoding::Text, "", "whsec_x"), Ok(b"whsec_x".to_vec()));
        assert_eq!(key(SecretEncoding::Base64, "whsec_", "whsec_c2Vj"), Ok(b"sec".to_vec()));
        assert_eq!(key(SecretEncoding::Base64, "whsec_", "c2VjcmV0MQ=="), Ok(b"secret1".to_vec()));
        assert_eq!(key(SecretEncoding::Base64, "", "c2VjcmV0MQ"), Ok(b"secret1".to_vec()));
        assert_eq!(key(SecretEncoding::Hex, "", "00Ff"), Ok(vec![0, 255]));
    }

    #[test]
    fn problem_names_the_secret_without_its_value() {
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
    fn html_escapes_are_reversed_once() {
        let unescaped = |text| String::from_utf8(key(SecretEncoding::HtmlText, "", text).unwrap()).unwrap();
        assert_eq!(unescaped("a&amp;b"), "a&b");
        assert_eq!(unescaped("a&b;c"), "a&b;c");
        assert_eq!(unescaped("&amp;lt;"), "&lt;");
        assert_eq!(unescaped("&#039;&#39;&#x27;&quot;&lt;&gt;&"), "'''\"<>&");
        assert_eq!(unescaped("&#65;&eacute;&é;"), "&#65;&eacute;&é;");
    }
}

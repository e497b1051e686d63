//! Form and percent encoding, on bytes: input need not be UTF-8.

use std::borrow::Cow;

/// Decoded pairs of a form or a query, in order. Empty segments are skipped; a segment without `=` is a name with an empty
/// value.
pub(crate) fn form_pairs(form: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    form.split(|byte| *byte == b'&').filter(|segment| !segment.is_empty()).map(|segment| {
        match segment.iter().position(|byte| *byte == b'=') {
            Some(at) => (decode_form(&segment[..at]), decode_form(&segment[at + 1..])),
            None => (decode_form(segment), Cow::Borrowed(&[][..])),
        }
    })
}

/// Decodes `+` as a space and `%XX` as a byte; a `%` without two hexadecimal digits is literal.
pub(super) fn decode_form(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => match escaped_byte(after) {
                Some(escaped) => {
                    rest = &after[2..];
                    escaped
                }
                None => b'%',
            },
            other => other,
        });
    }
    Cow::Owned(decoded)
}

/// Byte of the two hexadecimal digits after a `%`.
pub(super) fn escaped_byte(after_percent: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let [high, low, ..] = after_percent else { return None };
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

/// Escapes all bytes but letters, digits and those in `kept`.
pub(crate) fn percent_encode(text: &[u8], kept: &[u8], into: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.push('%');
            into.push(char::from(DIGITS[usize::from(byte >> 4)]));
            into.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

pub(super) fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_pairs_decode_bytes() {
        let pairs: Vec<_> = form_pairs(b"a=1&&b=%C3%AB+x&c&=d&e=%zz%4").collect();
        let expected: [(&[u8], &[u8]); 5] =
            [(b"a", b"1"), (b"b", "ë x".as_bytes()), (b"c", b""), (b"", b"d"), (b"e", b"%zz%4")];
        assert_eq!(pairs.len(), expected.len());
        for (pair, (name, value)) in pairs.iter().zip(expected) {
            assert_eq!((pair.0.as_ref(), pair.1.as_ref()), (name, value));
        }
    }

    #[test]
    fn percent_encoding_round_trips() {
        let every: Vec<u8> = (0..=255).collect();
        let mut encoded = String::new();
        percent_encode(&every, b"-_.", &mut encoded);
        assert!(encoded.is_ascii() && !encoded.contains(['+', ' ', '&', '=']));
        assert_eq!(decode_form(encoded.as_bytes()).as_ref(), every);
    }
}

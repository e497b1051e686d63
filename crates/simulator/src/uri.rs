//! Decoding of percent-encoded URLs and forms.

/// Percent-decodes; keeps a stray `%`, and replaces invalid UTF-8.
pub(crate) fn decode(segment: &str) -> String {
    let bytes = segment.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let escaped = (bytes[index] == b'%')
            .then(|| segment.get(index + 1..index + 3))
            .flatten()
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(escaped.unwrap_or(bytes[index]));
        index += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Percent-encodes everything but letters, digits and `-._~`.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// First value of `name` in a query string or form body.
pub(crate) fn form_value(form: &str, name: &str) -> Option<String> {
    form.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (form_decode(key) == name).then(|| form_decode(value))
    })
}

fn form_decode(text: &str) -> String {
    decode(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_once() {
        assert_eq!(decode("a%2Fb%3Fc%23d%25e%2E"), "a/b?c#d%e.");
        assert_eq!(decode("100%25%20ok"), "100% ok");
        assert_eq!(decode("%2525"), "%25");
        assert_eq!(decode("50%"), "50%");
        assert_eq!(decode("%zz+%+1"), "%zz+%+1");
        assert_eq!(decode("caf%C3%A9é"), "caféé");
    }

    #[test]
    fn form_values_decode_plus_and_percent() {
        let form = "grant_type=client_credentials&client_secret=a+b%2Bc&empty&x=";
        assert_eq!(form_value(form, "client_secret").as_deref(), Some("a b+c"));
        assert_eq!(form_value(form, "empty").as_deref(), Some(""));
        assert_eq!(form_value(form, "absent"), None);
    }
}

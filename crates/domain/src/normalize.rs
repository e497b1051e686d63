//! Normalizes email addresses and phone numbers, and hashes personal data.

use aws_lc_rs::digest::{SHA256, digest};

/// Trims and lower-cases an email address.
pub fn email(text: &str) -> String {
    text.trim().to_lowercase()
}

/// Formats a phone number as `+14155550123`. `region` is the country (`US`) of numbers without a country code. Text that
/// cannot be parsed is returned trimmed.
pub fn e164(text: &str, region: Option<&str>) -> String {
    let text = text.trim();
    let region = region.and_then(|region| region.to_ascii_uppercase().parse().ok());
    match phonenumber::parse(region, text) {
        Ok(number) => number.format().mode(phonenumber::Mode::E164).to_string(),
        Err(_) => text.to_owned(),
    }
}

/// A phone number with a country code as `+14155550123`, with its extension as `+14155550123;ext=7`. `None` for any other text, and for
/// a number of zeros alone.
pub fn international(text: &str) -> Option<String> {
    let parsed = phonenumber::parse(None, text.trim()).ok()?;
    let number = parsed.format().mode(phonenumber::Mode::E164).to_string();
    let digits = number.strip_prefix('+')?;
    let is_number = (7..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    // A country code has at most three digits.
    if !is_number || digits.bytes().skip(3).all(|byte| byte == b'0') {
        return None;
    }
    Some(match parsed.extension() {
        Some(extension) => format!("{number};ext={extension}"),
        None => number,
    })
}

/// Whether a text is the code of a country that phone numbers are known of, such as `US`.
pub fn is_region(text: &str) -> bool {
    text.to_ascii_uppercase().parse::<phonenumber::country::Id>().is_ok()
}

/// SHA-256 in hexadecimal.
pub fn sha256(text: &str) -> String {
    data_encoding::HEXLOWER.encode(digest(&SHA256, text.as_bytes()).as_ref())
}

/// MD5 in hexadecimal, for providers that use it as an id.
pub fn md5(text: &str) -> String {
    use md5::Digest;
    data_encoding::HEXLOWER.encode(&md5::Md5::digest(text.as_bytes()))
}

/// The first half of the SHA-256 of a normalized email address. Not keyed: another system can compute it, and so can everybody
/// who guesses the address.
pub fn email_hash(text: &str) -> String {
    let mut hash = sha256(&email(text));
    hash.truncate(32);
    hash
}

/// The same for a phone number.
pub fn phone_hash(text: &str, region: Option<&str>) -> String {
    let mut hash = sha256(&e164(text, region));
    hash.truncate(32);
    hash
}

/// True if the text looks like an email address. Tells addresses from ids; does not validate.
pub fn is_email(text: &str) -> bool {
    let text = text.trim();
    let plain = |part: &str| {
        !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '@' | '/'))
    };
    text.rsplit_once('@').is_some_and(|(local, domain)| plain(local) && plain(domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_contact_normalize_to_one_form() {
        assert_eq!(email("  Ada@Example.COM "), "ada@example.com");
        assert_eq!(email_hash(" ADA@example.com"), email_hash("ada@example.com"));
        for (text, region, number) in [
            ("(415) 555-0123", Some("us"), "+14155550123"),
            ("+44 20 7946 0958", None, "+442079460958"),
            ("020 7946 0958", Some("GB"), "+442079460958"),
            ("0049 30 901820", Some("GB"), "+4930901820"),
            ("call me", Some("US"), "call me"),
            ("555", None, "555"),
            ("415 555 0123", Some("Narnia"), "415 555 0123"),
        ] {
            assert_eq!(e164(text, region), number, "{text}");
        }
        assert_eq!(phone_hash("415 555 0123", Some("US")), phone_hash("+1 (415) 555-0123", None));
    }

    #[test]
    fn only_a_whole_number_with_a_country_code_is_international() {
        assert_eq!(international(" +1 (415) 555-0123 ").as_deref(), Some("+14155550123"));
        assert_eq!(international("+44 20 7946 0958").as_deref(), Some("+442079460958"));
        assert_eq!(international("+1 415 555 0123 ext. 7").as_deref(), Some("+14155550123;ext=7"));
        for text in
            ["", "+", "+1", "+49 ", "+1 n/a", "n/a", "555-0123", "+1 000 000 0000", "+49 000000", "+351 000 000 000"]
        {
            assert_eq!(international(text), None, "{text}");
        }
    }

    #[test]
    fn is_email_tells_addresses_from_ids() {
        assert!(is_email("ada@example.com") && is_email(" a@b "));
        for id in ["", "@", "a@", "@b", "evt_1", "<1@host>", "https://u@host/x", "two words@x"] {
            assert!(!is_email(id), "{id}");
        }
    }
}

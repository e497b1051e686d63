//! Masks personal data in text that is shown or logged.

/// Masks email addresses and phone numbers.
///
/// An address keeps its first letter and its domain (`a***@example.com`), a number its last two digits. False positives are
/// accepted: a long run of digits is masked even if it is no phone number, unless it is part of an identifier (a letter,
/// `_` or `-` directly before it).
pub fn text(input: &str) -> std::borrow::Cow<'_, str> {
    let bytes = input.as_bytes();
    if !bytes.contains(&b'@') && !input.contains("%40") && digits(bytes) < PHONE_DIGITS_MIN {
        return std::borrow::Cow::Borrowed(input);
    }
    std::borrow::Cow::Owned(phones(&emails(input)))
}

const PHONE_DIGITS_MIN: usize = 8;

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| b.is_ascii_digit()).count()
}

fn is_local(c: char) -> bool {
    c.is_alphanumeric()
        || matches!(
            c,
            '.' | '_'
                | '%'
                | '+'
                | '-'
                | '\''
                | '!'
                | '#'
                | '$'
                | '&'
                | '*'
                | '='
                | '?'
                | '^'
                | '`'
                | '{'
                | '|'
                | '}'
                | '~'
        )
}

fn emails(input: &str) -> String {
    let mut out = String::with_capacity(input.len());
    let mut rest = input;
    // `%40` is a percent-encoded `@`.
    while let Some((at, width)) = find_at(rest) {
        let local_start = rest[..at]
            .rfind(|c: char| !is_local(c))
            .map_or(0, |i| i + rest[i..].chars().next().map_or(1, char::len_utf8));
        let after = &rest[at + width..];
        let domain_end = after.find(|c: char| !(c.is_alphanumeric() || c == '.' || c == '-')).unwrap_or(after.len());
        let local = &rest[local_start..at];
        if local.is_empty() || domain_end == 0 {
            out.push_str(&rest[..at + width]);
        } else {
            out.push_str(&rest[..local_start]);
            out.extend(local.chars().take(1));
            out.push_str("***");
            out.push_str(&rest[at..at + width]);
            out.push_str(&after[..domain_end]);
        }
        rest = if local.is_empty() || domain_end == 0 { after } else { &after[domain_end..] };
    }
    out.push_str(rest);
    out
}

fn find_at(text: &str) -> Option<(usize, usize)> {
    let plain = text.find('@').map(|at| (at, 1));
    let coded = text.find("%40").map(|at| (at, 3));
    match (plain, coded) {
        (Some(a), Some(b)) => Some(if a.0 < b.0 { a } else { b }),
        (a, b) => a.or(b),
    }
}

fn phones(input: &str) -> String {
    let chars: Vec<char> = input.chars().collect();
    let mut out = String::with_capacity(input.len());
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        let starts = c == '+' || c == '(' || c.is_ascii_digit();
        let in_word = i > 0 && (chars[i - 1].is_alphanumeric() || matches!(chars[i - 1], '_' | '-' | '.' | ':'));
        if !starts || in_word {
            out.push(c);
            i += 1;
            continue;
        }
        let mut end = i;
        let mut last_digit = i;
        let mut count = 0;
        while end < chars.len()
            && (chars[end].is_ascii_digit() || matches!(chars[end], '+' | ' ' | '-' | '(' | ')' | '.' | '/'))
        {
            if chars[end].is_ascii_digit() {
                count += 1;
                last_digit = end;
            }
            end += 1;
        }
        let word_follows = chars.get(last_digit + 1).is_some_and(|c| c.is_alphabetic() || *c == '_' || *c == ':');
        let run = &chars[i..=last_digit.min(chars.len() - 1)];
        let is_other = || looks_like_time(run) || is_ip_address(run) || is_message_timestamp(run);
        if (PHONE_DIGITS_MIN..=16).contains(&count) && !word_follows && !is_other() {
            let tail: String = run.iter().filter(|c| c.is_ascii_digit()).skip(count - 2).collect();
            out.push_str("***");
            out.push_str(&tail);
        } else {
            out.extend(run);
        }
        i = last_digit.max(i) + 1;
    }
    out
}

/// Recognises dates such as `2026-11-15`, with or without a time. Unix times are not recognised.
fn looks_like_time(run: &[char]) -> bool {
    run.len() >= 10
        && run[..4].iter().all(char::is_ascii_digit)
        && run[4] == '-'
        && run[5..7].iter().all(char::is_ascii_digit)
        && run[7] == '-'
        && run[8..10].iter().all(char::is_ascii_digit)
}

/// Recognises IPv4 addresses: four numbers up to 255, without leading zeros.
fn is_ip_address(run: &[char]) -> bool {
    let text: String = run.iter().collect();
    text.parse::<std::net::Ipv4Addr>().is_ok()
}

/// Recognises the timestamps that identify messages in Slack: ten digits, a dot, six digits.
fn is_message_timestamp(run: &[char]) -> bool {
    let is_digits = |run: &[char]| run.iter().all(char::is_ascii_digit);
    run.len() == 17 && run[10] == '.' && is_digits(&run[..10]) && is_digits(&run[11..])
}

/// Masks emails and phone numbers in all strings of a JSON value, and replaces members whose names denote secrets.
pub fn value(input: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match input {
        Value::String(plain) => Value::String(text(plain).into_owned()),
        Value::Array(items) => Value::Array(items.iter().map(value).collect()),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), member(name, value))).collect())
        }
        Value::Number(number) if digits(number.to_string().as_bytes()) >= 16 => input.clone(),
        other => other.clone(),
    }
}

/// Masks the value of a member with this name, as [`value`] does with the members of an object.
pub fn member(name: &str, input: &serde_json::Value) -> serde_json::Value {
    match is_secret_name(name) {
        true => serde_json::Value::String("***".into()),
        false => mask_member(name, input),
    }
}

/// Masks the value of one field: as [`value`] does, and names keep their first letter.
pub fn field(name: &str, input: &serde_json::Value) -> serde_json::Value {
    let is_name = name.to_lowercase().contains("name");
    match input {
        serde_json::Value::String(text) if is_name && !is_secret_name(name) => {
            serde_json::Value::String(text.chars().take(1).chain("***".chars()).collect())
        }
        _ => member(name, input),
    }
}

fn mask_member(name: &str, member: &serde_json::Value) -> serde_json::Value {
    let lower = name.to_lowercase();
    match member {
        serde_json::Value::Number(_) | serde_json::Value::String(_)
            if lower.contains("phone") || lower.contains("mobile") =>
        {
            serde_json::Value::String(match member.to_string().trim_matches('"') {
                short if short.chars().count() <= 4 => "***".into(),
                long => format!("***{}", long.chars().skip(long.chars().count() - 2).collect::<String>()),
            })
        }
        _ => value(member),
    }
}

/// True if a field of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    // Header names have dashes where field names have underscores.
    let lower = name.to_lowercase().replace('-', "_");
    [
        "password",
        "passwd",
        "secret",
        "token",
        "authorization",
        "api_key",
        "apikey",
        "access_key",
        "private_key",
        "signature",
        "cookie",
        "google_key",
    ]
    .iter()
    .any(|word| lower.contains(word))
}

/// Characters of a sample.
const SAMPLE_CHARS_MAX: usize = 60;

/// A value of the field at this path as an example for operators: short, and nothing of a person in it. Of a field whose name
/// denotes personal data only the form is shown: `Ada 7` becomes `Aaa 9`.
pub fn sample(path: &str, value: &serde_json::Value) -> String {
    use serde_json::Value;
    let shown = match value {
        _ if is_secret_name(path) => "***".to_owned(),
        Value::String(text) if is_personal_path(path) => pattern(text),
        Value::Number(number) if is_personal_path(path) => pattern(&number.to_string()),
        Value::String(plain) => text(plain).into_owned(),
        Value::Array(items) => match items.first() {
            Some(first) => format!("[{}{}]", sample(path, first), if items.len() > 1 { ", …" } else { "" }),
            None => "[]".to_owned(),
        },
        Value::Object(members) => {
            let member = |(name, member): (&String, &Value)| {
                format!("{}: {}", text(name), sample(&format!("{path}.{name}"), member))
            };
            let members: Vec<String> = members.iter().take(4).map(member).collect();
            format!("{{{}}}", members.join(", "))
        }
        other => text(&other.to_string()).into_owned(),
    };
    let shown: String = shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match shown.char_indices().nth(SAMPLE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

/// Letters as `A` and `a`, digits as `9`, everything else as it is.
pub fn pattern(text: &str) -> String {
    let form = |c: char| match c {
        c if c.is_numeric() => '9',
        c if c.is_uppercase() => 'A',
        c if c.is_alphabetic() => 'a',
        c => c,
    };
    text.chars().take(SAMPLE_CHARS_MAX + 1).map(form).collect()
}

/// True if the path is that of an identity field, or a name in it denotes personal data. Errs on that side: the name of a
/// company counts.
pub fn is_personal_path(path: &str) -> bool {
    const PARTS: [&str; 16] = [
        "name", "mail", "phone", "mobile", "address", "street", "birth", "person", "contact", "gender", "passport",
        "iban", "message", "comment", "note", "url",
    ];
    const WORDS: [&str; 11] = ["identity", "ip", "dob", "ssn", "tel", "fax", "zip", "city", "postcode", "text", "uri"];
    let lower = path.to_lowercase();
    PARTS.iter().any(|part| lower.contains(part))
        || lower.split(|c: char| !c.is_alphanumeric()).any(|word| WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn samples_show_the_form_of_personal_values_and_the_text_of_others() {
        for (path, value, expected) in [
            ("attributes.first_name", json!("Ada Lovelace"), "Aaa Aaaaaaaa"),
            ("identity.external_id", json!("k-17"), "a-99"),
            ("FirstName", json!("Jürgen"), "Aaaaaa"),
            ("phone", json!(14155550123u64), "99999999999"),
            ("plan", json!("premium"), "premium"),
            ("plan", json!("ask ada@example.com"), "ask a***@example.com"),
            ("api_token", json!("x"), "***"),
            ("items", json!([{"sku": "a-1", "email": "a@b.c"}, 2]), "[{sku: a-1, email: a@a.a}, …]"),
            ("description", json!("a\nb"), "a b"),
            ("shipping", json!(true), "true"),
        ] {
            assert_eq!(sample(path, &value), expected, "{path}");
        }
        assert_eq!(sample("plan", &json!("x".repeat(200))).chars().count(), SAMPLE_CHARS_MAX + 1);
    }

    #[test]
    fn emails_and_phone_numbers_are_masked() {
        for (input, expected) in [
            ("mail ada.lovelace+x@example.com now", "mail a***@example.com now"),
            ("a@b.c,d@e.f", "a***@b.c,d***@e.f"),
            ("Lead/External/ada%40example.com", "Lead/External/a***%40example.com"),
            ("<ada@example.com>", "<a***@example.com>"),
            ("call +1 (415) 555-0123 please", "call ***23 please"),
            ("+14155550123", "***23"),
            ("order 12345 at 12:30", "order 12345 at 12:30"),
            ("2026-11-15T10:00:00Z", "2026-11-15T10:00:00Z"),
            ("job_12345678901", "job_12345678901"),
            ("from 192.168.100.200 to 10.11.12.133.", "from 192.168.100.200 to 10.11.12.133."),
            ("message 1731931234.123456 in C1", "message 1731931234.123456 in C1"),
            ("415.555.0123 or 01.23.45.67.89", "***23 or ***89"),
            ("192.168.100.300", "***00"),
            ("@handle", "@handle"),
            ("no one", "no one"),
            ("dupe: Jürgen@bücher.example", "dupe: J***@bücher.example"),
        ] {
            assert_eq!(text(input), expected, "{input}");
        }
    }

    #[test]
    fn json_values_are_masked_recursively() {
        let masked = value(
            &json!({"email": "ada@example.com", "n": [1, "b@c.d"], "api_token": "x", "X-Access-Key": "k", "phone": 14155550123u64}),
        );
        assert_eq!(
            masked,
            json!({"email": "a***@example.com", "n": [1, "b***@c.d"], "api_token": "***", "X-Access-Key": "***", "phone": "***23"})
        );
    }

    proptest::proptest! {
        #[test]
        fn no_email_address_survives(local in "[a-z][a-z0-9._+]{2,12}", domain in "[a-z]{1,8}\\.(com|org)", before in "[ ,:;<(]{0,3}", after in "[ ,;>)]{0,3}") {
            let address = format!("{local}@{domain}");
            let masked = text(&format!("{before}{address}{after}")).into_owned();
            proptest::prop_assert!(!masked.contains(&address), "{}", masked);
        }

        #[test]
        fn text_never_panics(input in "\\PC{0,80}") {
            let _ = text(&input);
        }
    }
}

//! The company behind an email address, from its domain alone.

use serde_json::{Map, Value, json};

use super::LookupResult;
use crate::event::scalar;

/// Domains of mailbox providers. Everybody can have an address there.
const FREE_MAIL: &str = include_str!("free_mail.txt");

/// Second-level names under which countries register companies and institutions, as in `example.co.uk`.
const SECOND_LEVEL: [&str; 24] = [
    "ac", "asn", "co", "com", "edu", "firm", "gen", "go", "gob", "gouv", "gov", "gv", "id", "ind", "ltd", "mil", "ne",
    "net", "nhs", "or", "org", "plc", "sch", "web",
];

/// Names of the fields that are found.
pub const COMPANY_FIELDS: [&str; 2] = ["domain", "name"];

/// Labels and the whole name, by RFC 1035.
const LABEL_BYTES_MAX: usize = 63;
const DOMAIN_BYTES_MAX: usize = 253;

/// The result of `enrich.company`, from its rendered parameters and the email address of the event. Addresses of a mailbox provider
/// have no company.
pub fn company(with: &Value, email: Option<&str>) -> LookupResult {
    let given = |name: &str| scalar(&with[name]).filter(|text| !text.trim().is_empty());
    let text = given("domain").or_else(|| given("email")).or_else(|| email.map(str::to_owned));
    let Some(domain) = text.as_deref().and_then(domain_of) else { return LookupResult::Absent };
    let registered = registered(&domain);
    if is_free_mail(&domain, registered, &with["free_mail"]) {
        return LookupResult::Absent;
    }
    let mut fields = Map::from_iter([("domain".to_owned(), json!(registered))]);
    fields.extend(name_of(registered).map(|name| ("name".to_owned(), Value::String(name))));
    LookupResult::Found(fields)
}

/// The domain of an address or of a website, in lower case; `None` if it is none.
fn domain_of(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.rsplit_once('@').map_or(text, |(_, domain)| domain);
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let text = text.split(['/', '?', '#', ':', '>']).next().unwrap_or_default().trim_end_matches('.');
    let domain = text.to_lowercase();
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.chars().all(|letter| letter.is_alphanumeric() || letter == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_domain = domain.len() <= DOMAIN_BYTES_MAX
        && domain.contains('.')
        && domain.split('.').all(is_label)
        // An IP address has no company.
        && domain.rsplit('.').next().is_some_and(|last| last.chars().any(char::is_alphabetic));
    is_domain.then_some(domain)
}

/// The part that was registered: two labels, or three where the country has a second level.
fn registered(domain: &str) -> &str {
    let labels: Vec<&str> = domain.split('.').collect();
    let count = match labels.as_slice() {
        [_, .., second, last] if last.len() == 2 && SECOND_LEVEL.contains(second) => 3,
        _ => 2,
    };
    let length = labels.iter().rev().take(count).map(|label| label.len() + 1).sum::<usize>() - 1;
    domain.get(domain.len().saturating_sub(length)..).unwrap_or(domain)
}

fn is_free_mail(domain: &str, registered: &str, added: &Value) -> bool {
    let is = |listed: &str| listed == domain || listed == registered;
    let added = match added {
        Value::Array(listed) => listed.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut added = added.iter().filter_map(Value::as_str);
    FREE_MAIL.lines().any(is) || added.any(|listed| is(&listed.trim().to_lowercase()))
}

/// A guess: `rivera-labs.com` is "Rivera Labs". An encoded international name has none.
fn name_of(registered: &str) -> Option<String> {
    let label = registered.split('.').next().filter(|label| !label.starts_with("xn--"))?;
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next()?;
        Some(first.to_uppercase().chain(letters).collect::<String>())
    };
    let words: Vec<String> = label.split('-').filter_map(word).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(email: &str) -> Value {
        company(&json!({}), Some(email)).output()
    }

    #[test]
    fn company_follows_from_the_domain_of_the_address() {
        for (email, domain, name) in [
            ("alex@rivera-labs.com", "rivera-labs.com", Some("Rivera Labs")),
            ("Ada <ada@Analytical.CO.UK>", "analytical.co.uk", Some("Analytical")),
            ("x@mail.eu.acme.io", "acme.io", Some("Acme")),
            ("x@team.acme.com.au.", "acme.com.au", Some("Acme")),
            ("x@co.uk", "co.uk", Some("Co")),
            ("x@müller.de", "müller.de", Some("Müller")),
            ("x@xn--mller-kva.de", "xn--mller-kva.de", None),
        ] {
            let mut expected = json!({ "found": true, "domain": domain });
            expected.as_object_mut().unwrap().extend(name.map(|name| ("name".to_owned(), json!(name))));
            assert_eq!(of(email), expected, "{email}");
        }
        let website = company(&json!({ "domain": "https://www.acme.io/about?x=1" }), Some("x@gmail.com"));
        assert_eq!(website.output()["domain"], "acme.io");
    }

    #[test]
    fn free_mail_and_what_is_no_domain_have_no_company() {
        let long = format!("x@{}.com", "a".repeat(64));
        for email in ["x@gmail.com", "x@GoogleMail.com", "x@mail.yahoo.co.uk", "x@localhost", "x@10.0.0.1", "x@-a.com"]
        {
            assert_eq!(of(email), json!({ "found": false }), "{email}");
        }
        assert_eq!(of(&long), json!({ "found": false }));
        assert_eq!(of(""), json!({ "found": false }));
        assert_eq!(company(&json!({}), None), LookupResult::Absent);
    }

    #[test]
    fn list_of_free_mail_can_be_extended() {
        let with = json!({ "free_mail": ["School.example", "campus.example"] });
        assert_eq!(company(&with, Some("kid@mail.school.example")), LookupResult::Absent);
        assert_ne!(company(&with, Some("kid@acme.io")), LookupResult::Absent);
        assert_eq!(company(&json!({ "free_mail": "acme.io" }), Some("x@acme.io")), LookupResult::Absent);
    }

    #[test]
    fn free_mail_list_is_sorted_and_in_normal_form() {
        let domains: Vec<&str> = FREE_MAIL.lines().collect();
        assert!(domains.is_sorted() && domains.len() > 200);
        for domain in domains {
            assert_eq!(domain_of(domain).as_deref(), Some(domain));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,80}") {
            let _ = company(&json!({}), Some(&text));
        }
    }
}

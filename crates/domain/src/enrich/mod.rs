//! Enrichment: what is looked up about an event, and what came of it.
//!
//! A lookup only reads. It may fail for many reasons, none of which is the lead's: a failed lookup is a warning.

mod company;
mod gate;
mod geo;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::event::{LossCode, scalar};
use crate::path::Path;
use crate::unit;
pub use company::{COMPANY_FIELDS, company};
pub use gate::{LookupAdmission, LookupGate};
pub use geo::{geo_field_names, geo_fields};

/// Bytes of the fields that one lookup leaves, as JSON.
pub const OUTPUT_BYTES_MAX: usize = 16 * 1024;
/// Time that one HTTP lookup may take, with its wait for a free place.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// Names that every output of a lookup has, so that no field can have them.
pub const RESERVED: [&str; 2] = ["found", "warning"];

const TIMEOUT: Duration = Duration::from_secs(2);
const CACHE: Duration = Duration::from_secs(24 * 3600);
const NEGATIVE_CACHE: Duration = Duration::from_secs(10 * 60);

/// A lookup that is performed outside the run.
#[derive(Clone, Debug)]
pub enum Lookup {
    Geo(GeoLookup),
    Http(Box<HttpLookup>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeoLookup {
    /// Path of the database, as configured.
    pub database: String,
    pub address: IpAddr,
    /// Language of names, such as `en`.
    pub language: String,
}

#[derive(Clone)]
pub struct HttpLookup {
    pub destination: Arc<str>,
    /// Parameters of `http.request`. They hold secrets and personal data.
    pub request: Value,
    /// Names in the output, with their paths in the body of the response.
    pub fields: Vec<(String, Path)>,
    pub timeout: Duration,
    /// How long an answer is used again; zero for never.
    pub cache: Duration,
    /// The same for an answer without an entry, and for a rejected request.
    pub negative_cache: Duration,
    /// For the headers of the request.
    pub effect_key: String,
    pub traceparent: String,
}

/// Omits the request.
impl fmt::Debug for HttpLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLookup")
            .field("destination", &self.destination)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// What a lookup came to.
#[derive(Clone, Debug, PartialEq)]
pub enum LookupResult {
    Found(Map<String, Value>),
    /// There is no entry.
    Absent,
    Failed(LookupFailure),
}

/// Why a lookup failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupFailure {
    pub code: LossCode,
    /// For an operator. It may quote the destination.
    pub message: String,
}

impl LookupFailure {
    pub fn new(code: LossCode, message: impl Into<String>) -> LookupFailure {
        LookupFailure { code, message: message.into() }
    }
}

impl LookupResult {
    pub fn failed(code: LossCode, message: impl Into<String>) -> LookupResult {
        LookupResult::Failed(LookupFailure::new(code, message))
    }

    /// The fields that were found. Too many of them are a failure: every output is stored with its job.
    pub fn of_fields(fields: Map<String, Value>) -> LookupResult {
        if fields.is_empty() {
            return LookupResult::Absent;
        }
        match serde_json::to_string(&fields).map_or(usize::MAX, |text| text.len()) {
            0..=OUTPUT_BYTES_MAX => LookupResult::Found(fields),
            bytes => LookupResult::failed(
                LossCode::LookupFailed,
                format!("the chosen fields have {bytes} bytes; {OUTPUT_BYTES_MAX} are allowed"),
            ),
        }
    }

    /// The output of the step: `found`, then the fields or the warning.
    pub fn output(&self) -> Value {
        match self {
            LookupResult::Found(fields) => {
                let mut output = Map::from_iter([("found".to_owned(), Value::Bool(true))]);
                output.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
                Value::Object(output)
            }
            LookupResult::Absent => json!({ "found": false }),
            LookupResult::Failed(failure) => {
                json!({ "found": false, "warning": { "code": failure.code, "message": failure.message } })
            }
        }
    }

    pub fn failure(&self) -> Option<&LookupFailure> {
        match self {
            LookupResult::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// As a metric label.
    pub fn as_str(&self) -> &'static str {
        match self {
            LookupResult::Found(_) => "found",
            LookupResult::Absent => "absent",
            LookupResult::Failed(failure) => failure.code.as_str(),
        }
    }
}

impl GeoLookup {
    /// From the rendered parameters of `enrich.geoip`. `Err` is the result if there is nothing to look up.
    pub fn new(with: &Value) -> Result<GeoLookup, LookupResult> {
        let Some(text) = scalar(&with["ip"]).filter(|text| !text.trim().is_empty()) else {
            return Err(LookupResult::Absent);
        };
        let Some(address) = address(&text) else {
            return Err(LookupResult::failed(LossCode::NotAnAddress, "`ip` is not an IP address"));
        };
        let text = |name: &str| with[name].as_str().map(str::to_owned);
        Ok(GeoLookup {
            database: text("database").unwrap_or_default(),
            address,
            language: text("language").unwrap_or_else(|| "en".to_owned()),
        })
    }
}

/// An address as senders write it: with a port, in brackets, with a zone, or as the first one of a list (`X-Forwarded-For`).
fn address(text: &str) -> Option<IpAddr> {
    let first = text.split(',').next().unwrap_or_default().trim();
    let port = || first.parse().ok().map(|address: std::net::SocketAddr| address.ip());
    let inside = || first.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let without_zone = || first.split_once('%')?.0.parse().ok();
    let address: IpAddr = first.parse().ok().or_else(port).or_else(inside).or_else(without_zone)?;
    Some(address.to_canonical())
}

impl HttpLookup {
    /// From the rendered parameters of `enrich.http`. `Err` is the result if there is nothing to look up.
    pub fn new(destination: &Arc<str>, with: &Value) -> Result<HttpLookup, LookupResult> {
        let invalid = |message: String| LookupResult::failed(LossCode::LookupFailed, message);
        let duration = |name: &str, default: Duration| match &with[name] {
            Value::Null => Ok(default),
            given => given
                .as_str()
                .and_then(|text| unit::duration(text).ok())
                .ok_or_else(|| invalid(format!("`{name}` must be a duration"))),
        };
        let mut fields = Vec::new();
        for (name, path) in with["fields"].as_object().into_iter().flatten() {
            let path = path.as_str().and_then(Path::parse);
            let path = path.ok_or_else(|| invalid(format!("`fields.{name}` must be a path into the response")))?;
            fields.push((name.clone(), path));
        }
        let mut request = Map::new();
        for name in ["url", "headers", "query", "json"] {
            request.extend(with.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        let method = with["method"].as_str().unwrap_or("GET");
        request.extend([
            ("method".to_owned(), method.into()),
            // A lookup changes nothing at the destination, whatever its method.
            ("class".to_owned(), "natural".into()),
            ("accept_status".to_owned(), json!([404])),
        ]);
        Ok(HttpLookup {
            destination: destination.clone(),
            request: Value::Object(request),
            fields,
            timeout: duration("timeout", TIMEOUT)?.min(TIMEOUT_MAX),
            cache: duration("cache", CACHE)?,
            negative_cache: duration("negative_cache", NEGATIVE_CACHE)?,
            effect_key: String::new(),
            traceparent: String::new(),
        })
    }

    /// The chosen fields of a response: the output of `http.request`. A status of 404 and a body without any of them have no entry.
    pub fn read(&self, response: &Value) -> LookupResult {
        if response["status"] == 404 {
            return LookupResult::Absent;
        }
        let body = &response["body"];
        let found = |(name, path): &(String, Path)| {
            let value = path.find(body).filter(|value| !value.is_null())?;
            Some((name.clone(), value.clone()))
        };
        LookupResult::of_fields(self.fields.iter().filter_map(found).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_senders_write_them() {
        for (text, expected) in [
            ("203.0.113.7", Some("203.0.113.7")),
            (" 203.0.113.7, 10.0.0.1 ", Some("203.0.113.7")),
            ("203.0.113.7:4711", Some("203.0.113.7")),
            ("[2001:db8::7]:443", Some("2001:db8::7")),
            ("[2001:db8::7]", Some("2001:db8::7")),
            ("fe80::1%eth0", Some("fe80::1")),
            ("::ffff:203.0.113.7", Some("203.0.113.7")),
            ("unknown", None),
            ("203.0.113.700", None),
        ] {
            assert_eq!(address(text), expected.map(|text| text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn lookup_without_an_address_is_absent_and_a_wrong_one_is_a_warning() {
        let lookup = |ip: Value| GeoLookup::new(&json!({ "database": "x", "ip": ip }));
        assert_eq!(lookup(Value::Null), Err(LookupResult::Absent));
        assert_eq!(lookup(json!(" ")), Err(LookupResult::Absent));
        let wrong = lookup(json!("office")).unwrap_err();
        assert_eq!(wrong.output()["warning"]["code"], "not-an-address");
        assert!(!wrong.output().to_string().contains("office"), "the value may be personal data");
    }

    fn http(with: Value) -> HttpLookup {
        HttpLookup::new(&"profiles".into(), &with).unwrap()
    }

    #[test]
    fn chosen_fields_are_taken_and_the_rest_is_left_out() {
        let lookup = http(json!({ "url": "/p", "fields": { "size": "company.size", "title": "role[0]" } }));
        let body = json!({ "company": { "size": 40 }, "role": ["CTO"], "salary": 1 });
        let found = lookup.read(&json!({ "status": 200, "body": body }));
        assert_eq!(found.output(), json!({ "found": true, "size": 40, "title": "CTO" }));
        for body in [json!({}), json!(null), json!("no JSON"), json!({ "company": { "size": null } })] {
            assert_eq!(lookup.read(&json!({ "status": 200, "body": body })), LookupResult::Absent);
        }
        let absent = json!({ "status": 404, "body": { "company": { "size": 1 } } });
        assert_eq!(lookup.read(&absent), LookupResult::Absent);
    }

    #[test]
    fn output_is_bounded() {
        let lookup = http(json!({ "url": "/p", "fields": { "text": "text" } }));
        let result = lookup.read(&json!({ "status": 200, "body": { "text": "x".repeat(OUTPUT_BYTES_MAX) } }));
        assert_eq!(result.failure().map(|failure| failure.code), Some(LossCode::LookupFailed));
    }

    #[test]
    fn deadline_is_bounded_and_a_post_is_a_read() {
        let lookup = http(json!({ "url": "/p", "method": "POST", "json": {"a": 1}, "timeout": "5m", "cache": "0s" }));
        assert_eq!((lookup.timeout, lookup.cache), (TIMEOUT_MAX, Duration::ZERO));
        assert_eq!(lookup.request["class"], "natural");
        assert!(!format!("{lookup:?}").contains("/p"));
    }
}

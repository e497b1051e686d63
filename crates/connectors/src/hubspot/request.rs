//! Builds the requests from the step's settings and the destination. Pure.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use sluice_domain::destination::{HubspotAuth, HubspotDestination};
use sluice_domain::failure_rules::{FailureRule, FailureTable};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::url::percent_encode;
use sluice_domain::verify::SecretValue;
use url::Url;

use super::response;
use super::settings::{AssociateSettings, Settings};
use crate::outbound::{AddressScope, Request};
use crate::quota::QuotaReading;
use crate::token::{GrantRequest, Tokens};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const UNESCAPED_IN_ID: &[u8] = b"-_~";
const TOKEN_PATH: &str = "/oauth/v1/token";

/// Maximum records in one call.
pub(crate) const BATCH_MAX: usize = 100;

/// HubSpot account with parsed settings.
#[derive(Debug)]
pub(crate) struct Target {
    base_url: String,
    version: Version,
    pub(crate) host: String,
    pub(crate) tokens: Tokens,
    pub(crate) rules: FailureTable,
    pub(crate) quota: QuotaReading,
    /// Redacted from every message about this destination.
    pub(crate) secrets: Vec<SecretValue>,
}

/// Version of the API. The bodies are the same; the paths differ.
#[derive(Debug)]
enum Version {
    /// `v3`, and `v4` for associations.
    Classic,
    /// Such as `2026-03`.
    Dated(String),
}

/// How a record is addressed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Address<'a> {
    /// By the step's id property.
    Property,
    /// By HubSpot's own id.
    Record(&'a str),
}

impl Target {
    /// Parses the settings; the error names the invalid key.
    pub(crate) fn new(destination: &HubspotDestination, own_rules: &[FailureRule]) -> Result<Target, String> {
        let base_url = destination.base_url.trim_end_matches('/');
        let url = Url::parse(base_url).map_err(|error| format!("base_url: is not a URL: {error}"))?;
        let user = !url.username().is_empty() || url.password().is_some();
        if user || !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
            return Err("base_url: must be https:// and a host, such as https://api.hubapi.com".into());
        }
        let (tokens, secrets) = match &destination.auth {
            HubspotAuth::Token(token) => (Tokens::configured(token, response::grant)?, vec![token.clone()]),
            HubspotAuth::RefreshToken { client_id, client_secret, refresh_token } => {
                let fields = [
                    ("grant_type", "refresh_token"),
                    ("client_id", client_id),
                    ("client_secret", client_secret.expose()),
                ];
                let grant_request = GrantRequest::form(&fields).with_refresh_token(Some(refresh_token.clone()));
                let tokens = Tokens::endpoint(&format!("{base_url}{TOKEN_PATH}"), grant_request, response::grant)?;
                (tokens, vec![client_secret.clone(), refresh_token.clone()])
            }
        };
        Ok(Target {
            base_url: base_url.to_owned(),
            version: Version::parse(&destination.api_version)?,
            host: url.host_str().unwrap_or_default().to_owned(),
            tokens,
            rules: response::SHIPPED_RULES.behind(own_rules),
            quota: QuotaReading::default(),
            secrets,
        })
    }

    /// URL of an object type, without a trailing slash.
    fn object_url(&self, object: &str) -> String {
        match &self.version {
            Version::Classic => format!("{}/crm/v3/objects/{object}", self.base_url),
            Version::Dated(date) => format!("{}/crm/objects/{date}/{object}", self.base_url),
        }
    }

    fn association_url(&self, settings: &AssociateSettings<'_>) -> String {
        let mut url = match &self.version {
            Version::Classic => format!("{}/crm/v4/objects/{}/", self.base_url, settings.from_object),
            Version::Dated(date) => format!("{}/crm/objects/{date}/{}/", self.base_url, settings.from_object),
        };
        percent_encode(&settings.from, UNESCAPED_IN_ID, &mut url);
        url.push_str("/associations/");
        if settings.label.is_none() {
            url.push_str("default/");
        }
        url.push_str(&settings.to_object);
        url.push('/');
        percent_encode(&settings.to, UNESCAPED_IN_ID, &mut url);
        url
    }

    fn record_url(&self, settings: &Settings<'_>, address: Address<'_>) -> String {
        let mut url = self.object_url(&settings.object);
        url.push('/');
        match address {
            Address::Record(id) => percent_encode(id, UNESCAPED_IN_ID, &mut url),
            Address::Property => {
                percent_encode(&settings.id, UNESCAPED_IN_ID, &mut url);
                if let Some(property) = settings.id_property() {
                    url.push_str("?idProperty=");
                    url.push_str(property);
                }
            }
        }
        url
    }

    fn request(&self, method: Method, url: &str, body: Option<&Value>, head: Head<'_>) -> Result<Request, Failure> {
        let url = Url::parse(url).map_err(|error| {
            Failure::new(FailureClass::Mapping, "invalid-request", format!("Cannot build the record URL: {error}."))
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(AUTHORIZATION, head.authorization);
        if let Some(traceparent) = head.traceparent.and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(TRACEPARENT, traceparent);
        }
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        Ok(Request { method, url, headers, body, scope: AddressScope::Anywhere })
    }
}

impl Version {
    fn parse(text: &str) -> Result<Version, String> {
        let digits = |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.split_once('-') {
            None if text == "v3" => Ok(Version::Classic),
            Some((year, month)) if digits(year, 4) && digits(month, 2) => Ok(Version::Dated(text.to_owned())),
            _ => Err(format!("api_version: `{text}` is not v3 or a version such as 2026-03")),
        }
    }
}

/// Headers that differ from call to call.
#[derive(Clone, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) authorization: HeaderValue,
    pub(crate) traceparent: Option<&'a str>,
}

/// Upserts up to [`BATCH_MAX`] records of one object type in one call. Each has a trace id, by which its part of the response
/// is found.
pub(crate) fn batch(records: &[(&Settings<'_>, &str)], target: &Target, head: Head<'_>) -> Result<Request, Failure> {
    debug_assert!(records.len() <= BATCH_MAX);
    let object = records.first().map_or("", |(settings, _)| &settings.object);
    let inputs: Vec<Value> = records
        .iter()
        .map(|(settings, trace_id)| {
            json!({
                "id": settings.id,
                "idProperty": settings.id_property,
                "properties": properties(settings),
                "objectWriteTraceId": trace_id,
            })
        })
        .collect();
    let url = format!("{}/batch/upsert", target.object_url(object));
    target.request(Method::POST, &url, Some(&json!({"inputs": inputs})), head)
}

pub(crate) fn create(settings: &Settings<'_>, target: &Target, head: Head<'_>) -> Result<Request, Failure> {
    let associations: Vec<Value> = settings
        .associations
        .iter()
        .map(|association| json!({"to": {"id": association.to}, "types": [association.label]}))
        .collect();
    let mut properties = properties(settings);
    if let Some(property) = settings.id_property() {
        properties.insert(property.to_owned(), settings.id.as_ref().into());
    }
    let body = json!({"properties": properties, "associations": associations});
    target.request(Method::POST, &target.object_url(&settings.object), Some(&body), head)
}

pub(crate) fn update(
    settings: &Settings<'_>,
    target: &Target,
    address: Address<'_>,
    head: Head<'_>,
) -> Result<Request, Failure> {
    let body = json!({"properties": properties(settings)});
    target.request(Method::PATCH, &target.record_url(settings, address), Some(&body), head)
}

/// Request for the record by its id property, with the properties that the step writes. Not a search: its index lags.
pub(crate) fn read(settings: &Settings<'_>, target: &Target, head: Head<'_>) -> Result<Request, Failure> {
    let mut url = target.record_url(settings, Address::Property);
    if !settings.properties.is_empty() {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str("properties=");
        for (index, (name, _)) in settings.properties.iter().enumerate() {
            if index > 0 {
                url.push_str("%2C");
            }
            percent_encode(name, UNESCAPED_IN_ID, &mut url);
        }
    }
    target.request(Method::GET, &url, None, head)
}

pub(crate) fn associate(settings: &AssociateSettings<'_>, target: &Target, head: Head<'_>) -> Result<Request, Failure> {
    let body = settings.label.as_ref().map(|label| json!([label]));
    target.request(Method::PUT, &target.association_url(settings), body.as_ref(), head)
}

fn properties(settings: &Settings<'_>) -> Map<String, Value> {
    settings.properties.iter().map(|(name, value)| ((*name).to_owned(), value.as_ref().into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::bearer;

    fn target(api_version: &str) -> Target {
        let auth = HubspotAuth::Token("pat-na1-hunter2".into());
        let (base_url, api_version) = ("https://api.hubapi.com/".into(), api_version.into());
        Target::new(&HubspotDestination { base_url, api_version, auth }, &[]).unwrap()
    }

    fn head() -> Head<'static> {
        Head { authorization: bearer("t").unwrap(), traceparent: Some("00-ab-cd-01") }
    }

    fn body(request: &Request) -> Value {
        serde_json::from_slice(&request.body).unwrap()
    }

    #[test]
    fn requests_follow_the_published_description() {
        let with = json!({
            "object": "contacts", "id_property": "lead_key", "id": "a.b/c?d ü",
            "properties": {"firstname": "Ö", "score": 7, "phone": null},
        });
        let settings = Settings::read(&with).unwrap();
        let target = target("v3");
        let request = batch(&[(&settings, "effect-1")], &target, head()).unwrap();
        assert_eq!(request.method, Method::POST);
        assert_eq!(request.url.as_str(), "https://api.hubapi.com/crm/v3/objects/contacts/batch/upsert");
        let properties = json!({"firstname": "Ö", "score": "7", "phone": ""});
        let input = json!({
            "id": "a.b/c?d ü", "idProperty": "lead_key", "properties": properties, "objectWriteTraceId": "effect-1",
        });
        assert_eq!(body(&request), json!({"inputs": [input]}));
        assert_eq!(request.headers[CONTENT_TYPE], "application/json");
        assert_eq!(request.headers["traceparent"], "00-ab-cd-01");
        assert!(request.headers[AUTHORIZATION].is_sensitive());

        let request = update(&settings, &target, Address::Property, head()).unwrap();
        assert_eq!(request.method, Method::PATCH);
        let record = "https://api.hubapi.com/crm/v3/objects/contacts/a%2Eb%2Fc%3Fd%20%C3%BC?idProperty=lead_key";
        assert_eq!(request.url.as_str(), record);
        assert_eq!(body(&request), json!({"properties": properties}));
        let request = update(&settings, &target, Address::Record("51"), head()).unwrap();
        assert_eq!(request.url.as_str(), "https://api.hubapi.com/crm/v3/objects/contacts/51");
        let request = read(&settings, &target, head()).unwrap();
        assert_eq!((&request.method, &request.body[..]), (&Method::GET, &b""[..]));
        assert_eq!(request.url.as_str(), format!("{record}&properties=firstname%2Cscore%2Cphone"));
    }

    #[test]
    fn create_has_the_id_property_and_the_associations() {
        let with = json!({
            "object": "contacts", "id_property": "email", "id": "ada@example.com", "properties": {"firstname": "Ada"},
            "associations": [{"to": 7, "type": "279"}],
        });
        let request = create(&Settings::read(&with).unwrap(), &target("2026-03"), head()).unwrap();
        assert_eq!(request.url.as_str(), "https://api.hubapi.com/crm/objects/2026-03/contacts");
        let types = json!([{"associationCategory": "HUBSPOT_DEFINED", "associationTypeId": 279}]);
        let properties = json!({"firstname": "Ada", "email": "ada@example.com"});
        let associations = json!([{"to": {"id": "7"}, "types": types}]);
        assert_eq!(body(&request), json!({"properties": properties, "associations": associations}));
        let without = json!({"object": "contacts", "id_property": "email", "id": "a@b.org", "properties": {}});
        let request = create(&Settings::read(&without).unwrap(), &target("v3"), head()).unwrap();
        assert_eq!(body(&request)["associations"], json!([]), "the description requires the list");
    }

    #[test]
    fn association_is_put_with_or_without_a_label() {
        let with = json!({"from_object": "contacts", "from": 51, "to_object": "companies", "to": "7"});
        let built = |with: &Value| associate(&AssociateSettings::read(with).unwrap(), &target("v3"), head()).unwrap();
        let request = built(&with);
        let base = "https://api.hubapi.com/crm/v4/objects/contacts/51/associations";
        assert_eq!((&request.method, request.url.as_str()), (&Method::PUT, &*format!("{base}/default/companies/7")));
        assert!(request.body.is_empty());
        let mut labelled = with.clone();
        labelled["type"] = json!(279);
        let request = built(&labelled);
        assert_eq!(request.url.as_str(), format!("{base}/companies/7"));
        assert_eq!(body(&request), json!([{"associationCategory": "HUBSPOT_DEFINED", "associationTypeId": 279}]));
    }

    #[test]
    fn invalid_destination_settings_are_rejected_by_key() {
        for (base_url, api_version, expected) in [
            ("api.hubapi.com", "v3", "base_url:"),
            ("https://u:p@api.hubapi.com", "v3", "base_url:"),
            ("https://api.hubapi.com", "3", "api_version:"),
            ("https://api.hubapi.com", "2026-3", "api_version:"),
        ] {
            let auth = HubspotAuth::Token("t".into());
            let destination = HubspotDestination { base_url: base_url.into(), api_version: api_version.into(), auth };
            let problem = Target::new(&destination, &[]).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    proptest::proptest! {
        #[test]
        fn id_stays_in_its_path_segment(id in "\\PC{1,40}") {
            let with = json!({"object": "contacts", "id_property": "k", "id": id, "properties": {}});
            if let Ok(settings) = Settings::read(&with) {
                let request = update(&settings, &target("v3"), Address::Property, head()).unwrap();
                proptest::prop_assert_eq!(request.url.path().matches('/').count(), 5);
                proptest::prop_assert_eq!(request.url.query(), Some("idProperty=k"));
            }
        }
    }
}

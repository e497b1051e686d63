//! Builds the requests from the step's settings and the destination. Pure.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Serializer;
use serde_json::{Map, Value, json};
use sluice_domain::destination::{SalesforceAuth, SalesforceDestination};
use sluice_domain::failure_rules::{FailureRule, FailureTable};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::url::percent_encode;
use sluice_domain::verify::SecretValue;
use url::Url;

use super::response;
use super::settings::{Mode, Settings};
use crate::outbound::{AddressScope, Request};
use crate::quota::QuotaReading;
use crate::token::{Assertion, GrantRequest, Tokens};

const DUPLICATE_RULES: HeaderName = HeaderName::from_static("sforce-duplicate-rule-header");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Bytes that an external id keeps unescaped. Not the dot: Salesforce parses the text after the last dot as a
/// response format.
const UNESCAPED_IN_ID: &[u8] = b"-_~";

/// Salesforce organisation with parsed settings.
#[derive(Debug)]
pub(crate) struct Target {
    /// URL prefix of records, up to the slash before the object name.
    records_url: String,
    /// The same of collections.
    collections_url: String,
    headers: HeaderMap,
    pub(crate) host: String,
    pub(crate) tokens: Tokens,
    pub(crate) rules: FailureTable,
    pub(crate) quota: QuotaReading,
    /// Redacted from every message about this destination.
    pub(crate) secrets: Vec<SecretValue>,
}

impl Target {
    /// Parses the settings; the error names the invalid key.
    pub(crate) fn new(destination: &SalesforceDestination, own_rules: &[FailureRule]) -> Result<Target, String> {
        let instance = destination.instance_url.trim_end_matches('/');
        let url = Url::parse(instance).map_err(|error| format!("instance_url: is not a URL: {error}"))?;
        let user = !url.username().is_empty() || url.password().is_some();
        if user || !matches!(url.scheme(), "http" | "https") || url.path() != "/" || url.query().is_some() {
            return Err("instance_url: must be https:// and a host, such as https://acme.my.salesforce.com".into());
        }
        let version = &destination.api_version;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = version.strip_prefix('v').and_then(|number| number.split_once('.'));
        if !number.is_some_and(|(major, minor)| digits(major) && digits(minor)) {
            return Err(format!("api_version: `{version}` is not a version such as v60.0"));
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if destination.allow_duplicates {
            headers.insert(DUPLICATE_RULES, HeaderValue::from_static("allowSave=true"));
        }
        let secret = match &destination.auth {
            SalesforceAuth::ClientCredentials { client_secret, .. } => client_secret,
            SalesforceAuth::JwtBearer { private_key, .. } => private_key,
            SalesforceAuth::Token(token) => token,
        };
        Ok(Target {
            collections_url: format!("{instance}/services/data/{version}/composite/sobjects/"),
            records_url: format!("{instance}/services/data/{version}/sobjects/"),
            headers,
            host: url.host_str().unwrap_or_default().to_owned(),
            tokens: tokens(instance, &destination.auth)?,
            rules: response::SHIPPED_RULES.behind(own_rules),
            quota: QuotaReading::default(),
            secrets: vec![secret.clone()],
        })
    }

    fn record_url(&self, settings: &Settings<'_>, query: &str) -> Result<Url, Failure> {
        let mut text = String::with_capacity(self.records_url.len() + 64 + settings.external_id.len() * 3);
        text.push_str(&self.records_url);
        text.push_str(&settings.object);
        text.push('/');
        text.push_str(&settings.external_id_field);
        text.push('/');
        percent_encode(&settings.external_id, UNESCAPED_IN_ID, &mut text);
        text.push_str(query);
        parse_url(&text)
    }

    fn headers(&self, authorization: HeaderValue, traceparent: Option<&str>) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.insert(AUTHORIZATION, authorization);
        if let Some(traceparent) = traceparent.and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(TRACEPARENT, traceparent);
        }
        headers
    }
}

/// Source of the organisation's tokens; the error names the invalid key.
fn tokens(instance_url: &str, auth: &SalesforceAuth) -> Result<Tokens, String> {
    let grant_request = match auth {
        SalesforceAuth::Token(token) => return Tokens::configured(token, response::grant),
        SalesforceAuth::ClientCredentials { client_id, client_secret } => {
            GrantRequest::client_credentials(client_id, client_secret)
        }
        SalesforceAuth::JwtBearer { client_id, user, audience, private_key } => {
            GrantRequest::jwt_bearer(Assertion::new(client_id, user, audience, private_key)?)
        }
    };
    Tokens::endpoint(&format!("{instance_url}/services/oauth2/token"), grant_request, response::grant)
}

pub(crate) fn upsert(
    settings: &Settings<'_>,
    target: &Target,
    authorization: HeaderValue,
    traceparent: Option<&str>,
) -> Result<Request, Failure> {
    let query = match settings.mode {
        Mode::Upsert => "",
        Mode::UpdateOnly(_) => "?updateOnly=true",
    };
    let mut headers = target.headers(authorization, traceparent);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Request {
        method: Method::PATCH,
        url: target.record_url(settings, query)?,
        headers,
        body: body(settings.fields, &settings.external_id_field),
        scope: AddressScope::Anywhere,
    })
}

/// Request for the records of several upserts of one object: each has a result of its own.
pub(crate) fn batch(
    upserts: &[Settings<'_>],
    target: &Target,
    authorization: HeaderValue,
    traceparent: Option<&str>,
) -> Result<Request, Failure> {
    let (object, field) = upserts.first().map_or(("", ""), |first| (&*first.object, &*first.external_id_field));
    let mut headers = target.headers(authorization, traceparent);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let records: Vec<Value> = upserts.iter().map(record).collect();
    let body = serde_json::to_vec(&json!({ "allOrNone": false, "records": records }));
    Ok(Request {
        method: Method::PATCH,
        url: parse_url(&format!("{}{object}/{field}", target.collections_url))?,
        headers,
        body: body.expect("JSON values serialize").into(),
        scope: AddressScope::Anywhere,
    })
}

/// A record of a collection: here the external id is one of its fields.
fn record(upsert: &Settings<'_>) -> Value {
    let mut record = Map::with_capacity(upsert.fields.len() + 2);
    record.insert("attributes".to_owned(), json!({ "type": upsert.object }));
    record.insert(upsert.external_id_field.clone().into_owned(), Value::from(&*upsert.external_id));
    let kept = upsert.fields.iter().filter(|(name, _)| {
        !name.eq_ignore_ascii_case(&upsert.external_id_field) && !name.eq_ignore_ascii_case("attributes")
    });
    record.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
    Value::Object(record)
}

fn parse_url(text: &str) -> Result<Url, Failure> {
    Url::parse(text).map_err(|error| {
        Failure::new(FailureClass::Mapping, "invalid-request", format!("Cannot build the record URL: {error}."))
    })
}

/// Request for the record by external id, with the fields that the step writes.
pub(crate) fn read(
    settings: &Settings<'_>,
    target: &Target,
    authorization: HeaderValue,
    traceparent: Option<&str>,
) -> Result<Request, Failure> {
    Ok(Request {
        method: Method::GET,
        url: target.record_url(settings, &fields_query(settings))?,
        headers: target.headers(authorization, traceparent),
        body: Bytes::new(),
        scope: AddressScope::Anywhere,
    })
}

/// The id and every written field. Names that are no names of fields cannot have been written.
fn fields_query(settings: &Settings<'_>) -> String {
    let is_name = |name: &&String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    let names = settings.fields.keys().filter(is_name).filter(|name| !name.eq_ignore_ascii_case("Id"));
    names.fold("?fields=Id".to_owned(), |query, name| format!("{query},{name}"))
}

/// JSON of the fields without the external id field: Salesforce rejects it in both URL and body. Field names are
/// case-insensitive.
fn body(fields: &Map<String, Value>, external_id_field: &str) -> Bytes {
    let mut text = Vec::with_capacity(256);
    let kept = fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(external_id_field));
    serde_json::Serializer::new(&mut text).collect_map(kept).expect("JSON values serialize");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::bearer;

    fn target(allow_duplicates: bool) -> Target {
        Target::new(
            &SalesforceDestination {
                instance_url: "https://acme.my.salesforce.com/".into(),
                api_version: "v60.0".into(),
                auth: SalesforceAuth::Token("hunter2-token".into()),
                allow_duplicates,
            },
            &[],
        )
        .unwrap()
    }

    fn built(with: Value, target: &Target) -> Request {
        upsert(&Settings::read(&with).unwrap(), target, bearer("t").unwrap(), Some("00-ab-cd-01")).unwrap()
    }

    #[test]
    fn upsert_addresses_the_record_and_omits_the_id_from_the_body() {
        let with = json!({
            "object": "Lead", "external_id_field": "Ext__c", "external_id": "a.b/c?d#e%f@ü x",
            "fields": {"LastName": "Ö", "ext__C": "a", "Phone": null, "Account": {"Ext__c": "7"}},
        });
        let request = built(with, &target(false));
        assert_eq!(request.method, Method::PATCH);
        assert_eq!(
            request.url.as_str(),
            "https://acme.my.salesforce.com/services/data/v60.0/sobjects/Lead/Ext__c/a%2Eb%2Fc%3Fd%23e%25f%40%C3%BC%20x"
        );
        assert_eq!(request.body, r#"{"LastName":"Ö","Phone":null,"Account":{"Ext__c":"7"}}"#);
        assert_eq!(request.headers[CONTENT_TYPE], "application/json");
        assert_eq!(request.headers["traceparent"], "00-ab-cd-01");
        assert!(request.headers[AUTHORIZATION].is_sensitive());
        assert!(!request.headers.contains_key(DUPLICATE_RULES));
    }

    #[test]
    fn a_batch_is_a_collection_that_has_the_external_id_in_each_record() {
        let with = |id: &str, name: &str| {
            json!({
                "object": "Lead", "external_id_field": "Ext__c", "external_id": id,
                "fields": {"LastName": name, "ext__C": "x", "attributes": {"type": "User"}},
            })
        };
        let parameters = [with("a.b/1", "Ö"), with("2", "P")];
        let upserts: Vec<_> = parameters.iter().map(|with| Settings::read(with).unwrap()).collect();
        let request = batch(&upserts, &target(true), bearer("t").unwrap(), Some("00-ab-cd-01")).unwrap();
        assert_eq!(
            request.url.as_str(),
            "https://acme.my.salesforce.com/services/data/v60.0/composite/sobjects/Lead/Ext__c"
        );
        assert_eq!(
            (request.method, request.headers[DUPLICATE_RULES].to_str().unwrap()),
            (Method::PATCH, "allowSave=true")
        );
        assert_eq!(
            serde_json::from_slice::<Value>(&request.body).unwrap(),
            json!({"allOrNone": false, "records": [
                {"attributes": {"type": "Lead"}, "Ext__c": "a.b/1", "LastName": "Ö"},
                {"attributes": {"type": "Lead"}, "Ext__c": "2", "LastName": "P"},
            ]})
        );
    }

    #[test]
    fn update_only_and_duplicate_rules_are_requested() {
        let with = json!({
            "object": "Contact", "external_id_field": "E__c", "external_id": "1", "fields": {}, "mode": "update_only",
        });
        let request = built(with.clone(), &target(true));
        assert!(request.url.as_str().ends_with("/sobjects/Contact/E__c/1?updateOnly=true"), "{}", request.url);
        assert_eq!(
            (&request.body[..], request.headers[DUPLICATE_RULES].to_str().unwrap()),
            (&b"{}"[..], "allowSave=true")
        );
        let settings = Settings::read(&with).unwrap();
        let request = read(&settings, &target(true), bearer("t").unwrap(), None).unwrap();
        assert!(request.url.as_str().ends_with("/sobjects/Contact/E__c/1?fields=Id"), "{}", request.url);
        assert_eq!((request.method, request.body), (Method::GET, Bytes::new()));
    }

    #[test]
    fn invalid_destination_settings_are_rejected_by_key() {
        for (instance_url, api_version, expected) in [
            ("acme.my.salesforce.com", "v60.0", "instance_url:"),
            ("https://u:p@acme.my.salesforce.com", "v60.0", "instance_url:"),
            ("https://acme.my.salesforce.com/services", "v60.0", "instance_url:"),
            ("https://acme.my.salesforce.com", "60", "api_version:"),
            ("https://acme.my.salesforce.com", "v60.0/../x", "api_version:"),
        ] {
            let problem = Target::new(
                &SalesforceDestination {
                    instance_url: instance_url.into(),
                    api_version: api_version.into(),
                    auth: SalesforceAuth::Token("t".into()),
                    allow_duplicates: false,
                },
                &[],
            )
            .unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    proptest::proptest! {
        #[test]
        fn external_id_stays_in_its_path_segment(id in "\\PC{1,40}") {
            let with = json!({"object": "Lead", "external_id_field": "E__c", "external_id": id, "fields": {}});
            if let Ok(settings) = Settings::read(&with) {
                let request = upsert(&settings, &target(false), bearer("t").unwrap(), None).unwrap();
                let path = request.url.path();
                proptest::prop_assert!(path.starts_with("/services/data/v60.0/sobjects/Lead/E__c/"), "{}", path);
                proptest::prop_assert_eq!(path.matches('/').count(), 7);
                proptest::prop_assert!(request.url.query().is_none());
            }
        }
    }
}

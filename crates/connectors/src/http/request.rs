//! Builds the request from the step's settings and the destination. Pure.

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::url::{UNRESERVED, percent_encode};
use sluice_domain::time::Time;
use sluice_domain::verify::{self, UnsignedRequest, Verifier};
use url::Position;

use super::settings::{Body, Settings};
use super::target::Target;
use crate::outbound::Request;
use crate::parameter::{kind, problem, scalar};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Connection and framing headers: setting them would allow request smuggling.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[derive(Clone, Copy, Debug)]
pub(crate) struct EffectContext<'a> {
    /// `None` for a read, which has no effect.
    pub(crate) effect_key: Option<&'a str>,
    pub(crate) traceparent: Option<&'a str>,
    /// Signing time.
    pub(crate) now: Time,
}

pub(crate) fn build(settings: &Settings<'_>, target: &Target, context: EffectContext<'_>) -> Result<Request, Failure> {
    let (url, scope) = target.locate(&settings.url, settings.query)?;
    let mut headers = target.headers.clone();
    for (name, value) in settings.headers.into_iter().flatten() {
        if value.is_null() {
            continue;
        }
        let parsed = header_name(name).map_err(|what| problem(&format!("headers.{name}"), what))?;
        let text = scalar(value)
            .ok_or_else(|| problem(&format!("headers.{name}"), format_args!("must be text; it is {}", kind(value))))?;
        let mut value = header_value(&format!("headers.{name}"), &text)?;
        value.set_sensitive(is_credential_header(parsed.as_str()));
        headers.insert(parsed, value);
    }

    let (body, content_type) = encode(&settings.body)?;
    if let Some(content_type) = content_type {
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
    }
    if let Some(key) = context.effect_key {
        let key = HeaderValue::from_str(key).map_err(|_| {
            Failure::new(
                FailureClass::Mapping,
                "invalid-key",
                "The effect key has a character that is not allowed in a header.",
            )
        })?;
        if let Some(name) = &settings.idempotency_header {
            let name = header_name(name).map_err(|what| problem("idempotency_header", what))?;
            headers.insert(name, key.clone());
        }
        headers.entry(IDEMPOTENCY_KEY).or_insert(key);
    }
    if let Some(traceparent) = context.traceparent.and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.entry(TRACEPARENT).or_insert(traceparent);
    }
    let mut request = Request { method: settings.method.clone(), url, headers, body, scope };
    if let (Some(signer), Some(key)) = (&target.signer, context.effect_key) {
        sign(signer, ("signing_secret", key), context.now, &mut request)?;
    }
    if let Some(authenticator) = &target.authenticator {
        sign(authenticator, ("auth.hmac", context.effect_key.unwrap_or_default()), context.now, &mut request)?;
    }
    Ok(request)
}

/// Adds the headers of the signature, over the body as it is sent. The texts are the key of the configuration and the id.
fn sign(signer: &Verifier, (key, id): (&str, &str), now: Time, request: &mut Request) -> Result<(), Failure> {
    let content_type = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let unsigned = UnsignedRequest { method: request.method.as_str(), id, content_type, body: &request.body };
    let url = &request.url[..Position::AfterQuery];
    let signed = verify::sign_for(signer, &unsigned, Some(url), now.to_jiff()).map_err(|error| {
        Failure::new(FailureClass::Mapping, "not-signed", format!("The request cannot be signed: {error}."))
    })?;
    for (name, value) in &signed.headers {
        let name = header_name(name).map_err(|what| problem(key, what))?;
        request.headers.insert(name, header_value(key, value.expose())?);
    }
    Ok(())
}

fn encode(body: &Body<'_>) -> Result<(Bytes, Option<&'static str>), Failure> {
    Ok(match body {
        Body::None => (Bytes::new(), None),
        Body::Json(value) => {
            let text = serde_json::to_vec(value).expect("a JSON value serializes");
            (text.into(), Some("application/json"))
        }
        Body::Form(form) => {
            let mut text = String::new();
            pairs(form, "form", |name, value| {
                if !text.is_empty() {
                    text.push('&');
                }
                percent_encode(name, UNRESERVED, &mut text);
                text.push('=');
                percent_encode(value, UNRESERVED, &mut text);
            })?;
            (text.into(), Some("application/x-www-form-urlencoded"))
        }
        Body::Text(text) => (Bytes::copy_from_slice(text.as_bytes()), Some("text/plain; charset=utf-8")),
    })
}

/// Calls `each` for every name and value: a list repeats its name, null is skipped.
pub(super) fn pairs(
    map: &Map<String, Value>,
    parameter: &str,
    mut each: impl FnMut(&str, &str),
) -> Result<(), Failure> {
    for (name, value) in map {
        let values = value.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(value));
        for value in values.iter().filter(|value| !value.is_null()) {
            let text = scalar(value).ok_or_else(|| {
                problem(
                    &format!("{parameter}.{name}"),
                    format_args!("must be text or a list of texts; it contains {}", kind(value)),
                )
            })?;
            each(name, &text);
        }
    }
    Ok(())
}

pub(crate) fn header_name(name: &str) -> Result<HeaderName, &'static str> {
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| "is not a header name")?;
    if FRAMING.contains(&name.as_str()) {
        return Err("is set by the HTTP client and cannot be set here");
    }
    Ok(name)
}

fn header_value(parameter: &str, text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(text)
        .map_err(|_| problem(parameter, "has a character that is not allowed in a header, such as a line break"))
}

/// True if a header of this name probably holds a credential.
fn is_credential_header(name: &str) -> bool {
    const PARTS: [&str; 8] = ["auth", "token", "secret", "password", "cookie", "api-key", "apikey", "signature"];
    PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::AddressScope;
    use hyper::Method;
    use serde_json::json;
    use sluice_domain::destination::{HttpAuth, HttpDestination};
    use sluice_domain::verify::{HmacSettings, Scheme, Secret, VerifierSettings};

    const CONTEXT: EffectContext<'static> =
        EffectContext { effect_key: Some("key-1"), traceparent: Some("00-ab-cd-01"), now: Time(1_772_323_200_000) };

    fn target(base_url: Option<&str>) -> Target {
        Target::new(&HttpDestination { base_url: base_url.map(str::to_owned), ..HttpDestination::default() }).unwrap()
    }

    fn with_credentials() -> Target {
        Target::new(&HttpDestination {
            base_url: Some("https://api.example.com/v1/".into()),
            headers: vec![("X-Tenant".into(), "acme-tenant".into())],
            auth: HttpAuth::Bearer("hunter2-token".into()),
            ..HttpDestination::default()
        })
        .unwrap()
    }

    fn built(with: Value, target: &Target) -> Result<Request, Failure> {
        build(&Settings::read(&with)?, target, CONTEXT)
    }

    /// Request as text, headers sorted by name.
    fn shown(request: &Request) -> String {
        let mut headers: Vec<String> =
            request.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        headers.sort();
        let body = String::from_utf8_lossy(&request.body);
        format!("{} {}\n{}\n\n{body}", request.method, request.url, headers.join("\n"))
    }

    #[test]
    fn request_combines_destination_and_step() {
        let with = json!({
            "url": "/contacts?x=1", "method": "PATCH",
            "headers": {"X-Tenant": "other", "X-Number": 7, "X-Absent": null},
            "query": {"q": "a b&c", "tags": ["x", "y"], "none": null},
            "json": {"b": 1, "a": [null]},
        });
        assert_eq!(
            shown(&built(with, &with_credentials()).unwrap()),
            "PATCH https://api.example.com/v1/contacts?x=1&q=a%20b%26c&tags=x&tags=y\n\
             authorization: Bearer hunter2-token\n\
             content-type: application/json\n\
             idempotency-key: key-1\n\
             traceparent: 00-ab-cd-01\n\
             x-number: 7\n\
             x-tenant: other\n\n\
             {\"b\":1,\"a\":[null]}"
        );
    }

    #[test]
    fn cached_url_is_used_only_for_the_same_text() {
        let target = with_credentials();
        let url = |url: &str| built(json!({ "url": url }), &target).map(|request| request.url.to_string());
        for _ in 0..2 {
            assert_eq!(url("/a").as_deref(), Ok("https://api.example.com/v1/a"));
            assert_eq!(url("/a").as_deref(), Ok("https://api.example.com/v1/a"));
            assert_eq!(url("/b").as_deref(), Ok("https://api.example.com/v1/b"));
            let refused = [url("https://other.example.com/a"), url("https://other.example.com/a")];
            assert!(refused.iter().all(|url| url.as_ref().is_err_and(|failure| failure.code == "other-origin")));
        }
    }

    #[test]
    fn content_type_follows_the_body_unless_the_step_sets_it() {
        let form = json!({"url": "http://x.example/", "form": {"name": "Jo & Co", "n": [1, 2], "ok": true}});
        let request = built(form, &target(None)).unwrap();
        assert_eq!(request.body, "name=Jo%20%26%20Co&n=1&n=2&ok=true");
        assert_eq!(request.headers[CONTENT_TYPE], "application/x-www-form-urlencoded");
        let text = json!({"url": "http://x.example/", "text": "<a/>", "headers": {"content-type": "application/xml"}});
        let request = built(text, &target(None)).unwrap();
        assert_eq!((request.body, request.method), (Bytes::from("<a/>"), Method::POST));
        assert_eq!(request.headers[CONTENT_TYPE], "application/xml");
    }

    #[test]
    fn relative_urls_stay_on_the_base_host() {
        let table = [
            ("https://a.example", "x", "https://a.example/x"),
            ("https://a.example/v1", "/x", "https://a.example/v1/x"),
            ("https://a.example/v1/", "//evil.example/x", "https://a.example/v1/evil.example/x"),
            ("https://a.example", "@evil.example", "https://a.example/@evil.example"),
            ("https://a.example", ":99/x", "https://a.example/:99/x"),
            ("https://a.example/v1", "https://a.example/v1/other?x=../y", "https://a.example/v1/other?x=../y"),
            ("https://a.example/v1", "/", "https://a.example/v1/"),
            ("https://a.example", "https://A.example:443", "https://a.example/"),
            ("https://a.example/v1/", "/a%2Fb/..c/d..", "https://a.example/v1/a%2Fb/..c/d.."),
        ];
        for (base, url, expected) in table {
            let request = built(json!({"url": url}), &target(Some(base))).unwrap();
            assert_eq!(request.url.as_str(), expected);
            assert_eq!(request.scope, AddressScope::Anywhere, "the operator configured this host");
        }
    }

    #[test]
    fn private_addresses_are_allowed_only_for_the_base_origin() {
        let scope = |url: &str, base| built(json!({"url": url}), &target(base)).unwrap().scope;
        assert_eq!(scope("/x", Some("http://10.0.0.5:8080")), AddressScope::Anywhere);
        assert_eq!(scope("http://10.0.0.5:8080/x", Some("http://10.0.0.5:8080")), AddressScope::Anywhere);
        assert_eq!(scope("http://10.0.0.5:8080/x", None), AddressScope::Public);
    }

    #[test]
    fn url_outside_of_the_base_is_refused() {
        for (url, code) in [
            ("https://evil.example/v1/x", "other-origin"),
            ("http://api.example.com/v1/x", "other-origin"),
            ("https://api.example.com:8443/v1/x", "other-origin"),
            ("https://api.example.com/admin", "outside-base-path"),
            ("https://api.example.com/v10", "outside-base-path"),
            ("https://api.example.com", "outside-base-path"),
            ("/p/../../admin", "dot-segment"),
            ("/p/../q", "dot-segment"),
            ("/p/%2e%2E%2Fadmin", "dot-segment"),
            ("/p\\..\\..\\admin", "dot-segment"),
            ("https://api.example.com/v1/../admin", "dot-segment"),
        ] {
            for target in [with_credentials(), target(Some("https://api.example.com/v1"))] {
                let failure = built(json!({ "url": url }), &target).unwrap_err();
                assert_eq!((failure.code.as_str(), failure.class), (code, FailureClass::Permanent), "{url}");
            }
        }
    }

    #[test]
    fn effect_key_is_sent_in_every_configured_header() {
        let base = target(Some("https://a.example"));
        let request = built(json!({"url": "/x", "idempotency_header": "X-Request-Key"}), &base).unwrap();
        assert_eq!(request.headers["x-request-key"], "key-1");
        assert_eq!(request.headers["idempotency-key"], "key-1");
        let own = json!({"url": "/x", "headers": {"Idempotency-Key": "mine"}});
        assert_eq!(built(own, &base).unwrap().headers["idempotency-key"], "mine");
    }

    #[test]
    fn signed_request_is_accepted_by_the_verifier_of_standard_webhooks() {
        let secret = Secret::new("own", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let verifier = Verifier::new(VerifierSettings::new(Scheme::StandardWebhooks, vec![secret])).unwrap();
        let base_url = Some("https://hooks.example".to_owned());
        let signed =
            HttpDestination { base_url, signer: Some(Box::new(verifier.clone())), ..HttpDestination::default() };
        let with = json!({"url": "/alerts", "json": {"a": 1}, "idempotency_header": "webhook-id"});
        let request = built(with, &Target::new(&signed).unwrap()).unwrap();
        let headers: Vec<(&str, &str)> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert!(headers.contains(&("webhook-id", "key-1")), "{headers:?}");
        let received =
            verify::Request { method: "POST", path_and_query: "/alerts", headers: &headers, body: &request.body };
        verify::verify(&verifier, &received, CONTEXT.now.to_jiff()).unwrap();
        let forged = verify::Request { body: b"{}", ..received };
        verify::verify(&verifier, &forged, CONTEXT.now.to_jiff()).unwrap_err();
    }

    #[test]
    fn hmac_signs_method_path_and_body_of_effects_and_of_reads() {
        let mut hmac = HmacSettings::new("X-Signature");
        hmac.signed = "{method} {path} {body}".to_owned();
        let mut settings = VerifierSettings::new(Scheme::Hmac, vec![Secret::new("own", "hunter2-hmac")]);
        settings.hmac = Some(hmac);
        let verifier = Verifier::new(settings).unwrap();
        let target = Target::new(&HttpDestination {
            base_url: Some("https://api.example/v1".into()),
            auth: HttpAuth::Hmac(Box::new(verifier.clone())),
            ..HttpDestination::default()
        })
        .unwrap();
        let with = json!({"url": "/leads?a=1", "query": {"q": "x y"}, "json": {"b": 2}, "verify": {"url": "/leads/7"}});
        let effect = built(with.clone(), &target).unwrap();
        let read = build(
            &Settings::read_verify(&with).unwrap().unwrap(),
            &target,
            EffectContext { effect_key: None, ..CONTEXT },
        )
        .unwrap();
        for (request, method, path) in [(effect, "POST", "/v1/leads?a=1&q=x%20y"), (read, "GET", "/v1/leads/7")] {
            let headers: Vec<(&str, &str)> =
                request.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
            let received = verify::Request { method, path_and_query: path, headers: &headers, body: &request.body };
            verify::verify(&verifier, &received, CONTEXT.now.to_jiff()).unwrap();
            let elsewhere = verify::Request { path_and_query: "/v1/leads", ..received };
            verify::verify(&verifier, &elsewhere, CONTEXT.now.to_jiff()).unwrap_err();
        }
    }

    #[test]
    fn invalid_parameters_are_rejected_by_name() {
        let table = [
            (json!({"url": "/x"}), "`with.url` is relative"),
            (json!({"url": "ftp://a.example/"}), "`with.url` is relative"),
            (json!({"url": "http://"}), "`with.url` is not a URL"),
            (json!({"url": "http://u:p@a.example/"}), "`with.url` has a user"),
            (
                json!({"url": "http://a.example", "headers": {"Content-Length": "3"}}),
                "`with.headers.Content-Length` is set by the HTTP client",
            ),
            (json!({"url": "http://a.example", "headers": {"a b": "3"}}), "`with.headers.a b` is not a header name"),
            (json!({"url": "http://a.example", "headers": {"X": "a\r\nY: b"}}), "`with.headers.X` has a character"),
            (json!({"url": "http://a.example", "headers": {"X": {}}}), "`with.headers.X` must be text"),
            (json!({"url": "http://a.example", "query": {"q": {}}}), "`with.query.q` must be text"),
            (json!({"url": "http://a.example", "form": {"q": [[]]}}), "`with.form.q` must be text"),
        ];
        for (with, expected) in table {
            let failure = built(with, &target(None)).unwrap_err();
            assert!(failure.message.starts_with(expected), "{}", failure.message);
        }
    }

    #[test]
    fn invalid_destination_settings_are_rejected_by_key() {
        let refused = |destination: HttpDestination| Target::new(&destination).unwrap_err();
        for base in ["api.example.com", "ftp://a.example", "https://u:p@a.example", "https://a.example?x=1"] {
            let problem = refused(HttpDestination { base_url: Some(base.into()), ..HttpDestination::default() });
            assert!(problem.starts_with("base_url:") && !problem.contains("u:p"), "{problem}");
        }
        let auth = HttpAuth::Bearer("hunter2\n".into());
        let problem = refused(HttpDestination { auth, ..HttpDestination::default() });
        assert!(problem.starts_with("auth:") && !problem.contains("hunter2"), "{problem}");
    }
}

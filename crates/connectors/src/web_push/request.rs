//! Builds the request: encrypted body and VAPID signature.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use data_encoding::BASE64URL_NOPAD;
use hyper::Method;
use hyper::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use sluice_domain::destination::WebPushDestination;
use sluice_domain::failure_rules::{FailureRule, FailureTable};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;
use sluice_domain::verify::SecretValue;
use url::Url;

use super::encryption::{Recipient, encrypt};
use super::response;
use super::settings::Settings;
use crate::Call;
use crate::outbound::{AddressScope, Request, sensitive};
use crate::parameter::problem;

const TTL: HeaderName = HeaderName::from_static("ttl");
const URGENCY: HeaderName = HeaderName::from_static("urgency");
const TOPIC: HeaderName = HeaderName::from_static("topic");
/// Push services accept signatures that are valid for at most a day.
const LIFETIME_SECONDS: i64 = 12 * 3600;

/// The application server with its keys.
pub(crate) struct Target {
    key: EcdsaKeyPair,
    /// As in the header and in subscriptions.
    public_key: String,
    subject: String,
    scope: AddressScope,
    pub(crate) rules: FailureTable,
    pub(crate) secrets: Vec<SecretValue>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("public_key", &self.public_key).finish_non_exhaustive()
    }
}

impl Target {
    /// Parses the settings; the error names the invalid key.
    pub(crate) fn new(destination: &WebPushDestination, own_rules: &[FailureRule]) -> Result<Target, String> {
        let decode = |name: &str, text: &str, bytes: usize| {
            let decoded = BASE64URL_NOPAD.decode(text.trim().trim_end_matches('=').as_bytes()).ok();
            let decoded = decoded.filter(|decoded| decoded.len() == bytes);
            decoded.ok_or_else(|| format!("{name}: must be the base64url of {bytes} bytes, as key generators print it"))
        };
        let public = decode("public_key", &destination.public_key, 65)?;
        let private = decode("private_key", destination.private_key.expose(), 32)?;
        let key = EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P256_SHA256_FIXED_SIGNING, &private, &public)
            .map_err(|_| "private_key: does not belong to public_key")?;
        let subject = destination.subject.trim();
        if !subject.starts_with("mailto:") && !subject.starts_with("https://") {
            return Err("subject: must be a contact such as mailto:ops@example.com or https://example.com".to_owned());
        }
        Ok(Target {
            key,
            public_key: BASE64URL_NOPAD.encode(&public),
            subject: subject.to_owned(),
            scope: match destination.allow_private_addresses {
                true => AddressScope::Anywhere,
                false => AddressScope::Public,
            },
            rules: response::SHIPPED_RULES.behind(own_rules),
            secrets: vec![destination.private_key.clone()],
        })
    }

    pub(super) fn send(&self, settings: &Settings<'_>, call: &Call<'_>) -> Result<Request, Failure> {
        let url = self.endpoint(&settings.endpoint)?;
        let recipient = Recipient { public_key: &settings.public_key, auth: &settings.auth };
        let body = encrypt(&settings.message, recipient).ok_or_else(|| {
            let message = "`with.subscription.keys.p256dh` is not a point of the curve P-256.";
            Failure::new(FailureClass::Identity, "invalid-subscription", message)
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(TTL, settings.ttl_seconds.into());
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("aes128gcm"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        for (name, value) in [(URGENCY, &settings.urgency), (TOPIC, &settings.topic)] {
            if let Some(text) = value {
                let value =
                    HeaderValue::from_str(text).map_err(|_| problem(name.as_str(), "is not valid in a header"))?;
                headers.insert(name, value);
            }
        }
        headers.insert(AUTHORIZATION, self.authorization(&url, call.now)?);
        Ok(Request { method: Method::POST, url, headers, body: body.into(), scope: self.scope })
    }

    /// The endpoint comes from a browser: it is a public https address, unless the operator allows others.
    fn endpoint(&self, text: &str) -> Result<Url, Failure> {
        let refused = |what: &str| {
            let message = format!("`with.subscription.endpoint` {what}.");
            Failure::new(FailureClass::Identity, "invalid-subscription", message)
        };
        let url = Url::parse(text).map_err(|_| refused("is not a URL"))?;
        let is_allowed = url.scheme() == "https" || (url.scheme() == "http" && self.scope == AddressScope::Anywhere);
        if !is_allowed || url.host_str().is_none() {
            return Err(refused("is not an https address"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("has a user or a password"));
        }
        Ok(url)
    }

    /// A JWT for the origin of the endpoint.
    fn authorization(&self, url: &Url, now: Time) -> Result<HeaderValue, Failure> {
        let claims = json!({
            "aud": url.origin().ascii_serialization(),
            "exp": now.seconds() + LIFETIME_SECONDS,
            "sub": self.subject,
        });
        let head = BASE64URL_NOPAD.encode(br#"{"typ":"JWT","alg":"ES256"}"#);
        let signed = format!("{head}.{}", BASE64URL_NOPAD.encode(claims.to_string().as_bytes()));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).ok();
        let value = signature.and_then(|signature| {
            let token = format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()));
            sensitive(&format!("vapid t={token}, k={}", self.public_key))
        });
        value.ok_or_else(|| {
            Failure::new(FailureClass::Auth, "not-signed", "The message cannot be signed with private_key.")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::call;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, KeyPair, UnparsedPublicKey};
    use serde_json::Value;

    /// The application server's keys of RFC 8291, appendix A.
    const PUBLIC: &str = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";
    const PRIVATE: &str = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw";
    const BROWSER: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";

    fn destination() -> WebPushDestination {
        WebPushDestination {
            public_key: PUBLIC.into(),
            private_key: PRIVATE.into(),
            subject: "mailto:ops@example.com".into(),
            allow_private_addresses: false,
        }
    }

    fn with(endpoint: &str) -> Value {
        json!({
            "subscription": {"endpoint": endpoint, "keys": {"p256dh": BROWSER, "auth": "BTBZMqHH6r4Tts7J_aSIgg"}},
            "text": "hello", "ttl": 60, "urgency": "high", "topic": "lead-7",
        })
    }

    #[test]
    fn request_is_signed_for_the_origin_of_the_endpoint() {
        let target = Target::new(&destination(), &[]).unwrap();
        let with = with("https://push.example:8443/send/abc?x=1");
        let settings = Settings::read(&with).unwrap();
        let request = target.send(&settings, &call(&with)).unwrap();
        assert_eq!(request.headers["ttl"], "60");
        assert_eq!(
            (&request.headers["urgency"], &request.headers["topic"]),
            (&"high".parse().unwrap(), &"lead-7".parse().unwrap())
        );
        let value = request.headers[AUTHORIZATION].to_str().unwrap();
        let (token, key) = value.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        assert_eq!(key, PUBLIC);
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, target.key.public_key().as_ref());
        public.verify(signed.as_bytes(), &BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap()).unwrap();
        let claims = BASE64URL_NOPAD.decode(signed.split('.').nth(1).unwrap().as_bytes()).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(
            (&claims["aud"], &claims["sub"]),
            (&json!("https://push.example:8443"), &json!("mailto:ops@example.com"))
        );
        assert_eq!(request.scope, AddressScope::Public, "the endpoint comes from a browser");
        assert!(!format!("{target:?}").contains(PRIVATE));
    }

    #[test]
    fn other_endpoints_and_keys_are_refused() {
        let target = Target::new(&destination(), &[]).unwrap();
        for endpoint in ["http://push.example/1", "ftp://push.example/1", "push.example", "https://u:p@push.example/1"]
        {
            let with = with(endpoint);
            let failure = target.send(&Settings::read(&with).unwrap(), &call(&with)).unwrap_err();
            assert_eq!(failure.code, "invalid-subscription", "{endpoint}");
        }
        for (destination, key) in [
            (WebPushDestination { private_key: "hunter2".into(), ..destination() }, "private_key:"),
            (WebPushDestination { public_key: BROWSER.into(), ..destination() }, "private_key: does not belong"),
            (WebPushDestination { public_key: "AAAA".into(), ..destination() }, "public_key:"),
            (WebPushDestination { subject: "ops".into(), ..destination() }, "subject:"),
        ] {
            let problem = Target::new(&destination, &[]).unwrap_err();
            assert!(problem.starts_with(key) && !problem.contains("hunter2"), "{problem}");
        }
    }
}

//! Recorded requests and helpers shared by the verification tests.

#![allow(dead_code, reason = "each test file uses another part")]

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use data_encoding::BASE64;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use sluice_domain::verify::{
    Algorithm, Encoding, HmacSettings, HubspotVersion, Request, Scheme, Secret, SecretEncoding, SignProblem,
    SignatureHeader, TimestampSettings, TimestampSource, TimestampUnit, TokenLocation, UnsignedRequest, Verifier,
    VerifierSettings, sign,
};

#[derive(Deserialize)]
pub(crate) struct Recorded {
    pub vectors: Vec<Vector>,
    pub handshakes: Vec<Handshake>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vector {
    pub id: String,
    pub scheme: String,
    pub version: Option<String>,
    pub now: Option<i64>,
    pub tolerance_seconds: Option<u64>,
    #[serde(default)]
    pub config: BTreeMap<String, Value>,
    pub secret: Value,
    pub signing_key: Option<String>,
    pub public_url: Option<String>,
    pub body_encoding: Option<String>,
    pub request: RecordedRequest,
    pub expected_error: Option<String>,
    pub expected_signature: Option<String>,
    pub event_id: Option<String>,
    pub event_type: Option<String>,
    pub replay_token: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedRequest {
    pub method: String,
    pub url: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub body: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Handshake {
    pub id: String,
    pub scheme: String,
    pub secret: Option<String>,
    pub verify_token: Option<String>,
    pub request: RecordedRequest,
    pub response: RecordedAnswer,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedAnswer {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Option<String>,
    pub json: Option<Value>,
}

pub(crate) fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../data/signature-vectors.json")).unwrap()
}

impl Vector {
    pub(crate) fn named(id: &str) -> Vector {
        recorded().vectors.into_iter().find(|vector| vector.id == id).unwrap()
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme.parse().unwrap()
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_second(self.now.unwrap_or(1_790_000_000)).unwrap()
    }

    pub(crate) fn secret(&self) -> String {
        match &self.secret {
            Value::String(text) => text.clone(),
            pair => format!("{}:{}", pair["username"].as_str().unwrap(), pair["password"].as_str().unwrap()),
        }
    }

    pub(crate) fn settings(&self) -> VerifierSettings {
        let scheme = self.scheme();
        let text = |key: &str| self.config.get(key).and_then(Value::as_str);
        let tolerance = self.config.get("tolerance_seconds").and_then(Value::as_u64);
        VerifierSettings {
            tolerance: tolerance.or(self.tolerance_seconds).map(Duration::from_secs),
            public_url: self.public_url.clone(),
            hubspot_version: match self.version.as_deref() {
                Some("v1") => HubspotVersion::V1,
                Some("v2") => HubspotVersion::V2,
                Some("v3") => HubspotVersion::V3,
                _ => HubspotVersion::Auto,
            },
            hmac: (scheme == Scheme::Hmac).then(|| self.hmac()),
            token: (scheme == Scheme::Token).then(|| TokenLocation::Header(text("header").unwrap().to_owned())),
            signing_key: self.signing_key.as_deref().map(Into::into),
            ..VerifierSettings::new(scheme, vec![Secret::new("main", self.secret())])
        }
    }

    fn hmac(&self) -> HmacSettings {
        let text = |key: &str| self.config.get(key).and_then(Value::as_str);
        HmacSettings {
            header: SignatureHeader::One(text("header").unwrap().to_owned()),
            algorithm: match text("algorithm").unwrap() {
                "sha1" => Algorithm::Sha1,
                "sha256" => Algorithm::Sha256,
                "sha512" => Algorithm::Sha512,
                other => panic!("{other}"),
            },
            encoding: match text("encoding").unwrap() {
                "hex" => Encoding::Hex,
                "base64" => Encoding::Base64,
                "base64url" => Encoding::Base64Url,
                other => panic!("{other}"),
            },
            secret_encoding: match text("secret_encoding").unwrap_or("text") {
                "text" => SecretEncoding::Text,
                "hex" => SecretEncoding::Hex,
                "base64" => SecretEncoding::Base64,
                other => panic!("{other}"),
            },
            prefix: text("prefix").map(str::to_owned),
            signed: text("signed").unwrap_or("{body}").to_owned(),
            timestamp: text("timestamp_header").map(|name| TimestampSettings {
                source: TimestampSource::Header(name.to_owned()),
                unit: TimestampUnit::Seconds,
            }),
            ..HmacSettings::new("replaced")
        }
    }

    pub(crate) fn verifier(&self) -> Verifier {
        Verifier::new(self.settings()).unwrap_or_else(|problem| panic!("{}: {problem}", self.id))
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        match self.body_encoding.as_deref() {
            Some("base64") => BASE64.decode(self.request.body.as_bytes()).unwrap(),
            None => self.request.body.clone().into_bytes(),
            Some(other) => panic!("{other}"),
        }
    }

    pub(crate) fn received(&self) -> ReceivedRequest {
        ReceivedRequest { body: self.body(), ..self.request.received() }
    }
}

impl RecordedRequest {
    pub(crate) fn received(&self) -> ReceivedRequest {
        ReceivedRequest {
            method: self.method.clone(),
            path_and_query: self.url.clone().unwrap_or_else(|| "/in".to_owned()),
            headers: self.headers.clone().into_iter().collect(),
            body: self.body.clone().into_bytes(),
        }
    }
}

/// An owned request that a test can modify.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub method: String,
    pub path_and_query: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    pub(crate) fn request(&self) -> Request<'_> {
        Request { method: &self.method, path_and_query: &self.path_and_query, headers: &self.headers, body: &self.body }
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.remove(name);
        self.headers.push((name.to_owned(), value.into()));
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.headers.retain(|(own, _)| own != name);
    }
}

/// A request of this sender, signed at `now`.
pub(crate) fn send(verifier: &Verifier, body: &[u8], now: Timestamp) -> Result<ReceivedRequest, SignProblem> {
    let content_type = match body.first() {
        Some(b'{' | b'[') => "application/json",
        _ => "application/x-www-form-urlencoded",
    };
    let unsigned = UnsignedRequest { method: "POST", id: "msg_1", content_type, body };
    let signed = sign(verifier, &unsigned, now)?;
    let mut received = ReceivedRequest {
        method: "POST".to_owned(),
        path_and_query: "/in".to_owned(),
        headers: vec![("content-type".to_owned(), content_type.to_owned())],
        body: signed.body,
    };
    for (name, value) in &signed.headers {
        received.set(name, value.expose());
    }
    if let Some(query) = &signed.query {
        received.path_and_query = format!("/in?{}", query.expose());
    }
    Ok(received)
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_772_443_800).unwrap()
}

/// Settings that can verify and sign, with the secret of this number.
pub(crate) fn settings(scheme: Scheme, number: u8) -> VerifierSettings {
    let secret = match scheme {
        Scheme::StandardWebhooks | Scheme::Svix => {
            format!("whsec_{}", BASE64.encode(&[number; 32]))
        }
        Scheme::Basic | Scheme::Pipedrive | Scheme::Postmark => format!("user:pass:word {number}"),
        _ => format!("secret & number {number}"),
    };
    let mut settings = VerifierSettings {
        public_url: Some("https://hooks.example.com/in/x?tenant=a%40b".to_owned()),
        ..VerifierSettings::new(scheme, vec![Secret::new("main", secret)])
    };
    match scheme {
        Scheme::None => settings.secrets.clear(),
        Scheme::Hmac => settings.hmac = Some(HmacSettings::new("X-Signature")),
        Scheme::Token => settings.token = Some(TokenLocation::Query("to ken".to_owned())),
        Scheme::Sendgrid => {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
            let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
            settings.secrets = vec![Secret::new("main", BASE64.encode(public.as_ref()))];
            let private = BASE64.encode(pair.to_pkcs8v1().unwrap().as_ref());
            settings.signing_key = Some(private.as_str().into());
        }
        _ => {}
    }
    settings
}

/// A verifier that can also sign.
pub(crate) fn verifier(scheme: Scheme, number: u8) -> Verifier {
    Verifier::new(settings(scheme, number)).unwrap()
}

/// A valid body of this sender.
pub(crate) fn body(scheme: Scheme) -> &'static [u8] {
    match scheme {
        Scheme::MicrosoftGraph => br#"{"value":[{"id":"1"},{"id":"2"}]}"#,
        Scheme::Mailchimp => b"type=subscribe&data%5Bid%5D=8a25ff1d98",
        _ => "{\"id\":\"evt_1\",\"type\":\"lead.created\",\"name\":\"Zo\u{eb} \u{1f680}\"}".as_bytes(),
    }
}

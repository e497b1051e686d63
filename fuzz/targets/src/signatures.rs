//! Targets for webhook verification: neither an invented signature nor a tampered body verifies.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_domain::access::oidc::{Discovery, Expected, IdToken, KeySet, PendingSignIn, SignInKey, SigningAlgorithm};
use sluice_domain::time::Time;
use sluice_domain::verify::{
    CredentialLocation, HmacSettings, Request, Scheme, Secret, TokenLocation, UnsignedRequest, Verifier,
    VerifierSettings, handshake, sign, verify,
};

use crate::{choice, line};

const SENDGRID_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";

static VERIFIERS: LazyLock<Vec<Verifier>> =
    LazyLock::new(|| Scheme::ALL.iter().map(|scheme| verifier(*scheme)).collect());

fn now() -> Timestamp {
    Timestamp::from_second(1_790_000_000).unwrap_or_default()
}

fn verifier(scheme: Scheme) -> Verifier {
    let secret = match scheme {
        Scheme::StandardWebhooks | Scheme::Svix => "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        Scheme::Basic | Scheme::Pipedrive | Scheme::Postmark => "a user:and a long password",
        Scheme::Sendgrid => SENDGRID_KEY,
        _ => "a secret that random input does not contain",
    };
    let secrets = if scheme == Scheme::None { vec![] } else { vec![Secret::new("main", secret)] };
    let settings = VerifierSettings {
        public_url: Some("https://hooks.example.com/in?tenant=a".to_owned()),
        hmac: (scheme == Scheme::Hmac).then(|| HmacSettings::new("X-Signature")),
        token: (scheme == Scheme::Token).then(|| TokenLocation::Query("token".to_owned())),
        ..VerifierSettings::new(scheme, secrets)
    };
    Verifier::new(settings).unwrap_or_else(|problem| panic!("{scheme}: {problem}"))
}

/// The first byte selects the scheme, the next lines fill its headers and the query, the rest is the body.
pub(crate) fn signature(input: &[u8]) {
    let (chosen, mut rest) = choice(input);
    let verifier = &VERIFIERS[chosen % VERIFIERS.len()];
    let mut next = || {
        let (value, remaining) = line(rest);
        rest = remaining;
        value.to_vec()
    };
    let mut headers: Vec<(String, Vec<u8>)> = vec![("content-type".to_owned(), next())];
    for place in verifier.credential_locations() {
        match place {
            CredentialLocation::Signed(name) | CredentialLocation::Token(name) => headers.push((name, next())),
            CredentialLocation::Bearer | CredentialLocation::Basic => {
                headers.push(("authorization".to_owned(), next()))
            }
            CredentialLocation::Query(_) | CredentialLocation::Body => {}
        }
    }
    let path_and_query = format!("/in?{}", String::from_utf8_lossy(&next()));
    for method in ["POST", "GET"] {
        let request = Request { method, path_and_query: &path_and_query, headers: &headers, body: rest };
        let _ = handshake(verifier, &request, now());
        let verified = verify(verifier, &request, now());
        assert!(verified.is_err() || verifier.scheme() == Scheme::None, "{} verified {request:?}", verifier.scheme());
    }
}

/// The first byte selects the scheme, the second a bit of the signed body to flip.
pub(crate) fn tampering(input: &[u8]) {
    let (chosen, rest) = choice(input);
    let (bit, body) = choice(rest);
    let verifier = &VERIFIERS[chosen % VERIFIERS.len()];
    let scheme = verifier.scheme();
    let content_type = if body.starts_with(b"{") || body.starts_with(b"[") {
        "application/json"
    } else {
        "application/x-www-form-urlencoded"
    };
    let unsigned = UnsignedRequest { method: "POST", id: "msg_1", content_type, body };
    let Ok(signed) = sign(verifier, &unsigned, now()) else { return };
    let mut headers = vec![("content-type".to_owned(), content_type.to_owned())];
    headers.extend(signed.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())));
    let path_and_query = match &signed.query {
        Some(query) => format!("/in?{}", query.expose()),
        None => "/in".to_owned(),
    };
    let verifies = |body: &[u8]| {
        let request = Request { method: "POST", path_and_query: &path_and_query, headers: &headers, body };
        verify(verifier, &request, now()).is_ok()
    };
    // With a credential in the body, an arbitrary body cannot be signed.
    let in_body = verifier.credential_locations().contains(&CredentialLocation::Body);
    assert!(in_body || verifies(&signed.body), "{scheme} rejects its own signature");
    let signs_body = verifier.credential_locations().iter().any(|place| matches!(place, CredentialLocation::Signed(_)));
    // Twilio signs the decoded fields of a form, not its bytes.
    if signs_body && !signed.body.is_empty() && scheme != Scheme::Twilio {
        let mut changed = signed.body.clone();
        let length = changed.len();
        changed[bit / 8 % length] ^= 1 << (bit % 8);
        assert!(!verifies(&changed), "{scheme} accepts a changed body");
    }
}

/// The lines are an ID token, a key set, a description of a provider and the cookie of a sign-in. No invented token is signed by the
/// provider's key, and no invented cookie is one of this process.
pub(crate) fn id_token(input: &[u8]) {
    let (token, rest) = line(input);
    let (keys, rest) = line(rest);
    let (description, cookie) = line(rest);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let document = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let (issuer, now) = ("https://login.example", Time(1_790_000_000_000));
    let _ = Discovery::read(&document(description), issuer);
    let own = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwaaPJHURo0", "kid": "k" }] });
    let algorithms =
        ["EdDSA", "RS256", "ES256", "PS256"].map(SigningAlgorithm::parse).into_iter().flatten().collect::<Vec<_>>();
    let expected = Expected { issuer, client_id: "sluice", nonce: "n", algorithms: &algorithms, now };
    let token = text(token);
    if let Ok(keys) = KeySet::read(&document(keys)) {
        let _ = IdToken::verify(&token, &keys, expected);
    }
    if let Ok(keys) = KeySet::read(&own) {
        assert!(IdToken::verify(&token, &keys, expected).is_err(), "{token}");
    }
    let key = SignInKey::new("a key that random input does not contain");
    assert!(PendingSignIn::from_cookie(&text(cookie), &key).is_none());
}

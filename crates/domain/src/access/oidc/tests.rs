use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair, RsaKeyPair, RsaPublicKeyComponents};
use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::*;
use crate::access::Role;
use crate::time::Time;

const ISSUER: &str = "https://login.example/realms/main";
const NOW: Time = Time(1_800_000_000_000);

fn settings() -> OidcSettings {
    let group = |group: &str, role, reveal| GroupRights { group: group.into(), role, reveal };
    OidcSettings {
        issuer: ISSUER.into(),
        name: "Example".into(),
        client_id: "sluice".into(),
        client_secret: Some("secret".into()),
        public_url: "https://sluice.example".into(),
        scopes: vec!["openid".into(), "email".into()],
        name_claim: "email".into(),
        groups_claim: "groups".into(),
        groups: vec![
            group("ops", Role::Operator, false),
            group("admins", Role::Admin, false),
            group("support", Role::Viewer, true),
        ],
        default_role: None,
    }
}

fn claims() -> Value {
    let now = NOW.seconds();
    json!({
        "iss": ISSUER, "aud": "sluice", "sub": "4711", "nonce": "n", "iat": now, "exp": now + 300,
        "email": "ann@example.com", "email_verified": true, "groups": ["ops"],
    })
}

fn with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().shift_remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

/// An Ed25519 key of a provider.
struct Signer {
    pair: Ed25519KeyPair,
    encoding: EncodingKey,
}

impl Signer {
    fn new() -> Signer {
        let pair = Ed25519KeyPair::generate().unwrap();
        let document = pair.to_pkcs8().unwrap();
        Signer { pair, encoding: EncodingKey::from_ed_der(document.as_ref()) }
    }

    fn public(&self, id: &str) -> Value {
        let x = BASE64URL_NOPAD.encode(self.pair.public_key().as_ref());
        json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": id, "use": "sig", "alg": "EdDSA" })
    }

    fn sign(&self, id: Option<&str>, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = id.map(str::to_owned);
        jsonwebtoken::encode(&header, claims, &self.encoding).unwrap()
    }
}

fn keys(keys: &[Value]) -> KeySet {
    KeySet::read(&json!({ "keys": keys })).unwrap()
}

fn expected(algorithms: &[SigningAlgorithm]) -> Expected<'_> {
    Expected { issuer: ISSUER, client_id: "sluice", nonce: "n", algorithms, now: NOW }
}

fn verify(token: &str, keys: &KeySet) -> Result<IdToken, TokenProblem> {
    IdToken::verify(token, keys, expected(&[SigningAlgorithm::EdDsa, SigningAlgorithm::Rs256]))
}

#[test]
fn claims_decide_whether_a_token_is_believed() {
    let signer = Signer::new();
    let keys = keys(&[signer.public("k")]);
    let now = NOW.seconds();
    let cases = [
        (json!({}), Ok(())),
        (json!({ "iss": "https://login.example/realms/main/" }), Err(TokenProblem::Issuer)),
        (json!({ "iss": null }), Err(TokenProblem::Issuer)),
        (json!({ "aud": "another" }), Err(TokenProblem::Audience)),
        (json!({ "aud": null }), Err(TokenProblem::Audience)),
        (json!({ "aud": [] }), Err(TokenProblem::Audience)),
        (json!({ "aud": { "sluice": true } }), Err(TokenProblem::Audience)),
        (json!({ "aud": ["sluice"] }), Ok(())),
        (json!({ "aud": ["sluice", "another"] }), Err(TokenProblem::Audience)),
        (json!({ "aud": ["sluice", "account"], "azp": "sluice" }), Ok(())),
        (json!({ "aud": ["another"], "azp": "sluice" }), Err(TokenProblem::Audience)),
        (json!({ "azp": "another" }), Err(TokenProblem::Audience)),
        (json!({ "azp": 5 }), Err(TokenProblem::Audience)),
        (json!({ "exp": now - 59 }), Ok(())),
        (json!({ "exp": now - 60 }), Err(TokenProblem::Expired)),
        (json!({ "exp": null }), Err(TokenProblem::Expired)),
        (json!({ "exp": "9999999999" }), Err(TokenProblem::Expired)),
        (json!({ "exp": (now as f64) + 0.5 }), Ok(())),
        (json!({ "iat": now + 60, "exp": now + 400 }), Ok(())),
        (json!({ "iat": now + 61, "exp": now + 400 }), Err(TokenProblem::Early)),
        (json!({ "iat": null }), Err(TokenProblem::Early)),
        (json!({ "iat": now - 660 }), Ok(())),
        (json!({ "iat": now - 661 }), Err(TokenProblem::Old)),
        (json!({ "iat": i64::MIN, "exp": i64::MAX }), Err(TokenProblem::Old)),
        (json!({ "nbf": now + 61 }), Err(TokenProblem::Early)),
        (json!({ "nbf": now + 60 }), Ok(())),
        (json!({ "nonce": "another" }), Err(TokenProblem::Nonce)),
        (json!({ "nonce": "" }), Err(TokenProblem::Nonce)),
        (json!({ "nonce": null }), Err(TokenProblem::Nonce)),
        (json!({ "sub": null }), Err(TokenProblem::Subject)),
        (json!({ "sub": "" }), Err(TokenProblem::Subject)),
        (json!({ "sub": "a".repeat(256) }), Err(TokenProblem::Subject)),
    ];
    for (changes, result) in cases {
        let token = signer.sign(Some("k"), &with(changes.clone()));
        assert_eq!(verify(&token, &keys).map(|_| ()), result, "{changes}");
    }
}

#[test]
fn key_is_chosen_by_its_id_and_type_and_not_by_the_token_alone() {
    let (signer, stranger) = (Signer::new(), Signer::new());
    let published = keys(&[signer.public("a"), stranger.public("b")]);
    assert!(verify(&signer.sign(Some("a"), &claims()), &published).is_ok());
    let other_key = signer.sign(Some("b"), &claims());
    assert_eq!(verify(&other_key, &published), Err(TokenProblem::Signature));
    assert_eq!(verify(&signer.sign(Some("c"), &claims()), &published), Err(TokenProblem::UnknownKey));
    assert_eq!(verify(&signer.sign(None, &claims()), &published), Err(TokenProblem::UnknownKey), "two could fit");
    assert!(verify(&signer.sign(None, &claims()), &keys(&[signer.public("a")])).is_ok(), "one fits");
    let mut for_encryption = signer.public("a");
    for_encryption["use"] = "enc".into();
    assert_eq!(verify(&signer.sign(Some("a"), &claims()), &keys(&[for_encryption])), Err(TokenProblem::UnknownKey));
    let mut other_algorithm = signer.public("a");
    other_algorithm["alg"] = "ES256".into();
    assert_eq!(verify(&signer.sign(Some("a"), &claims()), &keys(&[other_algorithm])), Err(TokenProblem::UnknownKey));
    let not_announced = expected(&[SigningAlgorithm::Rs256]);
    let refused = IdToken::verify(&signer.sign(Some("a"), &claims()), &published, not_announced);
    assert_eq!(refused, Err(TokenProblem::Algorithm("EdDSA".into())));
}

#[test]
fn key_in_the_header_does_not_count() {
    let (signer, stranger) = (Signer::new(), Signer::new());
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = Some("k".into());
    header.jwk = serde_json::from_value(stranger.public("k")).unwrap();
    header.jku = Some("https://evil.example/keys".into());
    let token = jsonwebtoken::encode(&header, &claims(), &stranger.encoding).unwrap();
    assert_eq!(verify(&token, &keys(&[signer.public("k")])), Err(TokenProblem::Signature));
}

#[test]
fn unsigned_token_and_public_key_as_shared_secret_are_refused() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let parts = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
    let encode = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    let public = json!({ "kty": "RSA", "n": encode(&parts.n), "e": encode(&parts.e), "kid": "k" });
    let oct = json!({ "kty": "oct", "k": encode(&parts.n), "kid": "k" });
    let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    for secret in [parts.n.as_slice(), public.to_string().as_bytes(), pair.public_key().as_ref(), der.as_ref()] {
        for set in [keys(std::slice::from_ref(&public)), keys(&[oct.clone(), public.clone()])] {
            for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
                let mut header = Header::new(algorithm);
                header.kid = Some("k".into());
                let token = jsonwebtoken::encode(&header, &claims(), &EncodingKey::from_secret(secret)).unwrap();
                assert!(matches!(verify(&token, &set), Err(TokenProblem::Algorithm(_))), "{algorithm:?}");
            }
        }
    }
    assert_eq!(keys(&[oct]).len(), 0, "shared secrets are no keys of a provider");
    for name in ["none", "None", "NONE", "nOnE", "", "RS256\u{0}"] {
        let header = encode(json!({ "alg": name, "kid": "k" }).to_string().as_bytes());
        for signature in ["", "AAAA"] {
            let token = format!("{header}.{}.{signature}", encode(claims().to_string().as_bytes()));
            assert!(
                matches!(verify(&token, &keys(std::slice::from_ref(&public))), Err(TokenProblem::Algorithm(_))),
                "{name}"
            );
        }
    }
}

#[test]
fn text_that_is_no_token_is_refused() {
    let signer = Signer::new();
    let keys = keys(&[signer.public("k")]);
    let whole = signer.sign(Some("k"), &claims());
    let parts: Vec<&str> = whole.split('.').collect();
    for text in ["", ".", "..", "a.b", "a.b.c", "a.b.c.d.e", "€.€.€", &format!("{}.{}", parts[0], parts[1])] {
        assert_eq!(verify(text, &keys), Err(TokenProblem::Malformed), "{text}");
    }
    let cut = format!("{}.{}.{}", parts[0], parts[1], &parts[2][..10]);
    assert_eq!(verify(&cut, &keys), Err(TokenProblem::Signature));
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = Some("k".into());
    header.crit = Some(vec!["exp".into()]);
    let critical = jsonwebtoken::encode(&header, &claims(), &signer.encoding).unwrap();
    assert_eq!(verify(&critical, &keys), Err(TokenProblem::Critical));
}

#[test]
fn groups_decide_about_role_and_reveal() {
    let admit = |settings: &OidcSettings, changes: Value| {
        settings.admit(&IdToken::of(with(changes))).map(|user| (user.role, user.reveal))
    };
    let refused = || Err(OidcRefusal::NoRole { user: "oidc:ann@example.com".into() });
    let strict = settings();
    for (groups, result) in [
        (json!(["ops"]), Ok((Role::Operator, false))),
        (json!(["ops", "admins"]), Ok((Role::Admin, false))),
        (json!(["support", "ops"]), Ok((Role::Operator, true))),
        (json!("ops"), Ok((Role::Operator, false))),
        (json!("ops admins"), refused()),
        (json!(["OPS", "ops ", "op"]), refused()),
        (json!([{ "ops": true }, 5, null]), refused()),
        (json!([]), refused()),
        (json!({ "ops": "ops" }), refused()),
        (Value::Null, refused()),
    ] {
        assert_eq!(admit(&strict, json!({ "groups": groups })), result, "{groups}");
    }
    let open = OidcSettings { default_role: Some(Role::Viewer), ..settings() };
    assert_eq!(admit(&open, json!({ "groups": [] })), Ok((Role::Viewer, false)));
    assert_eq!(admit(&open, json!({ "groups": ["support"] })), Ok((Role::Viewer, true)));
    let nested = OidcSettings { groups_claim: "/realm_access/roles".into(), ..settings() };
    assert_eq!(admit(&nested, json!({ "realm_access": { "roles": ["ops"] } })), Ok((Role::Operator, false)));
    assert_eq!(admit(&nested, json!({ "realm_access": { "roles": 5 } })), refused());
    let by_url = OidcSettings { groups_claim: "https://example.com/groups".into(), ..settings() };
    assert_eq!(admit(&by_url, json!({ "https://example.com/groups": ["admins"] })), Ok((Role::Admin, false)));
}

#[test]
fn address_that_is_not_verified_gives_neither_a_name_nor_a_role() {
    let mut by_email = OidcSettings { groups_claim: "email".into(), ..settings() };
    by_email.groups[0].group = "ann@example.com".into();
    let admit = |changes: Value| by_email.admit(&IdToken::of(with(changes)));
    let user = admit(json!({})).unwrap();
    assert_eq!((user.name.as_str(), user.role), ("oidc:ann@example.com", Role::Operator));
    assert_eq!(admit(json!({ "email_verified": "true" })).unwrap().role, Role::Operator);
    for verified in [Value::Null, json!(false), json!("false"), json!(1), json!("yes")] {
        let refused = Err(OidcRefusal::NoRole { user: "oidc:4711".into() });
        assert_eq!(admit(json!({ "email_verified": verified.clone() })), refused, "{verified}");
    }
}

#[test]
fn name_of_a_provider_is_never_that_of_a_local_user() {
    let name = |claim: &str, changes: Value| {
        let settings = OidcSettings { name_claim: claim.into(), ..settings() };
        settings.admit(&IdToken::of(with(changes))).map(|user| user.name)
    };
    for local in ["ann", "admin", "token:ci", "oidc:ann"] {
        let named = name("preferred_username", json!({ "preferred_username": local })).unwrap();
        assert_eq!(named, format!("oidc:{local}"));
        assert!(crate::access::check_user_name(&named).is_err(), "no local user can have this name");
    }
    for odd in ["", "a b", "<b>ann</b>", "ann\u{202e}", "ann\nroot", "\"", "a&b", &"a".repeat(256)] {
        let refused = Err(OidcRefusal::NoName("preferred_username".into()));
        assert_eq!(name("preferred_username", json!({ "preferred_username": odd })), refused, "{odd}");
        assert_eq!(name("email", json!({ "email": odd })), Ok("oidc:4711".into()), "{odd}");
    }
    assert_eq!(name("upn", json!({})), Err(OidcRefusal::NoName("upn".into())));
    assert_eq!(name("email", json!({ "email": null })), Ok("oidc:4711".into()));
    assert_eq!(name("email", json!({ "email": "ann+x@example.com" })), Ok("oidc:ann+x@example.com".into()));
}

fn pending(key: &SignInKey) -> (PendingSignIn, Callback) {
    let pending = PendingSignIn::new("id".into(), ISSUER, "/events", Time(0));
    let callback = Callback { state: Some(pending.state(key)), code: Some("code".into()), ..Callback::default() };
    (pending, callback)
}

#[test]
fn answer_counts_for_the_sign_in_that_was_started_in_this_browser() {
    let key = SignInKey::new("random");
    let (pending, good) = pending(&key);
    let late = Time(0) + SIGN_IN_LIFETIME;
    let some = |text: &str| Some(text.to_owned());
    let error = |error: &str, description: Option<&str>| Callback {
        error: some(error),
        error_description: description.map(str::to_owned),
        ..good.clone()
    };
    for (callback, names_itself, now, result) in [
        (good.clone(), false, Time(1), Ok("code".to_owned())),
        (good.clone(), false, late, Err(OidcRefusal::NotStarted)),
        (good.clone(), true, Time(1), Err(OidcRefusal::WrongIssuer)),
        (Callback { issuer: some(ISSUER), ..good.clone() }, true, Time(1), Ok("code".to_owned())),
        (
            Callback { issuer: some("https://evil.example"), ..good.clone() },
            false,
            Time(1),
            Err(OidcRefusal::WrongIssuer),
        ),
        (Callback { state: None, ..good.clone() }, false, Time(1), Err(OidcRefusal::WrongState)),
        (Callback { state: some(""), ..good.clone() }, false, Time(1), Err(OidcRefusal::WrongState)),
        (Callback { state: some("guess"), ..error("x", None) }, false, Time(1), Err(OidcRefusal::WrongState)),
        (Callback { code: None, ..good.clone() }, false, Time(1), Err(OidcRefusal::NoCode)),
        (error("access_denied", None), false, Time(1), Err(OidcRefusal::Provider("access_denied".into()))),
        (error("x", Some("no\r\n\u{1b}[31m")), false, Time(1), Err(OidcRefusal::Provider("no[31m (x)".into()))),
    ] {
        assert_eq!(pending.code(&callback, &key, (ISSUER, names_itself), now), result, "{callback:?}");
    }
    let moved = pending.code(&good, &key, ("https://new.example", false), Time(1));
    assert_eq!(moved, Err(OidcRefusal::WrongIssuer), "the configuration names another provider by now");
    let long = error("x", Some(&"a".repeat(5_000)));
    let Err(OidcRefusal::Provider(shown)) = pending.code(&long, &key, (ISSUER, false), Time(1)) else { panic!() };
    assert_eq!(shown.chars().count(), 200);
    let other = PendingSignIn::new("other".into(), ISSUER, "/", Time(0));
    assert_eq!(other.code(&good, &key, (ISSUER, false), Time(1)), Err(OidcRefusal::WrongState), "another browser");
}

#[test]
fn cookie_cannot_be_made_or_changed_by_others() {
    let key = SignInKey::new("random");
    let (pending, _) = pending(&key);
    let cookie = pending.to_cookie(&key);
    assert_eq!(PendingSignIn::from_cookie(&cookie, &key), Some(pending.clone()));
    assert_eq!(PendingSignIn::from_cookie(&cookie, &SignInKey::new("another process")), None);
    let forged = PendingSignIn::new("id".into(), ISSUER, "/users", Time(0)).to_cookie(&SignInKey::new("guess"));
    let swapped = format!("{}.{}", forged.split('.').next().unwrap(), cookie.split('.').nth(1).unwrap());
    for text in ["", ".", "a.b", &forged, &swapped, &cookie[1..], &cookie[..cookie.len() - 1]] {
        assert_eq!(PendingSignIn::from_cookie(text, &key), None, "{text}");
    }
    let secrets = [pending.state(&key), pending.nonce(&key), pending.verifier(&key)];
    assert!(secrets.iter().all(|secret| secret.len() == 43 && !cookie.contains(secret.as_str())));
    assert!(secrets[0] != secrets[1] && secrets[1] != secrets[2] && secrets[0] != secrets[2]);
    assert_eq!(format!("{key:?}"), "SignInKey(***)");
}

#[test]
fn sign_in_returns_to_pages_of_this_console_only() {
    for (next, expected) in
        [("/events?state=dead", "/events?state=dead"), ("//evil.example", "/"), ("/\t/evil.example", "/")]
    {
        assert_eq!(PendingSignIn::new("id".into(), ISSUER, next, Time(0)).next(), expected);
    }
    let long = format!("/{}", "a".repeat(2_000));
    assert_eq!(PendingSignIn::new("id".into(), ISSUER, &long, Time(0)).next(), "/");
}

#[test]
fn sign_in_counts_once_and_memory_is_bounded() {
    let mut used = UsedSignIns::default();
    let sign_in = |id: u32| PendingSignIn::new(id.to_string(), ISSUER, "/", Time(0));
    assert!(used.take(&sign_in(0), Time(0)) && !used.take(&sign_in(0), Time(1)));
    for id in 1..10_000 {
        assert!(used.take(&sign_in(id), Time(1)));
    }
    assert!(!used.take(&sign_in(9_999), Time(2)), "recent ones are remembered");
    assert!(used.take(&sign_in(1), Time(2)), "the oldest are forgotten");
}

fn description() -> Value {
    json!({
        "issuer": ISSUER,
        "authorization_endpoint": "https://login.example/auth",
        "token_endpoint": "https://login.example/token",
        "jwks_uri": "https://login.example/keys",
        "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
    })
}

#[test]
fn description_must_be_that_of_the_issuer_and_protected() {
    let read = |name: &str, value: Value| {
        let mut document = description();
        document[name] = value;
        Discovery::read(&document, ISSUER)
    };
    let good = Discovery::read(&description(), ISSUER).unwrap();
    assert_eq!(good.algorithms, [SigningAlgorithm::Rs256], "neither HS256 nor none");
    assert_eq!(good.authentication(&settings()), ClientAuthentication::Basic);
    assert_eq!(good.authentication(&OidcSettings { client_secret: None, ..settings() }), ClientAuthentication::Public);
    let post = read("token_endpoint_auth_methods_supported", json!(["client_secret_post"])).unwrap();
    assert_eq!(post.authentication(&settings()), ClientAuthentication::Post);
    for (name, value, problem) in [
        ("issuer", json!("https://evil.example"), "describes the issuer `https://evil.example`"),
        ("issuer", json!(null), "names no issuer"),
        ("token_endpoint", json!("http://login.example/token"), "`token_endpoint` is not an https address"),
        ("token_endpoint", json!(null), "no `token_endpoint`"),
        ("jwks_uri", json!("file:///etc/passwd"), "`jwks_uri` is not an https address"),
        ("authorization_endpoint", json!("javascript:alert(1)"), "`authorization_endpoint` is not"),
        ("authorization_endpoint", json!("https://login.example/a b"), "`authorization_endpoint` is not"),
        ("authorization_endpoint", json!("https://login.example/#x"), "`authorization_endpoint` is not"),
        ("id_token_signing_alg_values_supported", json!(["HS256", "none"]), "no algorithm"),
    ] {
        let refused = read(name, value.clone()).unwrap_err();
        assert!(refused.contains(problem), "{name} {value}: {refused}");
    }
    assert_eq!(Discovery::address("https://a.example/"), "https://a.example/.well-known/openid-configuration");
}

#[test]
fn browser_is_sent_to_the_provider_with_state_nonce_and_challenge() {
    let key = SignInKey::new("random");
    let (pending, _) = pending(&key);
    let mut document = description();
    document["authorization_endpoint"] = json!("https://login.example/auth?tenant=a");
    let discovery = Discovery::read(&document, ISSUER).unwrap();
    let address = discovery.authorization_address(&settings(), &pending, &key);
    let start = "https://login.example/auth?tenant=a&response_type=code&client_id=sluice\
                 &redirect_uri=https%3A%2F%2Fsluice.example%2Fsign-in%2Foidc%2Fcallback&scope=openid%20email&state=";
    assert!(address.starts_with(start), "{address}");
    assert!(address.contains(&format!("&code_challenge={}&code_challenge_method=S256", pending.challenge(&key))));
    assert!(address.contains(&pending.nonce(&key)) && !address.contains(&pending.verifier(&key)), "{address}");
}

#[test]
fn addresses_are_https_or_on_this_machine() {
    for url in ["https://login.example", "http://localhost:8090", "http://127.0.0.1:8090", "http://[::1]:8090"] {
        assert_eq!((issuer_problem(url), public_url_problem(url)), (None, None), "{url}");
    }
    for url in ["http://login.example", "http://localhost.evil.example", "https://", "ftp://a", "http://a@127.0.0.1"] {
        assert!(issuer_problem(url).is_some() && public_url_problem(url).is_some(), "{url}");
    }
    assert_eq!(issuer_problem("https://login.example/realms/a"), None);
    assert!(issuer_problem("https://login.example/?a=b").is_some());
    assert!(public_url_problem("https://sluice.example/console").is_some());
}

//! Sign-in by an OpenID provider: over HTTP as a browser would do it, and what an attacker would try.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, Ordering};

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use serde_json::{Value, json};
use sluice_simulator::faults::{CallKind, Scripted};
use sluice_simulator::openid::{Mistake, SignatureKind};
use sluice_simulator::{Fault, FaultPlan, OpenId, OpenIdSettings, OpenIdUser};

use crate::fixture::{World, until};

pub(crate) const GROUPS: &str = r"  groups:
    - {group: sluice-admins, role: admin, reveal: true}
    - {group: sluice-operators, role: operator}
";

/// A node whose users sign in by a simulated provider.
pub(crate) struct Provided {
    pub world: World,
    pub provider: OpenId,
}

impl Provided {
    pub(crate) async fn start() -> Provided {
        Provided::start_with(OpenIdSettings::default(), GROUPS).await
    }

    pub(crate) async fn start_with(settings: OpenIdSettings, more: &str) -> Provided {
        let world = World::start().await;
        let redirect_uris = vec![format!("{}/sign-in/oidc/callback", world.admin)];
        let provider = OpenId::start(OpenIdSettings { redirect_uris, ..settings }).unwrap();
        let provided = Provided { world, provider };
        provided.configure(&provided.provider.issuer(), more).await;
        provided
    }

    /// Writes the section and reloads.
    pub(crate) async fn configure(&self, issuer: &str, more: &str) {
        configure(&self.world, issuer, more).await;
    }

    /// Signs a user of the provider in, with another browser at another address.
    pub(crate) async fn sign_in(&self, login: &str) -> (Person, Seen) {
        let mut person = Person::new(&self.world);
        let callback = person.start(login).await;
        let seen = person.go(&callback).await;
        (person, seen)
    }
}

pub(crate) async fn configure(world: &World, issuer: &str, more: &str) {
    let secret = world.config_path("secrets/OIDC_SECRET");
    std::fs::write(secret, OpenIdSettings::default().client_secret).unwrap();
    let admin = &world.admin;
    let text = format!(
        "oidc:\n  issuer: {issuer}\n  name: Example login\n  client_id: sluice\n  client_secret: '${{secrets.OIDC_SECRET}}'\n  \
         public_url: {admin}\n{more}"
    );
    std::fs::write(world.config_path("oidc.yml"), text).unwrap();
    let reloaded = world.act("/api/v1/reload", json!({})).await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.body);
}

/// A browser without script, which keeps its cookies and stops at redirects.
pub(crate) struct Person {
    client: reqwest::Client,
    pub admin: String,
    pub cookies: BTreeMap<String, String>,
}

pub(crate) struct Seen {
    pub status: u16,
    pub location: String,
    pub html: String,
}

impl Person {
    /// Each has an address of its own, so that failures of one do not throttle another.
    pub(crate) fn new(world: &World) -> Person {
        static NEXT: AtomicU8 = AtomicU8::new(2);
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, NEXT.fetch_add(1, Ordering::Relaxed)));
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let client = client.local_address(address).build().unwrap();
        Person { client, admin: world.admin.clone(), cookies: BTreeMap::new() }
    }

    pub(crate) async fn go(&mut self, url: &str) -> Seen {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let url = if url.starts_with('/') { format!("{}{url}", self.admin) } else { url.to_owned() };
        let is_own = url.starts_with(&self.admin);
        let request = self.client.get(&url);
        let request = if is_own { request.header(COOKIE, cookies.join("; ")) } else { request };
        let response = request.send().await.unwrap();
        for cookie in response.headers().get_all(SET_COOKIE).iter().filter(|_| is_own) {
            let (name, value) = cookie.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
            match value {
                "" => self.cookies.remove(name),
                value => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        let location = response.headers().get(LOCATION).map_or("", |value| value.to_str().unwrap()).to_owned();
        Seen { status: response.status().as_u16(), location, html: response.text().await.unwrap() }
    }

    /// Goes to the provider and signs in there. Returns the address that the provider sends the browser back to.
    pub(crate) async fn start(&mut self, login: &str) -> String {
        self.start_for(login, "/").await
    }

    pub(crate) async fn start_for(&mut self, login: &str, next: &str) -> String {
        let started = self.go(&format!("/sign-in/oidc?next={next}")).await;
        assert_eq!(started.status, 303, "{}", started.html);
        let answer = self.go(&format!("{}&login_hint={login}", started.location)).await;
        assert_eq!(answer.status, 303, "{}", answer.html);
        answer.location
    }

    pub(crate) fn has_session(&self) -> bool {
        self.cookies.contains_key("sluice_session")
    }
}

/// The same address with another value of a field; `None` removes it.
fn replaced(url: &str, name: &str, value: Option<&str>) -> String {
    let (path, query) = url.split_once('?').unwrap();
    let kept = query.split('&').filter(|pair| pair.split('=').next() != Some(name)).map(str::to_owned);
    let fields: Vec<String> = kept.chain(value.map(|value| format!("{name}={value}"))).collect();
    format!("{path}?{}", fields.join("&"))
}

fn field(url: &str, name: &str) -> String {
    let query = url.split_once('?').unwrap().1;
    let found = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
    found.unwrap_or_else(|| panic!("no {name} in {url}")).to_owned()
}

async fn audit_of(world: &World, actor: &str) -> Vec<Value> {
    let entries = world.get("/api/v1/audit").await["items"].as_array().unwrap().clone();
    entries.into_iter().filter(|entry| entry["actor"] == actor).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_signs_users_in_with_the_role_of_their_group() {
    let provided = Provided::start().await;
    let world = &provided.world;
    let page = Person::new(world).go("/sign-in?next=/events").await;
    let link = format!("href=\"{}/sign-in/oidc?next=%2Fevents\"", world.admin);
    assert!(page.html.contains(&link) && page.html.contains("Sign in with Example login"), "{}", page.html);

    let mut ann = Person::new(world);
    let callback = ann.start_for("ann", "/jobs?state=dead").await;
    let seen = ann.go(&callback).await;
    assert_eq!((seen.status, seen.location.as_str()), (303, "/jobs?state=dead"), "{}", seen.html);
    assert_eq!(ann.cookies.keys().collect::<Vec<_>>(), ["sluice_session"], "the sign-in is over");
    let overview = ann.go("/").await;
    assert!(overview.html.contains("oidc:ann@example.com <small>admin + reveal</small>"), "{}", overview.html);
    let users = ann.go("/users").await;
    assert!(users.status == 200 && users.html.contains(&provided.provider.issuer()), "{}", users.html);
    let entry = audit_of(world, "oidc:ann@example.com").await.remove(0);
    assert_eq!(entry["action"], "sign in");
    let detail = entry["detail"].as_str().unwrap();
    assert!(detail.contains("role admin with reveal") && detail.contains("subject sub-ann"), "{detail}");
    let session = world.get("/api/v1/sessions").await[0].clone();
    assert_eq!(
        (&session["user"], &session["issuer"]),
        (&json!("oidc:ann@example.com"), &json!(provided.provider.issuer()))
    );

    let (mut bob, seen) = provided.sign_in("bob").await;
    assert_eq!(seen.status, 303);
    assert!(bob.go("/").await.html.contains("oidc:bob@example.com <small>operator</small>"));
    assert_eq!(bob.go("/users").await.status, 403);

    let (vic, seen) = provided.sign_in("vic").await;
    assert_eq!(seen.status, 403);
    assert!(seen.html.contains("oidc:vic@example.com is signed in at the provider, but has no group"), "{}", seen.html);
    assert!(!vic.has_session() && seen.html.contains("name=\"password\""));
    let entry = audit_of(world, "oidc:vic@example.com").await.remove(0);
    assert_eq!((&entry["action"], &entry["object"]), (&json!("refuse"), &json!("user oidc:vic@example.com")));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_accepted_algorithm_signs_in() {
    for signatures in SignatureKind::ALL {
        let provided = Provided::start_with(OpenIdSettings { signatures, ..OpenIdSettings::default() }, GROUPS).await;
        let (bob, seen) = provided.sign_in("bob").await;
        assert_eq!(seen.status, 303, "{signatures:?}: {}", seen.html);
        assert!(bob.has_session());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_answers_with_a_mistake_sign_nobody_in() {
    let provided = Provided::start().await;
    for (mistake, reason) in [
        (Mistake::WrongNonce, "nonce"),
        (Mistake::NoNonce, "nonce"),
        (Mistake::WrongAudience, "another client"),
        (Mistake::SeveralAudiences, "another client"),
        (Mistake::WrongParty, "another client"),
        (Mistake::WrongIssuer, "another issuer"),
        (Mistake::Expired, "has expired"),
        (Mistake::Future, "not valid yet"),
        (Mistake::OtherKey, "signature is wrong"),
        (Mistake::UnknownKey, "no key of the provider"),
        (Mistake::NoSignature, "algorithm is `none`"),
        (Mistake::HmacWithPublicKey, "algorithm is `HS256`"),
        (Mistake::EmbeddedKey, "no key of the provider"),
        (Mistake::CriticalHeader, "demands an extension"),
        (Mistake::OtherIssuerInAnswer, "not from the configured provider"),
        (Mistake::NoIssuerInAnswer, "not from the configured provider"),
    ] {
        provided.provider.set_mistake(Some(mistake));
        let (person, seen) = provided.sign_in("ann").await;
        assert!(seen.status == 401 && !person.has_session(), "{mistake:?}: {}", seen.status);
        assert!(
            seen.html.contains(&reason.replace('`', "&#96;")) || seen.html.contains(reason),
            "{mistake:?}: {}",
            seen.html
        );
    }
    provided.provider.set_mistake(Some(Mistake::NoIdToken));
    let (person, seen) = provided.sign_in("ann").await;
    assert!(seen.status == 502 && !person.has_session(), "{}", seen.html);
    assert!(audit_of(&provided.world, "oidc:ann@example.com").await.is_empty());
    provided.provider.set_mistake(None);
    assert!(provided.sign_in("ann").await.0.has_session());
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_counts_once_and_in_the_browser_that_started_it() {
    let provided = Provided::start().await;
    let world = &provided.world;
    // The victim is led to the answer of the attacker's sign-in: they would work in the attacker's account.
    let mut attacker = Person::new(world);
    let callback = attacker.start("bob").await;
    let mut victim = Person::new(world);
    let seen = victim.go(&callback).await;
    assert!(seen.status == 401 && seen.html.contains("no sign-in was started in this browser"), "{}", seen.html);
    victim.start("ann").await;
    let seen = victim.go(&callback).await;
    assert!(seen.status == 401 && seen.html.contains("belongs to another sign-in"), "{}", seen.html);
    assert!(!victim.has_session() && provided.provider.truth().tokens == 0, "no code was redeemed");

    for (name, value) in
        [("state", None), ("state", Some("")), ("state", Some("guess")), ("code", None), ("code", Some("guess"))]
    {
        let mut person = Person::new(world);
        let callback = replaced(&person.start("ann").await, name, value);
        assert_eq!(person.go(&callback).await.status, 401, "{name} {value:?}");
        assert!(!person.has_session());
    }

    let mut ann = Person::new(world);
    let callback = ann.start("ann").await;
    let before = ann.cookies.clone();
    assert_eq!(ann.go(&callback).await.status, 303);
    ann.cookies = before;
    let seen = ann.go(&callback).await;
    assert!(seen.status == 401 && seen.html.contains("has been used"), "{}", seen.html);
    assert_eq!(provided.provider.truth().codes_replayed, 0, "the code is not sent a second time");
    // The code of one sign-in in another one: the verifier does not fit.
    let mut first = Person::new(world);
    let code = field(&first.start("ann").await, "code");
    let mut second = Person::new(world);
    let callback = replaced(&second.start("bob").await, "code", Some(&code));
    let seen = second.go(&callback).await;
    assert!(seen.status == 401 && seen.html.contains("invalid_grant"), "{}", seen.html);
    assert!(!second.has_session());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_answers_are_throttled_and_audited_once() {
    let provided = Provided::start().await;
    let mut person = Person::new(&provided.world);
    // Any page can make a browser open this address: that is no guess.
    for n in 0..20 {
        let seen = person.go("/sign-in/oidc/callback?state=guess&code=guess").await;
        assert_eq!(seen.status, 401, "{n}");
    }
    for n in 0..10 {
        person.start("ann").await;
        let seen = person.go("/sign-in/oidc/callback?state=guess&code=guess").await;
        assert_eq!(seen.status, 401, "{n}");
    }
    let callback = person.start("ann").await;
    let seen = person.go(&callback).await;
    assert!(seen.status == 429 && !person.has_session(), "even a right one, for a while: {}", seen.status);
    let is_failure =
        |entry: &&Value| entry["detail"].as_str().unwrap_or_default().contains("wrong sign-in by OpenID Connect");
    let failures = async || {
        let audit = provided.world.get("/api/v1/audit?limit=200").await;
        audit["items"].as_array().unwrap().iter().filter(is_failure).count()
    };
    // The entry is written after the response.
    until(|| async { (failures().await > 0).then_some(()) }).await;
    assert_eq!(failures().await, 1);
    assert!(provided.sign_in("ann").await.0.has_session(), "another address is not affected");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_the_provider_stays_text_and_needs_a_started_sign_in() {
    let provided = Provided::start().await;
    let markup = "error=%3Cscript%3Ealert(1)%3C/script%3E&error_description=%3Cimg%20src=x%20onerror=alert(1)%3E";
    let mut stranger = Person::new(&provided.world);
    let seen = stranger.go(&format!("/sign-in/oidc/callback?{markup}")).await;
    assert!(seen.status == 401 && !seen.html.contains("alert(1)"), "{}", seen.html);
    let mut person = Person::new(&provided.world);
    let callback = person.start("ann").await;
    let seen = person.go(&format!("{}&{markup}", replaced(&callback, "code", None))).await;
    assert_eq!(seen.status, 401);
    assert!(!seen.html.contains("<script>alert") && !seen.html.contains("<img"), "{}", seen.html);
    assert!(seen.html.contains("the provider says: &#60;img"), "{}", seen.html);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_by_the_provider_never_leads_to_another_site() {
    let provided = Provided::start().await;
    for next in ["//evil.example", "https%3A%2F%2Fevil.example", "%2F%5Cevil.example", "%2F%09%2Fevil.example"] {
        let mut person = Person::new(&provided.world);
        let callback = person.start_for("bob", next).await;
        let seen = person.go(&callback).await;
        assert_eq!((seen.status, seen.location.as_str()), (303, "/"), "{next}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_that_is_away_or_sends_nonsense_leaves_local_sign_in() {
    for (name, plan) in [
        ("away", None),
        ("huge", Some(FaultPlan::always(Fault::HugeBody { bytes: 1 << 30 }))),
        ("redirect", Some(FaultPlan::always(Fault::RedirectLoop))),
        ("unavailable", Some(FaultPlan::always(Fault::ServerUnavailable))),
        ("cut off", Some(FaultPlan::always(Fault::CutResponse))),
    ] {
        let provided = Provided::start().await;
        let world = &provided.world;
        match plan {
            None => provided.provider.close().unwrap(),
            Some(plan) => provided.provider.set_faults(plan).unwrap(),
        }
        let mut person = Person::new(world);
        let seen = person.go("/sign-in/oidc?next=/events").await;
        assert!(
            seen.status == 502 && seen.html.contains("Example login cannot be reached now"),
            "{name}: {}",
            seen.html
        );
        assert!(seen.html.contains("name=\"password\"") && person.cookies.is_empty(), "{name}");
        crate::visitor::Visitor::signed_in(world, None).await;
    }
    let provided = Provided::start().await;
    provided.provider.set_mistake(Some(Mistake::OtherDescription));
    let seen = Person::new(&provided.world).go("/sign-in/oidc").await;
    assert!(seen.status == 502 && seen.html.contains("describes the issuer"), "{}", seen.html);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_the_token_endpoint_do_not_count_against_the_user() {
    let provided = Provided::start().await;
    let mut person = Person::new(&provided.world);
    for _ in 0..12 {
        let callback = person.start("ann").await;
        let plan = FaultPlan::scripted([Scripted::first(1, Fault::ServerUnavailable).only(CallKind::Token)]);
        provided.provider.set_faults(plan).unwrap();
        let seen = person.go(&callback).await;
        assert_eq!(seen.status, 502, "{}", seen.html);
    }
    let callback = person.start("ann").await;
    assert_eq!(person.go(&callback).await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_keys_of_the_provider_are_read_when_a_token_needs_them() {
    let provided = Provided::start().await;
    assert!(provided.sign_in("ann").await.0.has_session());
    provided.provider.rotate_keys().unwrap();
    assert!(provided.sign_in("ann").await.0.has_session());
    let truth = provided.provider.truth();
    assert_eq!((truth.keys_read, truth.descriptions_read), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn user_of_the_provider_never_becomes_a_local_user() {
    let provided =
        Provided::start_with(OpenIdSettings::default(), &format!("  name_claim: preferred_username\n{GROUPS}")).await;
    let world = &provided.world;
    for (name, role) in [("root", "admin"), ("bob", "admin")] {
        let user =
            json!({ "name": name, "role": role, "reveal": true, "password": "correct horse battery", "actor": "root" });
        assert_eq!(world.act("/api/v1/users", user).await.status, 200);
    }
    // Everyone can choose such names at some providers.
    for login in ["root", "admin", "oidc:ann", "token:ci"] {
        let mut user = OpenIdUser::new("mallory", &["sluice-operators"]);
        user.claims["preferred_username"] = login.into();
        provided.provider.put_user(user);
        let (mut mallory, seen) = provided.sign_in("mallory").await;
        assert_eq!(seen.status, 303, "{login}: {}", seen.html);
        let page = mallory.go("/").await.html;
        assert!(page.contains(&format!("oidc:{login} <small>operator</small>")), "{login}");
        assert_eq!(mallory.go("/users").await.status, 403, "{login}");
    }
    let (mut bob, _) = provided.sign_in("bob").await;
    // What happens to the local user does not happen to the other one, and the other way round.
    let local = crate::visitor::Visitor::signed_in(world, Some("bob")).await;
    assert_eq!(world.act("/api/v1/users/bob/remove", json!({ "actor": "root" })).await.status, 200);
    assert_eq!(local.get("/").await.status, 303);
    assert_eq!(bob.go("/").await.status, 200);
    let link = world.act("/api/v1/sign-in-links", json!({ "user": "oidc:bob", "actor": "root" })).await;
    assert_eq!(link.status, 404, "no link signs in as a user of the provider");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_group_refuses_the_next_sign_in_and_another_provider_ends_the_sessions() {
    let provided = Provided::start().await;
    let world = &provided.world;
    let (mut bob, _) = provided.sign_in("bob").await;
    provided.provider.put_user(OpenIdUser::new("bob", &[]));
    assert_eq!(provided.sign_in("bob").await.1.status, 403);
    assert_eq!(bob.go("/").await.status, 200, "a session ends by its own limits");
    provided.provider.put_user(OpenIdUser::new("bob", &["sluice-admins"]));
    let (mut promoted, _) = provided.sign_in("bob").await;
    assert!(promoted.go("/").await.html.contains("<small>admin + reveal</small>"));
    assert!(bob.go("/").await.html.contains("<small>operator</small>"), "the older session keeps its role");
    let other = OpenId::start(OpenIdSettings::default()).unwrap();
    provided.configure(&other.issuer(), GROUPS).await;
    assert_eq!(bob.go("/").await.status, 303);
    assert_eq!(promoted.go("/").await.status, 303);
    std::fs::remove_file(world.config_path("oidc.yml")).unwrap();
    assert_eq!(world.act("/api/v1/reload", json!({})).await.status, 200);
    let mut person = Person::new(world);
    assert_eq!(person.go("/sign-in/oidc").await.status, 404);
    assert!(!person.go("/sign-in").await.html.contains("Sign in with"));
}

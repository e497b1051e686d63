//! Who may sign in, and what each role may do.

use serde_json::{Value, json};

use crate::fixture::{World, lead, until};
use crate::visitor::{Visitor, link};

async fn add_user(world: &World, name: &str, role: &str) {
    let user = json!({ "name": name, "role": role, "password": "correct horse battery", "actor": "root" });
    let added = world.act("/api/v1/users", user).await;
    assert_eq!(added.status, 200, "{}", added.body);
}

async fn newest_audit(world: &World) -> Value {
    world.get("/api/v1/audit").await["items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_sees_a_page_without_signing_in() {
    let world = World::start().await;
    let visitor = Visitor::new(&world);
    for path in ["/", "/events?state=dead", "/users"] {
        let seen = visitor.get(path).await;
        assert!(seen.status == 303 && seen.location.starts_with("/sign-in?next="), "{path}: {}", seen.status);
    }
    let sent = visitor.send_raw("/pause", &[("target", "destination:crm"), ("reason", "x")], &world.admin).await;
    assert_eq!(sent.status, 401);
    assert!(world.get("/api/v1/pauses").await.as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_link_counts_once_and_looking_at_it_does_not_use_it_up() {
    let world = World::start().await;
    let mut visitor = Visitor::new(&world);
    let link = link(&world, None).await;
    for _ in 0..2 {
        assert_eq!(visitor.get(&format!("/sign-in?link={link}")).await.status, 200);
    }
    assert_eq!(visitor.sign_in(&[("link", &link)]).await.status, 303);
    assert_eq!(visitor.get("/").await.status, 200);
    let mut second = Visitor::new(&world);
    let seen = second.sign_in(&[("link", &link)]).await;
    assert!(seen.status == 401 && seen.html.contains("has been used or has expired"), "{}", seen.html);
    assert!(second.cookie.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_never_leads_to_another_site() {
    let world = World::start().await;
    let link = link(&world, None).await;
    let seen = Visitor::new(&world).sign_in(&[("link", &link), ("next", "//evil.example/")]).await;
    assert_eq!(seen.location, "/");
}

#[tokio::test(flavor = "multi_thread")]
async fn password_signs_in_and_guesses_are_throttled() {
    let world = World::start().await;
    add_user(&world, "ann", "operator").await;
    let mut visitor = Visitor::new(&world);
    let seen = visitor.sign_in(&[("user", "ann"), ("password", "correct horse battery")]).await;
    assert_eq!(seen.status, 303, "{}", seen.html);
    assert!(visitor.get("/").await.html.contains("ann <small>operator</small>"));
    let mut stranger = Visitor::new(&world);
    for n in 0..10 {
        let name = if n % 2 == 0 { "ann" } else { "nobody" };
        assert_eq!(stranger.sign_in(&[("user", name), ("password", "a wrong password")]).await.status, 401, "{n}");
    }
    let seen = stranger.sign_in(&[("user", "ann"), ("password", "correct horse battery")]).await;
    assert_eq!(seen.status, 429, "even the right one, for a while");
    assert_eq!(visitor.get("/").await.status, 200, "who has a session keeps it");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_act_is_recorded_under_the_user_and_refused_without_the_role() {
    let world = World::start().await;
    add_user(&world, "vic", "viewer").await;
    add_user(&world, "ann", "operator").await;
    let event = world.post(&lead("ada")).await.event();
    world.settled(&event).await;
    let pause = [("target", "destination:crm"), ("reason", "maintenance"), ("actor", "somebody else")];
    let viewer = Visitor::signed_in(&world, Some("vic")).await;
    for (path, form) in [
        ("/pause", &pause[..]),
        ("/sheets/replay?scope=marked", &[("id", event.as_str())]),
        ("/replays", &[("id", event.as_str()), ("reason", "x")]),
        ("/users", &[("name", "eve"), ("role", "admin")]),
        ("/tokens", &[("name", "ci"), ("role", "admin")]),
        (&format!("/events/{event}/reveal"), &[("reason", "curious")]),
    ] {
        assert_eq!(viewer.send(path, form).await.status, 403, "{path}");
    }
    assert_eq!(viewer.get("/users").await.status, 403);
    assert_eq!(viewer.get("/dead-letters").await.status, 200);

    let operator = Visitor::signed_in(&world, Some("ann")).await;
    assert_eq!(operator.send("/pause", &pause).await.status, 303);
    let entry = newest_audit(&world).await;
    assert_eq!((&entry["actor"], &entry["action"]), (&json!("ann"), &json!("pause")));
    assert_eq!(operator.send("/users", &[("name", "eve"), ("role", "admin")]).await.status, 403);
    assert_eq!(operator.send(&format!("/events/{event}/reveal"), &[("reason", "x")]).await.status, 403, "apart");
    assert!(operator.get("/").await.html.contains("destination:crm is paused by ann"));
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_another_site_or_without_the_token_changes_nothing() {
    let world = World::start().await;
    let visitor = Visitor::signed_in(&world, None).await;
    let other = Visitor::signed_in(&world, None).await;
    let (token, foreign) = (visitor.form_token().await, other.form_token().await);
    let form = |token: &'static str| [("target", "destination:crm"), ("reason", "x"), ("form_token", token)];
    let with = |token: &str| {
        let fields = form("").map(|(name, value)| (name, value.to_owned()));
        let mut fields = fields.to_vec();
        fields[2].1 = token.to_owned();
        fields
    };
    for (fields, origin) in [
        (with(""), world.admin.as_str()),
        (with("guess"), world.admin.as_str()),
        (with(&foreign), world.admin.as_str()),
        (with(&token), "http://evil.example"),
        (with(&token), "null"),
    ] {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(visitor.send_raw("/pause", &fields, origin).await.status, 403, "{fields:?} {origin}");
    }
    // A session alone does not write through the API either.
    let request = world.client.post(format!("{}/api/v1/pause", world.admin)).header("cookie", &visitor.cookie);
    let request = request.header("origin", &world.admin).json(&json!({ "target": "destination:crm", "reason": "x" }));
    assert_eq!(request.send().await.unwrap().status(), 403);
    assert!(world.get("/api/v1/pauses").await.as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ends_by_sign_out_removal_and_revocation() {
    let world = World::start().await;
    add_user(&world, "ann", "viewer").await;
    let (first, second) =
        (Visitor::signed_in(&world, Some("ann")).await, Visitor::signed_in(&world, Some("ann")).await);
    assert_eq!(first.send("/sign-out", &[]).await.location, "/sign-in");
    assert_eq!(first.get("/").await.status, 303, "signed out");
    assert_eq!(second.get("/").await.status, 200);
    assert_eq!(world.act("/api/v1/users/ann/remove", json!({})).await.status, 200);
    assert_eq!(second.get("/").await.status, 303, "removed");
    let owner = Visitor::signed_in(&world, None).await;
    let sessions = world.get("/api/v1/sessions").await;
    let id = sessions[0]["id"].as_i64().unwrap();
    assert_eq!(world.act(&format!("/api/v1/sessions/{id}/revoke"), json!({})).await.status, 200);
    assert_eq!(owner.get("/").await.status, 303, "revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn api_token_has_its_role_and_can_be_revoked() {
    let world = World::start().await;
    let added = world.act("/api/v1/tokens", json!({ "name": "ci", "role": "viewer" })).await;
    let secret = added.body["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("slu_"), "{}", added.body);
    let status = async |path: &str, order: Option<Value>| {
        let url = format!("{}{path}", world.admin);
        let request = match order {
            Some(order) => world.client.post(url).json(&order),
            None => world.client.get(url),
        };
        request.bearer_auth(&secret).send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("/api/v1/status", None).await, 200);
    assert_eq!(status("/api/v1/users", None).await, 403);
    let pause = json!({ "target": "destination:crm", "reason": "x", "actor": "root" });
    assert_eq!(status("/api/v1/pause", Some(pause)).await, 403);
    let alert = json!({ "alert": "breaker-open", "subject": "crm", "for": "2h" });
    for act in ["acknowledge", "snooze"] {
        assert_eq!(status(&format!("/api/v1/alerts/{act}"), Some(alert.clone())).await, 403, "{act}");
    }
    let merge = json!({ "into": "con_2", "reason": "x" });
    assert_eq!(status("/api/v1/contacts/con_1/merge", Some(merge)).await, 403);
    assert_eq!(status("/api/v1/contacts/con_1/split", Some(json!({ "reason": "x" }))).await, 403);
    let tokens = world.get("/api/v1/tokens").await;
    assert!(!tokens.to_string().contains(&secret), "{tokens}");
    let id = tokens[0]["id"].as_i64().unwrap();
    assert_eq!(world.act(&format!("/api/v1/tokens/{id}/revoke"), json!({})).await.status, 200);
    assert_eq!(status("/api/v1/status", None).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_cannot_sign_in_as_the_holder_of_the_admin_token() {
    let world = World::start().await;
    add_user(&world, "adm", "admin").await;
    let administrator = Visitor::signed_in(&world, Some("adm")).await;
    for form in [&[][..], &[("user", "admin")]] {
        assert_eq!(administrator.send("/links", form).await.status, 403, "{form:?}");
    }
    let added = world.act("/api/v1/tokens", json!({ "name": "ci", "role": "admin" })).await;
    let secret = added.body["secret"].as_str().unwrap();
    let link = async |order: Value| {
        let request = world.client.post(format!("{}/api/v1/sign-in-links", world.admin)).bearer_auth(secret);
        request.json(&order).send().await.unwrap().status().as_u16()
    };
    assert_eq!(link(json!({})).await, 403);
    assert_eq!(link(json!({ "user": "admin" })).await, 403);
    assert_eq!(link(json!({ "user": "adm" })).await, 200);
    assert_eq!(administrator.send("/links", &[("user", "adm")]).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_stream_ends_with_the_session_or_token_of_its_reader() {
    let world = World::start().await;
    add_user(&world, "ann", "viewer").await;
    let visitor = Visitor::signed_in(&world, Some("ann")).await;
    let added = world.act("/api/v1/tokens", json!({ "name": "ci", "role": "viewer" })).await;
    let open = || world.client.get(format!("{}/api/v1/stream", world.admin));
    let mut of_session = open().header("cookie", &visitor.cookie).send().await.unwrap();
    let mut of_token = open().bearer_auth(added.body["secret"].as_str().unwrap()).send().await.unwrap();
    assert_eq!((of_session.status().as_u16(), of_token.status().as_u16()), (200, 200));
    assert_eq!(world.act("/api/v1/users/ann/remove", json!({})).await.status, 200);
    let id = added.body["id"].as_i64().unwrap();
    assert_eq!(world.act(&format!("/api/v1/tokens/{id}/revoke"), json!({})).await.status, 200);
    // Not cut off: the node ends both.
    while of_session.chunk().await.unwrap().is_some() {}
    while of_token.chunk().await.unwrap().is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_form_decides_and_replays_nothing() {
    let world = World::start().await;
    let event = world.post(&lead("ada")).await.event();
    let jobs = world.settled(&event).await;
    let owner = Visitor::signed_in(&world, None).await;
    let path = format!("/jobs/{}/resolve", jobs[0]["id"].as_str().unwrap());
    for resolution in ["", "hapened"] {
        let seen = owner.send(&path, &[("resolution", resolution), ("reason", "x")]).await;
        assert!(seen.status == 400 && seen.html.contains("does not say whether"), "{}", seen.html);
    }
    for form in
        [&[("reason", "x")][..], &[("reason", "x"), ("state", "dead")], &[("reason", "x"), ("worker", "to-crm")]]
    {
        let seen = owner.send("/replays", form).await;
        assert!(seen.status == 400 && seen.html.contains("names no jobs"), "{form:?}: {}", seen.html);
    }
    let drop = [("reason", "x"), ("count", "0"), ("planned", "0")];
    assert_eq!(owner.send("/dead-letters/drop", &drop).await.status, 400);
    assert!(world.get("/api/v1/replays").await["items"].as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_changed_after_their_plan_was_shown_are_not_activated() {
    let world = World::start().await;
    let owner = Visitor::signed_in(&world, None).await;
    let edit = |delay: &str| {
        let text = crate::fixture::QUEUES.replace("retention: 7d", &format!("retention: {delay}"));
        std::fs::write(world.config_path("queues.yml"), text).unwrap();
    };
    edit("8d");
    let shown = owner.get("/configuration").await.value_of("new");
    edit("9d");
    let before = world.get("/api/v1/status").await["revision"].clone();
    let form = |new: &str| [("reason", "x".to_owned()), ("new", new.to_owned())];
    let send = async |new: &str| {
        let form = form(new);
        let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        owner.send("/configuration/reload", &form).await.status
    };
    assert_eq!((send(&shown).await, send("").await), (409, 409));
    assert_eq!(world.get("/api/v1/status").await["revision"], before);
    let shown = owner.get("/configuration").await.value_of("new");
    assert_eq!(send(&shown).await, 303);
    assert_eq!(world.get("/api/v1/status").await["revision"], json!(shown));
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_token_does_not_keep_its_name() {
    let world = World::start().await;
    let add = async |lasts: &str| {
        world.act("/api/v1/tokens", json!({ "name": "ci", "role": "viewer", "for": lasts })).await.status
    };
    assert_eq!(add("1ms").await, 200);
    until(|| async { (add("1h").await == 200).then_some(()) }).await;
    assert_eq!(add("1h").await, 409, "this one is valid");
}

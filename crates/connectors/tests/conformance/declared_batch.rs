//! Calls of a declared connector that share a request, and a token that is exchanged for a signed assertion.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors};
use sluice_domain::action::Action;
use sluice_domain::connector::{
    AssertionClaims, BatchDefinition, BatchMatching, Connector, ConnectorAuth, DeclaredDestination, FailureAction,
    Grant, OAuth, register,
};
use sluice_domain::destination::DestinationKind;
use sluice_domain::outcome::{EffectClass, FailureClass, Outcome};
use sluice_domain::template::{Expression, Template};
use tokio::io::AsyncWriteExt;

use crate::declared::{action, bearer, connector, request, rule, text};
use crate::raw::{RawServer, read_request};
use crate::{PATIENT, SHORT, brief, call, connectors};

fn expression(source: &str) -> Expression {
    Expression::parse(source).unwrap()
}

/// A connector whose action of each class has this batch form.
fn batched(name: &str, form: impl Fn() -> BatchDefinition) -> Connector {
    let failures = vec![rule(409, FailureAction::Conflict), rule(422, FailureAction::Reject(FailureClass::Permanent))];
    let mut declared = connector(name, bearer(), failures);
    let classes = [EffectClass::Natural, EffectClass::Keyed, EffectClass::Blind];
    declared.actions = classes
        .into_iter()
        .map(|class| {
            let mut action = action(class);
            action.success.condition = Some(expression("response.body.ok"));
            action.result = Some(Template::Map(vec![("id".to_owned(), text("{{ response.body.id }}"))]));
            action.batch = Some(form());
            action
        })
        .collect();
    declared
}

fn by_place() -> BatchDefinition {
    let item =
        Template::Map(vec![("key".to_owned(), text("{{ effect.key }}")), ("name".to_owned(), text("{{ with.name }}"))]);
    BatchDefinition {
        max: 10,
        same: vec![],
        identity: vec!["name".to_owned()],
        item,
        request: request("POST", "/notes", Some(Template::Map(vec![("notes".to_owned(), text("{{ items }}"))]))),
        results: Some(expression("response.body.results")),
        body: None,
        status: Some(expression("result.status")),
        matching: None,
    }
}

fn by_key() -> BatchDefinition {
    let matching = Some(BatchMatching { result: expression("result.key"), call: expression("effect.key") });
    BatchDefinition { matching, ..by_place() }
}

fn to(connector: Connector, base_url: &str, class: EffectClass) -> (Connectors, Action) {
    let connector = register(connector).unwrap();
    let values = vec![("token".to_owned(), "hunter2-token".into())];
    let kind =
        DestinationKind::Declared(DeclaredDestination { connector, base_url: Some(base_url.to_owned()), values });
    let action = connector.actions().find(|action| action.definition().class == class).unwrap();
    (connectors([("there", kind)]), Action::Declared(action))
}

/// A server that answers every request with this, and counts them.
async fn answering(status: u16, body: Value) -> RawServer {
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
    RawServer::responding(head + &body).await
}

const NAMES: [&str; 3] = ["Ada", "Bob", "Eve"];

async fn outcomes(connectors: &Connectors, action: Action, timeout: std::time::Duration) -> Vec<String> {
    let with: Vec<Value> = NAMES.iter().map(|name| json!({ "name": name })).collect();
    let keys = ["effect-0", "effect-1", "effect-2"];
    let calls: Vec<Call<'_>> =
        with.iter().zip(keys).map(|(with, effect_key)| Call { effect_key, ..call(action, with, timeout) }).collect();
    let outcomes = connectors.call_batch(&calls).await;
    outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Done { result } => format!("done {}", result["id"]),
            other => brief(other),
        })
        .collect()
}

#[tokio::test]
async fn each_call_has_the_result_at_its_place_or_with_its_key() {
    let results = json!([
        {"key": "effect-0", "status": 201, "ok": true, "id": 7},
        {"key": "effect-1", "status": 422, "error": "no"},
        {"key": "effect-2", "status": 409},
    ]);
    let expected = ["done 7", "reject permanent http-422", "retry conflict http-409"];
    let server = answering(207, json!({ "results": results })).await;
    for (name, form) in [("x-place", by_place as fn() -> BatchDefinition), ("x-same-order", by_key)] {
        let (connectors, action) = to(batched(name, form), &server.url(), EffectClass::Keyed);
        assert_eq!(outcomes(&connectors, action, PATIENT).await, expected);
    }
    assert_eq!(server.connections(), 2, "one request for three calls");
}

#[tokio::test]
async fn results_in_another_order_find_their_calls_and_a_call_without_one_is_unsure() {
    let results = json!([
        {"key": "EFFECT-2", "status": 200, "ok": true, "id": 3},
        {"key": "effect-0", "status": 200, "ok": true, "id": 1},
        {"key": "effect-9", "status": 200, "ok": true, "id": 9},
    ]);
    let server = answering(200, json!({ "results": results })).await;
    let (connectors, action) = to(batched("x-key", by_key), &server.url(), EffectClass::Keyed);
    let found = outcomes(&connectors, action, PATIENT).await;
    assert_eq!(found, ["done 1", "unsure retryable batch-results", "done 3"]);
}

#[tokio::test]
async fn calls_whose_common_answer_is_too_large_are_sent_alone_where_they_may_be_repeated() {
    let result = json!({"status": 200, "ok": true, "id": 1, "note": "x".repeat(100 * 1024)});
    let body = json!({ "results": [result, result, result] });
    for (class, expected) in [
        (EffectClass::Natural, "retry conflict batch-rejected"),
        (EffectClass::Keyed, "retry conflict batch-rejected"),
        (EffectClass::Blind, "unsure retryable unexpected-response"),
    ] {
        let server = answering(200, body.clone()).await;
        let (connectors, action) = to(batched("x-large", by_place), &server.url(), class);
        assert_eq!(outcomes(&connectors, action, PATIENT).await, [expected; 3], "{class:?}");
    }
}

#[tokio::test]
async fn answer_about_the_whole_request_is_the_outcome_of_each_call() {
    for (name, status, body, natural, other) in [
        (
            "x-few",
            200,
            json!({"results": [{"status": 200, "ok": true, "id": 1}]}),
            "unsure retryable batch-results",
            "",
        ),
        ("x-none", 200, json!({"ok": true}), "unsure retryable unexpected-response", ""),
        ("x-limit", 429, json!({}), "wait retryable http-429", ""),
        ("x-bad", 422, json!({"error": "not JSON"}), "retry conflict batch-rejected", ""),
        ("x-auth", 401, json!({}), "reject auth http-401", ""),
        ("x-error", 500, json!({}), "retry retryable http-500", "unsure retryable http-500"),
    ] {
        for class in [EffectClass::Natural, EffectClass::Keyed, EffectClass::Blind] {
            let server = answering(status, body.clone()).await;
            let (connectors, action) = to(batched(name, by_place), &server.url(), class);
            let expected = if class == EffectClass::Natural || other.is_empty() { natural } else { other };
            assert_eq!(outcomes(&connectors, action, PATIENT).await, [expected; 3], "{name} {class:?}");
            assert_eq!(server.connections(), 1, "{name}: sent once");
        }
    }
}

#[tokio::test]
async fn lost_answer_is_unsure_for_each_and_a_refused_connection_for_none() {
    let silent = RawServer::start(|mut stream| async move {
        read_request(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let (connectors, action) = to(batched("x-lost", by_place), &silent.url(), EffectClass::Blind);
    assert_eq!(outcomes(&connectors, action, SHORT).await, ["unsure retryable timeout"; 3]);
    let nobody = format!("http://{}", crate::raw::unused_address().await);
    let (connectors, action) = to(batched("x-nobody", by_place), &nobody, EffectClass::Blind);
    assert_eq!(outcomes(&connectors, action, PATIENT).await, ["retry retryable connect"; 3]);
}

#[tokio::test]
async fn call_without_a_value_is_rejected_and_the_others_are_sent() {
    let results = json!([{"status": 200, "ok": true, "id": 1}, {"status": 200, "ok": true, "id": 2}]);
    let server = answering(200, json!({ "results": results })).await;
    let (connectors, action) = to(batched("x-some", by_place), &server.url(), EffectClass::Keyed);
    let with = [json!({"name": "Ada"}), json!({}), json!({"name": "Eve"})];
    let calls: Vec<Call<'_>> = with.iter().map(|with| call(action, with, PATIENT)).collect();
    let found: Vec<String> = connectors.call_batch(&calls).await.iter().map(brief).collect();
    assert_eq!(found, ["done", "reject identity no-value", "done"]);
}

#[tokio::test]
async fn signed_assertion_is_exchanged_for_a_token() {
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let pem = format!("-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n", BASE64.encode(der.as_ref()));
    let public = key.public_key().as_ref().to_vec();
    let issued = Arc::new(AtomicUsize::new(0));
    let count = issued.clone();
    let server = RawServer::start(move |mut stream| {
        let (public, count) = (public.clone(), count.clone());
        async move {
            let head = read_request(&mut stream).await;
            let (status, body) = if head.starts_with("POST /token") {
                let form = head.rsplit("\r\n").next().unwrap();
                let start = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
                let assertion = form.strip_prefix(start).unwrap();
                let (signed, signature) = assertion.rsplit_once('.').unwrap();
                let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
                let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &public);
                public.verify(signed.as_bytes(), &signature).unwrap();
                let claims = BASE64URL_NOPAD.decode(signed.split('.').nth(1).unwrap().as_bytes()).unwrap();
                let claims: Value = serde_json::from_slice(&claims).unwrap();
                assert_eq!((&claims["iss"], &claims["scope"]), (&json!("push@acme"), &json!("push")));
                let token = format!("tok-{}", count.fetch_add(1, Ordering::SeqCst) + 1);
                (200, json!({"access_token": token}))
            } else if head.contains("authorization: Bearer tok-2\r\n") {
                (200, json!({}))
            } else {
                (401, json!({}))
            };
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    })
    .await;
    let oauth = OAuth {
        grant: Grant::JwtBearer,
        token_url: text(&format!("{}/token", server.url())),
        form: vec![],
        scheme: "Bearer".to_owned(),
        assertion: Some(AssertionClaims {
            issuer: text("push@acme"),
            subject: None,
            audience: text("aud"),
            scope: Some(text("push")),
            private_key: text("{{ destination.token }}"),
        }),
    };
    let auth = ConnectorAuth::OAuth(Box::new(oauth));
    let declared = register(connector("x-assertion", auth, vec![rule(401, FailureAction::Refresh)])).unwrap();
    let values = vec![("token".to_owned(), pem.into())];
    let kind =
        DestinationKind::Declared(DeclaredDestination { connector: declared, base_url: Some(server.url()), values });
    let action = declared.actions().find(|action| action.definition().class == EffectClass::Blind).unwrap();
    let connectors = connectors([("there", kind)]);
    let with = json!({"name": "Ada"});
    let outcome = connectors.call(call(Action::Declared(action), &with, PATIENT)).await;
    assert_eq!((brief(&outcome).as_str(), issued.load(Ordering::SeqCst)), ("done", 2), "{outcome:?}");
}

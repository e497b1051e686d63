//! The client of an OpenID provider: what it reads, and what it does about slow, endless and odd answers.

use std::time::Duration;

use sluice_connectors::{CodeGrant, OpenIdClient, OpenIdError};
use sluice_domain::access::Role;
use sluice_domain::access::oidc::{Discovery, OidcSettings};
use sluice_simulator::faults::{CallKind, Scripted};
use sluice_simulator::{Fault, FaultPlan, OpenId, OpenIdSettings};

fn provider(faults: FaultPlan) -> OpenId {
    OpenId::start(OpenIdSettings { faults, ..OpenIdSettings::default() }).unwrap()
}

fn settings(provider: &OpenId, secret: &str) -> OidcSettings {
    OidcSettings {
        issuer: provider.issuer(),
        name: "Example".into(),
        client_id: "sluice".into(),
        client_secret: Some(secret.into()),
        public_url: "http://127.0.0.1:1".into(),
        scopes: vec!["openid".into()],
        name_claim: "email".into(),
        groups_claim: "groups".into(),
        groups: vec![],
        default_role: Some(Role::Viewer),
    }
}

fn client() -> OpenIdClient {
    OpenIdClient::new().unwrap()
}

async fn redeem(provider: &OpenId, secret: &str) -> Result<String, OpenIdError> {
    let settings = settings(provider, secret);
    let discovery = client().discovery(&settings.issuer).await?;
    client().redeem(&settings, &discovery, CodeGrant { code: "a code", verifier: "a verifier" }).await
}

#[tokio::test]
async fn description_and_keys_are_read() {
    let provider = provider(FaultPlan::none());
    let discovery = client().discovery(&provider.issuer()).await.unwrap();
    assert_eq!(discovery.token_endpoint, format!("{}/token", provider.issuer()));
    assert_eq!(client().keys(&provider.issuer(), &discovery.jwks_uri).await.unwrap().len(), 1);
    let other = client().discovery(&format!("{}/", provider.issuer())).await.unwrap_err();
    assert!(other.to_string().contains("describes the issuer"), "a slash is another issuer: {other}");
}

#[tokio::test]
async fn slow_and_endless_answers_end() {
    let slow = provider(FaultPlan::always(Fault::TimeoutBefore { hold_ms: 3_600_000 }));
    let impatient = client().with_timeout(Duration::from_millis(50));
    let error = impatient.discovery(&slow.issuer()).await.unwrap_err();
    assert!(matches!(&error, OpenIdError::Away(reason) if reason.contains("within")), "{error}");
    let trickling = provider(FaultPlan::always(Fault::TrickleBody { chunk_bytes: 1, gap_ms: 3_600_000 }));
    assert!(matches!(impatient.discovery(&trickling.issuer()).await, Err(OpenIdError::Away(_))));

    let provider = provider(FaultPlan::none());
    let discovery = client().discovery(&provider.issuer()).await.unwrap();
    for (fault, reason) in [
        (Fault::HugeBody { bytes: 1 << 30 }, "it is too long"),
        (Fault::RedirectLoop, "the status is 302"),
        (Fault::ServerUnavailable, "the status is 503"),
        (Fault::GarbageBody { moment: sluice_simulator::faults::Moment::AfterApplying }, "it is not JSON"),
        (Fault::CutResponse, "ended early"),
        (Fault::DropBefore, "closed"),
    ] {
        provider.set_faults(FaultPlan::always(fault.clone())).unwrap();
        // A busy machine sends a large body slowly.
        let patient = client().with_timeout(Duration::from_secs(600));
        let read = [
            patient.discovery(&provider.issuer()).await.map(drop),
            patient.keys(&provider.issuer(), &discovery.jwks_uri).await.map(drop),
        ];
        for error in read.map(Result::unwrap_err) {
            assert!(matches!(&error, OpenIdError::Away(text) if text.contains(reason)), "{fault:?}: {error}");
        }
    }
}

#[tokio::test]
async fn refused_code_and_endpoint_that_is_away_are_told_apart() {
    let good = provider(FaultPlan::none());
    let refused = redeem(&good, "sim-openid-secret").await.unwrap_err();
    assert_eq!(refused, OpenIdError::Refused("invalid_grant (status 400)".into()));
    let wrong = redeem(&good, "wrong secret").await.unwrap_err();
    assert_eq!(wrong, OpenIdError::Refused("invalid_client (status 401)".into()));
    for fault in [Fault::ServerUnavailable, Fault::HugeBody { bytes: 1 << 30 }, Fault::DropAfter] {
        let provider = provider(FaultPlan::scripted([Scripted::first(1, fault.clone()).only(CallKind::Token)]));
        let error = redeem(&provider, "sim-openid-secret").await.unwrap_err();
        assert!(matches!(error, OpenIdError::Away(_)), "{fault:?}: {error}");
        assert!(!error.to_string().contains("sim-openid-secret"), "{error}");
    }
}

#[tokio::test]
async fn address_inside_the_own_network_is_not_called() {
    let (issuer, victim) = (provider(FaultPlan::none()), provider(FaultPlan::none()));
    let document = serde_json::json!({
        "issuer": "https://login.example",
        "authorization_endpoint": "https://login.example/a",
        "token_endpoint": "https://127.0.0.1/token",
        "jwks_uri": "https://169.254.169.254/keys",
    });
    let discovery = Discovery::read(&document, "https://login.example").unwrap();
    let error = client().keys("https://login.example", &discovery.jwks_uri).await.unwrap_err();
    assert!(error.to_string().contains("not a public address"), "{error}");
    let settings = OidcSettings { issuer: "https://login.example".into(), ..settings(&issuer, "sim-openid-secret") };
    let grant = CodeGrant { code: "a", verifier: "b" };
    let error = client().redeem(&settings, &discovery, grant).await.unwrap_err();
    assert!(error.to_string().contains("not a public address"), "{error}");
    let error = client().keys(&issuer.issuer(), &format!("{}/jwks", victim.issuer())).await.unwrap_err();
    assert!(error.to_string().contains("not a public address") && victim.truth().keys_read == 0, "{error}");
}

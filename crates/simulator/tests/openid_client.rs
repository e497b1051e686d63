//! An unmodified client of OpenID Connect signs in at the simulated provider, and refuses what a client must refuse.
//!
//! It is installed once into `target/vendor-clients/openid`. A failed installation fails this test.

mod support;

use std::process::Command;

use serde_json::json;
use sluice_simulator::{OpenId, OpenIdSettings};
use support::vendor;

#[test]
fn openid_client_signs_in_and_refuses_every_mistake() {
    let provider = OpenId::start(OpenIdSettings::default()).expect("the provider starts");
    let scripts = vendor::scripts().join("openid");
    let folder = vendor::node("openid", &scripts.join("package.json"));
    let mut command = Command::new("node");
    command.arg(scripts.join("client.mjs")).current_dir(folder).env("SIM_URL", provider.issuer());
    let results = vendor::results("openid-client", &mut command);
    assert_eq!((&results["issuer"], &results["subject"]), (&json!(provider.issuer()), &json!("sub-ann")));
    assert_eq!((&results["groups"], &results["info"]), (&json!(["sluice-admins"]), &json!("ann@example.com")));
    for (name, code) in [
        ("replayed", json!("invalid_grant")),
        ("wrong_verifier", json!("invalid_grant")),
        ("wrong_secret", json!("invalid_client")),
        ("no_pkce", json!("invalid_request")),
        ("other_client", json!(400)),
        ("wrong_scope", json!("invalid_scope")),
        ("rotated", json!("sub-ann")),
        ("verified", json!("sub-ann")),
    ] {
        assert_eq!(results[name], code, "{name}: {results}");
    }
    for mistakes in ["mistakes", "signatures"] {
        for (mistake, result) in results[mistakes].as_object().expect("a map") {
            assert_ne!(result, "accepted", "{mistake}: {results}");
        }
    }
    let truth = provider.truth();
    assert_eq!(truth.codes_replayed, 1);
    assert!(truth.keys_read > 0, "{truth:?}");
}

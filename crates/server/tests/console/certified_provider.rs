//! Sign-in by a certified provider (oidc-provider, from npm) with its own pages, in a real browser.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use sluice_simulator::OpenIdSettings;

use crate::browser::{Browser, Script};
use crate::fixture::World;
use crate::openid::{GROUPS, configure};
use crate::vendor;

/// Ends when it is dropped.
struct CertifiedProvider {
    process: Child,
    issuer: String,
    /// Kept open: the provider writes warnings to it.
    _output: BufReader<ChildStdout>,
}

impl CertifiedProvider {
    fn start(world: &World) -> CertifiedProvider {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../simulator/tests/vendor/openid");
        let folder = vendor::node("openid", &scripts.join("package.json"));
        let mut command = Command::new("node");
        command.arg(scripts.join("provider.mjs")).current_dir(folder);
        command.env("CLIENT_SECRET", OpenIdSettings::default().client_secret);
        command.env("REDIRECT_URI", format!("{}/sign-in/oidc/callback", world.admin));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("node is installed");
        let mut issuer = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut issuer).unwrap();
        assert!(issuer.starts_with("http://127.0.0.1:"), "{issuer}");
        CertifiedProvider { process, issuer: issuer.trim().to_owned(), _output: output }
    }
}

impl Drop for CertifiedProvider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn sign_in_at_provider(browser: &Browser, user: &str) {
    browser.click("a.button").await;
    browser.type_into("input[name=login]", user).await;
    browser.type_into("input[name=password]", "any").await;
    browser.click("button[type=submit]").await;
    browser.sees("Continue").await;
    browser.click("button[type=submit]").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certified_provider_signs_in_and_refuses() {
    let browser = Browser::start(Script::On).await;
    let world = World::start().await;
    let started = tokio::task::block_in_place(|| CertifiedProvider::start(&world));
    configure(&world, &started.issuer, &format!("  scopes: [openid, email, groups]\n{GROUPS}")).await;
    browser.open(&format!("{}/dead-letters", world.admin)).await;
    sign_in_at_provider(&browser, "bob").await;
    browser.arrives_at("/dead-letters").await;
    browser.sees("oidc:bob@example.com <small>operator</small>").await;
    browser.close().await;

    let browser = Browser::start(Script::On).await;
    browser.open(&format!("{}/sign-in", world.admin)).await;
    sign_in_at_provider(&browser, "vic").await;
    browser.sees("oidc:vic@example.com is signed in at the provider, but has no group").await;
    browser.close().await;
}

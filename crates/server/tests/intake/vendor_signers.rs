//! The vendors' own libraries, unchanged, sign requests that a running node accepts.
//!
//! They are installed once into `target/vendor-signers`. When that fails, this test fails: a verifier that only our own signer
//! has tried may share its mistakes.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors, OutboundSettings};
use sluice_domain::action::Action;
use sluice_domain::destination::{Destination, DestinationKind, GateSettings, HttpDestination};
use sluice_domain::time::Time;
use sluice_domain::verify::{Scheme, Secret, Verifier, VerifierSettings};
use sluice_simulator::{Sink, SinkSettings};

use crate::fixture::{Answer, World};
use crate::install::{installed, once, python_with, run, scripts};

const PLAIN_SECRET: &str = "a plain secret";
const WHSEC_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PUBLIC_URL: &str = "https://hooks.example.com/in/twilio?tenant=a";

fn signed_by(mut command: Command) -> Vec<Value> {
    command.env("PLAIN_SECRET", PLAIN_SECRET).env("WHSEC_SECRET", WHSEC_SECRET).env("PUBLIC_URL", PUBLIC_URL);
    let said = run("signing", &mut command);
    serde_json::from_str(said.lines().last().expect("the script prints what it signed")).unwrap()
}

fn python() -> Vec<Value> {
    let mut command = Command::new(python_with("python", "requirements.txt").join("bin/python"));
    command.arg(scripts().join("sign.py"));
    signed_by(command)
}

/// Where the vendors' libraries for JavaScript lie.
fn node_folder() -> PathBuf {
    let folder = installed().join("node");
    let wanted = std::fs::read_to_string(scripts().join("package.json")).expect("the list of packages");
    once(&folder, &wanted, || {
        std::fs::write(folder.join("package.json"), &wanted).expect("a copy in target");
        let install = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
        run("installing the vendors' libraries from npm", Command::new("npm").args(install).current_dir(&folder));
    });
    folder
}

fn node() -> Vec<Value> {
    let mut command = Command::new("node");
    command.arg(scripts().join("sign.mjs")).current_dir(node_folder());
    signed_by(command)
}

/// Whether the vendor's library accepts a request with this secret.
fn accepted_by_library(request: &Value, secret: &str) -> bool {
    let mut command = Command::new("node");
    command.arg(scripts().join("verify.mjs")).current_dir(node_folder());
    command.env("REQUEST", request.to_string()).env("WHSEC_SECRET", secret);
    run("verifying", &mut command).trim() == "accepted"
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_that_go_out_are_accepted_by_the_vendor_library() {
    let second = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let secrets = [WHSEC_SECRET, second].map(|secret| Secret::new("own", secret)).to_vec();
    let signer = Verifier::new(VerifierSettings::new(Scheme::StandardWebhooks, secrets)).unwrap();
    let sink = Sink::start(SinkSettings::default()).unwrap();
    let http =
        HttpDestination { base_url: Some(sink.url()), signer: Some(Box::new(signer)), ..HttpDestination::default() };
    let destination = Destination {
        name: "there".to_owned(),
        kind: DestinationKind::Http(http),
        timeout: Duration::from_secs(60),
        straggler_horizon: None,
        batch_max: None,
        gate: GateSettings::default(),
        failure_rules: vec![],
    };
    let connectors = Connectors::new([&destination], &OutboundSettings::default()).unwrap();
    let with = json!({"url": "/hook", "json": {"type": "lead.created", "name": "Zoë"}});
    let call = |attempt| Call {
        action: Action::HttpRequest,
        destination: "there",
        with: &with,
        effect_key: "0123456789abcdef",
        message_key: None,
        record: None,
        attempt,
        traceparent: None,
        timeout: Duration::from_secs(60),
        now: Time::from(jiff::Timestamp::now()),
    };
    for attempt in [1, 2] {
        assert_eq!(connectors.call(call(attempt)).await.as_str(), "done");
    }
    let requests: Vec<Value> =
        sink.requests().iter().map(|sent| json!({ "headers": sent.headers, "body": sent.body })).collect();
    let verified = tokio::task::spawn_blocking(move || {
        let ids: Vec<String> = requests
            .iter()
            .flat_map(|request| request["headers"].as_array().unwrap())
            .filter(|pair| pair[0] == "webhook-id")
            .map(|pair| pair[1].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(ids, ["0123456789abcdef"; 2], "the id is the same in every attempt");
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        [WHSEC_SECRET, second, other].map(|secret| accepted_by_library(&requests[1], secret))
    })
    .await
    .unwrap();
    assert_eq!(verified, [true, true, false], "a receiver may know either secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_of_vendor_libraries_are_accepted() {
    let requests = tokio::task::spawn_blocking(|| [python(), node()].concat()).await.unwrap();
    let mut flows = String::new();
    for scheme in ["stripe", "svix", "standard-webhooks", "slack", "twilio", "github"] {
        let secret = if ["svix", "standard-webhooks"].contains(&scheme) { "WHSEC" } else { "PLAIN" };
        let url = if scheme == "twilio" { format!(", public_url: \"{PUBLIC_URL}\"") } else { String::new() };
        flows.push_str(&format!(
            "---\nname: {scheme}\ntriggers: [{{ http: {{ path: /in/{scheme}, verify: {{ scheme: {scheme}, secret: \"${{secrets.{secret}}}\"{url} }} }} }}]\nsteps: [{{ queue: leads }}]\n"
        ));
    }
    let files = [("flows.yml", flows.as_str()), ("queues.yml", "queues: [leads]\n")];
    let world = World::start_with_secrets(&files, &[("PLAIN", PLAIN_SECRET), ("WHSEC", WHSEC_SECRET)]).await;
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for request in &requests {
        let scheme = request["scheme"].as_str().unwrap();
        *seen.entry(scheme.to_owned()).or_default() += 1;
        let send = |body: String| {
            let mut post = world.client.post(format!("{}/in/{scheme}", world.intake)).body(body);
            for (name, value) in request["headers"].as_object().unwrap() {
                post = post.header(name, value.as_str().unwrap());
            }
            async { Answer::of(post.send().await.unwrap()).await }
        };
        let body = request["body"].as_str().unwrap();
        let first = send(body.to_owned()).await;
        assert_eq!(first.status, 202, "{scheme}: {}", first.body);
        let repeat = send(body.to_owned()).await;
        assert_eq!(repeat.event(), first.event(), "{scheme}");
        assert_eq!(
            send(body.replace('1', "2").replace("opened", "closed").replace("py", "pz")).await.status,
            401,
            "{scheme}: a changed body"
        );
    }
    assert_eq!(
        json!(seen),
        json!({"github": 1, "slack": 1, "standard-webhooks": 2, "stripe": 2, "svix": 2, "twilio": 1}),
        "every library has signed"
    );
}

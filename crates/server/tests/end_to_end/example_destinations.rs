//! Every file of `examples/destinations` is a configuration without a problem, and delivers a lead to its simulator.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_domain::verify::SecretValue;
use sluice_server::config::{self, ExpectedAnswer, Files, SecretSource, shipped_tests};
use sluice_server::recorded_answers::{base_path, routes, token_path};
use sluice_simulator::sink::{BatchRoute, Provider, RecordedReply, SinkRoute, TokenPolicy};
use sluice_simulator::{Hubspot, HubspotSettings, Sink, SinkSettings, Slack, SlackSettings, Smtp, SmtpSettings};

use crate::fixture::{World, lead};

const SIGNING: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const VAPID: &str = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw";
const BROWSER: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/destinations")
}

#[derive(Debug)]
struct AnySecret;

impl SecretSource for AnySecret {
    fn lookup(&self, name: &str) -> io::Result<Option<SecretValue>> {
        Ok(Some(SecretValue::from(if name == "SIGNING_SECRET" { SIGNING } else { "https://made-up.example" })))
    }

    fn describe(&self, name: &str) -> String {
        name.to_owned()
    }
}

/// What stands for the destination of an example, and what the example needs to reach it.
struct Stand {
    /// Replacements in the file.
    changes: Vec<(String, String)>,
    secrets: Vec<(&'static str, String)>,
    /// Address of the simulator, where the lead itself names it.
    url: String,
    /// Effects that arrived.
    arrived: Box<dyn Fn() -> u64 + Send>,
}

fn stand(changes: Vec<(String, String)>, arrived: impl Fn() -> u64 + Send + 'static) -> Stand {
    Stand { changes, secrets: vec![], url: String::new(), arrived: Box::new(arrived) }
}

/// A line after the type of the destination.
fn after_type(kind: &str, line: &str) -> (String, String) {
    (format!("    type: {kind}\n"), format!("    type: {kind}\n    {line}\n"))
}

fn reply(answer: ExpectedAnswer) -> RecordedReply {
    let body = match answer.body {
        Value::Null => String::new(),
        Value::String(text) => text,
        body => body.to_string(),
    };
    RecordedReply { status: answer.status, headers: answer.headers, body }
}

/// The provider of a shipped connector. Its tokens expire after every call.
fn provider(name: &str) -> Stand {
    let tests = shipped_tests().0.into_iter().find(|tests| tests.connector.definition.name == name).unwrap();
    let routes = routes(&tests)
        .into_iter()
        .map(|route| SinkRoute {
            method: route.method,
            path: route.path,
            reply: reply(route.answer),
            absent: route.absent.map(reply),
            batch: route.batch.map(|(items, results)| BatchRoute { items, results }),
        })
        .collect();
    let tokens = token_path(&tests).map(|path| TokenPolicy { path, uses_max: 1 });
    let sink = Sink::start(SinkSettings { routes, tokens, ..SinkSettings::default() }).unwrap();
    let url = sink.url();
    let base = format!("{url}{}", base_path(tests.connector));
    let mut changes = match name {
        "teams" => vec![],
        _ => vec![after_type(name, &format!("base_url: {base}"))],
    };
    match name {
        "fcm" => changes.push(("    project_id:".into(), format!("    token_url: {url}/token\n    project_id:"))),
        "zoho" => changes.push(("    client_id:".into(), format!("    accounts_url: {url}\n    client_id:"))),
        "dataverse" => changes.push(("    tenant_id:".into(), format!("    login_url: {url}\n    tenant_id:"))),
        _ => {}
    }
    let mut stand = stand(changes, move || sink.truth().applied);
    stand.secrets.push(("TEAMS_URL", format!("{url}/workflow")));
    stand
}

fn sink_as(provider: Provider) -> Stand {
    let sink = Sink::start(SinkSettings { provider: Some(provider), ..SinkSettings::default() }).unwrap();
    let line = match provider {
        Provider::S3 => format!("endpoint: {}", sink.url()),
        Provider::Ses => format!("base_url: {}", sink.url()),
        Provider::WebPush => "allow_private_addresses: true".to_owned(),
    };
    let url = sink.url();
    let mut stand = stand(vec![after_type(provider.name(), &line)], move || sink.truth().applied);
    stand.url = url;
    stand.secrets.push(("VAPID_KEY", VAPID.to_owned()));
    stand
}

fn built_in(name: &str, scratch: &Path) -> Stand {
    match name {
        "file" => {
            let path = scratch.join("leads.ndjson");
            let changes = vec![("/var/lib/leads/leads.ndjson".to_owned(), path.display().to_string())];
            stand(changes, move || std::fs::read_to_string(&path).map_or(0, |text| text.lines().count() as u64))
        }
        "http" => {
            let tokens = Some(TokenPolicy { path: "/token".to_owned(), uses_max: 1 });
            let sink = Sink::start(SinkSettings { tokens, ..SinkSettings::default() }).unwrap();
            let changes = vec![
                ("https://api.partner.example/v2".to_owned(), sink.url()),
                ("https://id.partner.example".to_owned(), sink.url()),
            ];
            stand(changes, move || sink.truth().applied)
        }
        "webhook-out" => {
            let sink = Sink::start(SinkSettings::default()).unwrap();
            let changes = vec![("https://downstream.example".to_owned(), sink.url())];
            let mut stand = stand(changes, move || {
                let signed = |request: &sluice_simulator::sink::ReceivedRequest| {
                    request.headers.iter().any(|(name, value)| name == "webhook-signature" && value.starts_with("v1,"))
                };
                sink.requests().iter().filter(|request| signed(request)).count() as u64
            });
            stand.secrets.push(("SIGNING_SECRET", SIGNING.to_owned()));
            stand
        }
        "hubspot" => {
            let hubspot = Hubspot::start(HubspotSettings::default()).unwrap();
            let mut stand = stand(vec![after_type("hubspot", &format!("base_url: {}", hubspot.url()))], move || {
                hubspot.truth().objects.values().map(|object| object.records).sum()
            });
            stand.secrets.push(("HUBSPOT_TOKEN", HubspotSettings::default().token));
            stand
        }
        "slack" => {
            let slack = Slack::start(SlackSettings::default()).unwrap();
            let mut stand = stand(vec![after_type("slack", &format!("base_url: {}", slack.api_url()))], move || {
                slack.truth().messages
            });
            stand.secrets.push(("SLACK_TOKEN", SlackSettings::default().token));
            stand
        }
        "smtp" => {
            let smtp = Smtp::start(SmtpSettings::default()).unwrap();
            let changes = vec![
                ("smtp.example.com".to_owned(), "127.0.0.1".to_owned()),
                ("port: 587".to_owned(), format!("port: {}", smtp.address().port())),
                ("tls: starttls".to_owned(), "tls: none".to_owned()),
            ];
            stand(changes, move || smtp.truth().accepted)
        }
        // The simulated CRM of every world; its records are counted there.
        "salesforce" => stand(vec![("https://acme.my.salesforce.com".to_owned(), "{crm}".to_owned())], || 1),
        "s3" => sink_as(Provider::S3),
        "ses" => sink_as(Provider::Ses),
        "webpush" => sink_as(Provider::WebPush),
        declared => provider(declared),
    }
}

fn examples() -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "yml");
    entries.filter(is_yaml).map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn every_destination_has_an_example_without_a_problem() {
    let examples = examples();
    let declared = config::shipped().iter().map(|connector| connector.definition.name.as_str());
    let built_in = sluice_domain::destination::DestinationKind::NAMES.into_iter();
    // A database and programs of one's own have their place in docs/connectors.md.
    for name in declared.chain(built_in).filter(|name| !["postgres", "script"].contains(name)) {
        assert!(examples.contains(name), "examples/destinations/{name}.yml is missing");
    }
    let listed = std::fs::read_to_string(directory().join("README.md")).unwrap();
    for name in &examples {
        let text = std::fs::read_to_string(directory().join(format!("{name}.yml"))).unwrap();
        let compiled = config::compile(&Files::from_texts([(format!("{name}.yml"), text)]), &AnySecret);
        assert!(compiled.problems.is_empty(), "{name}: {:#?}", compiled.problems);
        assert!(listed.contains(&format!("[{name}.yml]({name}.yml)")), "{name} is not in the README");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_delivers_a_lead_to_its_simulator() {
    let key = fcm_key();
    for name in examples() {
        let scratch = tempfile::tempdir().unwrap();
        let stand = built_in(&name, scratch.path());
        let mut text = std::fs::read_to_string(directory().join(format!("{name}.yml"))).unwrap();
        for (from, to) in &stand.changes {
            assert!(text.contains(from.as_str()), "{name}: {from}");
            text = text.replace(from.as_str(), to);
        }
        let own = [("API_TOKEN", "made-up-token"), ("REFRESH_TOKEN", "made-up-refresh"), ("FCM_KEY", key.as_str())];
        let secrets: Vec<(&str, &str)> =
            stand.secrets.iter().map(|(name, value)| (*name, value.as_str())).chain(own).collect();
        let world = World::start_with_secrets(&[("example.yml", &text)], &secrets).await;
        let mut body = lead("e1");
        if name == "webpush" {
            let endpoint = format!("{}/push/1", stand.url);
            body["subscription"] =
                json!({"endpoint": endpoint, "keys": {"p256dh": BROWSER, "auth": "BTBZMqHH6r4Tts7J_aSIgg"}});
        }
        let event = world.post(&body).await.event();
        let jobs = world.settled(&event).await;
        assert_eq!(jobs[0]["state"], "succeeded", "{name}: {:#}", world.job(jobs[0]["id"].as_str().unwrap()).await);
        assert_eq!((stand.arrived)(), 1, "{name}: one effect arrived");
        if name == "salesforce" {
            assert_eq!(world.crm.truth().object("Lead").created, 1);
        }
    }
}

/// The made-up key of the recorded answers of FCM.
fn fcm_key() -> String {
    let answers = config::SHIPPED.iter().find(|file| file.name == "fcm").unwrap().answers;
    let start = answers.find("    -----BEGIN").unwrap();
    let end = answers.find("-----END PRIVATE KEY-----").unwrap() + "-----END PRIVATE KEY-----".len();
    answers[start..end].lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

//! Unmodified clients of Amazon (S3, SES) and Google (tokens for FCM) succeed and fail against the simulators as they do against the
//! services. The client of PagerDuty only speaks https.

mod support;

use std::process::Command;

use serde_json::{Value, json};
use sluice_simulator::sink::{Provider, RecordedReply, SinkRoute, TokenPolicy};
use sluice_simulator::{Sink, SinkSettings};
use support::vendor;

fn provider(provider: Provider) -> Sink {
    Sink::start(SinkSettings { provider: Some(provider), ..SinkSettings::default() }).expect("the provider starts")
}

/// A token is good for one message.
fn fcm() -> Sink {
    let body = json!({ "name": "projects/leads/messages/1" }).to_string();
    let route = SinkRoute {
        method: "POST".to_owned(),
        path: "/v1/projects/*/messages:send".to_owned(),
        reply: RecordedReply { status: 200, headers: vec![], body },
        absent: None,
        batch: None,
    };
    let tokens = Some(TokenPolicy { path: "/token".to_owned(), uses_max: 1 });
    Sink::start(SinkSettings { routes: vec![route], tokens, ..SinkSettings::default() }).expect("the sink starts")
}

#[test]
fn vendor_clients_behave_as_against_the_services() {
    let scripts = vendor::scripts();
    let python = vendor::python("cloud", &scripts.join("cloud_requirements.txt"));
    let (s3, ses, fcm) = (provider(Provider::S3), provider(Provider::Ses), fcm());
    let mut command = Command::new(python);
    command.arg(scripts.join("cloud_clients.py"));
    command.env("S3_URL", s3.url()).env("SES_URL", ses.url()).env("FCM_URL", fcm.url());
    let results = vendor::results("the clients", &mut command);
    assert_eq!(
        results["s3"],
        json!({
            "created": 200, "exists": ["PreconditionFailed", 412], "read": "{}", "absent": ["NoSuchKey", 404],
            "checksum": "RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=", "metadata": { "effect-key": "k-1" },
            "type": "application/json",
        })
    );
    assert_eq!(results["ses"], json!({ "sent": "sim-00000001", "suppressed": ["MessageRejected", 400] }));
    let name = "projects/leads/messages/1";
    assert_eq!(results["fcm"], json!([[200, name], [200, name]]));
    check_assertion(&fcm);
}

/// Google's client asks for a token as the connector does, once for each that was used up.
fn check_assertion(fcm: &Sink) {
    let requests = fcm.requests();
    let asked: Vec<&str> =
        requests.iter().filter(|request| request.target == "/token").map(|request| request.body.as_str()).collect();
    assert_eq!(asked.len(), 2, "{requests:?}");
    assert!(asked.iter().all(|body| body.contains("jwt-bearer") && body.contains("assertion=")), "{asked:?}");
    let sent: Value = serde_json::from_str(&requests[1].body).expect("a message");
    assert_eq!(sent["message"]["notification"]["title"], "Hello");
}

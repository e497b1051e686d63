//! Declared connectors whose waiting jobs share a request, and a message template through Amazon SES.

use serde_json::{Value, json};
use sluice_simulator::faults::{CallKind, Scripted};
use sluice_simulator::sink::Provider;
use sluice_simulator::{Fault, FaultPlan, Service, ServiceKind, ServiceSettings, Sink, SinkSettings};

use crate::declared::{outcomes, settled, world, world_with_secret};
use crate::fixture::{World, lead};

const LEADS: usize = 20;
/// Place of the lead that the provider refuses.
const BAD: usize = 7;

const TEMPLATES: [(&str, &str); 2] =
    [("templates/welcome.subject", "Welcome\n"), ("templates/welcome.txt", "Hello {{ event.last_name }}\n")];

async fn postmark(faults: FaultPlan) -> (Service, World) {
    let service = Service::start(ServiceSettings { faults, ..ServiceSettings::new(ServiceKind::Postmark) }).unwrap();
    let destination = format!(
        "type: postmark, server_token: '${{secrets.PROVIDER}}', from: Shop <shop@example.com>, base_url: '{}'",
        service.url()
    );
    let step = "    run: postmark.send\n    with: { to: '{{ event.email }}', subject: Hello, text: Hello }\n";
    let world = world_with_secret(step, &destination, &[], ServiceKind::Postmark.credential()).await;
    (service, world)
}

async fn segment(faults: FaultPlan) -> (Service, World) {
    let service = Service::start(ServiceSettings { faults, ..ServiceSettings::new(ServiceKind::Segment) }).unwrap();
    let destination = format!("type: segment, write_key: '${{secrets.PROVIDER}}', base_url: '{}/v1'", service.url());
    let step = "    run: analytics.track\n    with: { event: Signed Up, user_id: '{{ event.email }}' }\n";
    let world = world_with_secret(step, &destination, &[], ServiceKind::Segment.credential()).await;
    (service, world)
}

fn answer_of_the_first_write_is_lost() -> FaultPlan {
    FaultPlan::scripted([Scripted::first(1, Fault::DropAfter).only(CallKind::Write)])
}

/// Lets leads wait, sends them on together and returns the job of each.
async fn deliver(world: &World, leads: &[Value]) -> Vec<Value> {
    world.act("/api/v1/pause", json!({ "target": "destination:provider", "reason": "test" })).await;
    let mut events = vec![];
    for lead in leads {
        events.push(world.post(lead).await.event());
    }
    world.act("/api/v1/resume", json!({ "target": "destination:provider" })).await;
    let mut jobs = vec![];
    for event in events {
        let settled = world.settled(&event).await;
        jobs.push(world.job(settled[0]["id"].as_str().unwrap()).await);
    }
    jobs
}

fn leads() -> Vec<Value> {
    (0..LEADS).map(|n| lead(&format!("p{n}"))).collect()
}

fn states(jobs: &[Value]) -> Vec<&str> {
    jobs.iter().map(|job| job["state"].as_str().unwrap()).collect()
}

/// Requests with this path; a job that is loaded later may need one of its own.
fn requests(service: &Service, path: &str) -> u64 {
    service.truth().calls.iter().filter(|(call, _)| call.contains(path)).map(|(_, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_that_wait_share_a_request_and_a_bad_one_fails_alone() {
    let (service, world) = postmark(FaultPlan::none()).await;
    let mut leads = leads();
    leads[BAD] = lead("inactive");
    let jobs = deliver(&world, &leads).await;
    let mut expected = ["succeeded"; LEADS];
    expected[BAD] = "dead";
    assert_eq!(states(&jobs), expected);
    assert_eq!(jobs[BAD]["failure"]["code"], "406", "{}", jobs[BAD]);
    let truth = service.truth();
    assert_eq!((truth.effects, truth.keys_applied_again), (LEADS as u64 - 1, 0), "{truth:?}");
    let calls = requests(&service, "/email");
    assert!(calls <= 4, "{calls} requests for {LEADS} mails: {truth:?}");
    assert!(requests(&service, "/email/batch") > 0, "{truth:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn blind_mails_of_a_request_with_a_lost_answer_wait_for_an_operator() {
    let (service, world) = postmark(answer_of_the_first_write_is_lost()).await;
    let jobs = deliver(&world, &leads()).await;
    let unknown = jobs.iter().filter(|job| job["state"] == "unknown").count();
    assert!(unknown > 1, "{:?}", states(&jobs));
    for job in &jobs {
        let expected = if job["state"] == "unknown" { vec!["unsure"] } else { vec!["done"] };
        assert_eq!(outcomes(job), expected, "{job}");
    }
    let truth = service.truth();
    assert_eq!((truth.effects, truth.keys_applied_again), (LEADS as u64, 0), "{truth:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keyed_events_of_a_request_with_a_lost_answer_are_sent_again_under_their_keys() {
    let (service, world) = segment(answer_of_the_first_write_is_lost()).await;
    let jobs = deliver(&world, &leads()).await;
    assert_eq!(states(&jobs), ["succeeded"; LEADS]);
    let again = jobs.iter().filter(|job| outcomes(job) == ["unsure", "done"]).count();
    assert!(again > 1, "the lost request carried several events");
    let truth = service.truth();
    assert_eq!((truth.effects, truth.repeats), (LEADS as u64, again as u64), "{truth:?}");
    let requests = requests(&service, "/v1/");
    assert!(requests < LEADS as u64, "{requests} requests for {LEADS} events");
}

#[tokio::test(flavor = "multi_thread")]
async fn template_through_ses_carries_the_rendered_mail_and_a_lost_answer_waits_for_an_operator() {
    let faults = FaultPlan::scripted([Scripted::first(2, Fault::DropAfter).only(CallKind::Write)]);
    let sink = Sink::start(SinkSettings { provider: Some(Provider::Ses), faults, ..SinkSettings::default() }).unwrap();
    let destination = format!(
        "type: ses, region: eu-central-1, access_key_id: AKID, secret_access_key: '${{secrets.PROVIDER}}', from: Shop <shop@example.com>, base_url: '{}'",
        sink.url()
    );
    let step =
        "    run: messaging.send_template\n    with: { channel: email, template: welcome, to: '{{ event.email }}' }\n";
    let world = world(step, &destination, &TEMPLATES).await;
    for id in ["s1", "s2"] {
        let job = settled(&world, id).await;
        assert_eq!((&job["state"], outcomes(&job)), (&json!("unknown"), vec!["unsure"]), "{job}");
    }
    let job = settled(&world, "s3").await;
    assert_eq!((&job["state"], outcomes(&job)), (&json!("succeeded"), vec!["done"]), "{job}");
    assert_eq!(sink.truth().applied, 3);
    let sent: Value = serde_json::from_str(&sink.requests()[2].body).unwrap();
    let simple = &sent["Content"]["Simple"];
    assert_eq!(sent["Destination"]["ToAddresses"], json!(["s3@example.com"]), "{sent}");
    assert_eq!(simple["Subject"]["Data"], "Welcome", "{sent}");
    assert!(simple["Body"]["Text"]["Data"].as_str().is_some_and(|text| text.starts_with("Hello ")), "{sent}");
}

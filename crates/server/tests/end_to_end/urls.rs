//! Values of an event in the URL of a request.

use serde_json::Value;

use crate::fixture::{FLOW, QUEUES, World, lead};

/// The destination's credential must not reach another path than the one that the step names.
const DESTINATION: &str = r#"
destinations:
  shop: { type: http, base_url: "{sink}/api", headers: { X-Api-Token: "${secrets.SHOP_TOKEN}" }, timeout: 300ms }
"#;

async fn world(with: &str) -> World {
    let worker = format!(
        "version: 1\nname: to-shop\nconsumes: {{ queue: leads }}\nretry: {{ base_delay: 10ms, max_attempts: 3 }}\nrun:\n  - name: send\n    run: http.request\n    destination: shop\n    with: {with}\n"
    );
    let files = [("flow.yml", FLOW), ("worker.yml", &worker), ("queues.yml", QUEUES), ("shop.yml", DESTINATION)];
    World::start_with_secrets(&files, &[("SHOP_TOKEN", "shop-token")]).await
}

/// Posts a lead of this company and returns its job.
async fn job_of(world: &World, number: usize, company: &str) -> Value {
    let mut lead = lead(&format!("u{number}"));
    lead["company"] = company.into();
    let event = world.post(&lead).await.event();
    let jobs = world.settled(&event).await;
    world.job(jobs[0]["id"].as_str().unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn value_in_a_url_stays_in_its_path_segment_and_query() {
    let world = world("{ method: PUT, url: \"/p/{{ event.company }}?q={{ event.company }}\", json: {} }").await;
    for (number, (company, target)) in [
        ("a/b", "/api/p/a%2Fb?q=a%2Fb"),
        ("x?admin=1#y", "/api/p/x%3Fadmin%3D1%23y?q=x%3Fadmin%3D1%23y"),
        ("//evil.example/", "/api/p/%2F%2Fevil.example%2F?q=%2F%2Fevil.example%2F"),
    ]
    .into_iter()
    .enumerate()
    {
        let job = job_of(&world, number, company).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        assert_eq!(world.sink.requests().last().unwrap().target, target);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn value_in_a_url_does_not_reach_another_path_with_our_credentials() {
    let world = world("{ method: PUT, url: \"/p/{{ event.company }}\", json: {} }").await;
    for (number, company) in ["../../admin/delete", "..", "..\\admin", "..;/admin"].into_iter().enumerate() {
        let job = job_of(&world, number, company).await;
        assert_eq!(job["state"], "dead", "{company}: {job}");
        assert_eq!(job["failure"]["code"], "dot-segment", "{job}");
        assert_eq!(job["attempts_total"], 1, "it is not tried again: {job}");
    }
    assert_eq!(world.sink.truth().requests, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_url_of_an_event_stays_below_the_base_url() {
    let world = world("{ method: PUT, url: \"{{ event.company | raw_url }}\", json: {} }").await;
    let base = world.sink.url();
    for (number, (company, expected)) in [
        ("https://evil.example/api/x".to_owned(), "other-origin"),
        (format!("{base}/admin"), "outside-base-path"),
        (format!("{base}/api/../admin"), "dot-segment"),
    ]
    .into_iter()
    .enumerate()
    {
        let job = job_of(&world, number, &company).await;
        assert_eq!((job["state"].as_str(), job["failure"]["code"].as_str()), (Some("dead"), Some(expected)), "{job}");
    }
    assert_eq!(world.sink.truth().requests, 0);
    let job = job_of(&world, 9, &format!("{base}/api/x?y=z")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(world.sink.requests().last().unwrap().target, "/api/x?y=z");
}

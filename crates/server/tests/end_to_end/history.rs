//! A node answers what it did from its own ledger, and its metrics say the same.

use serde_json::{Value, json};
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::{World, lead, sign};

/// Two leads that reach the CRM, one duplicate, one that it rejects, and a request with a wrong signature.
async fn world_with_history() -> World {
    let world = World::start().await;
    for name in ["a", "b"] {
        let event = world.post(&lead(name)).await.event();
        assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    }
    assert_eq!(world.post(&lead("a")).await.status, 202);
    world.crm.set_faults(FaultPlan::always(Fault::Reply { code: 400 })).unwrap();
    let dead = world.post(&lead("dead")).await.event();
    assert_eq!(world.settled(&dead).await[0]["state"], "dead");
    world.crm.set_faults(FaultPlan::none()).unwrap();
    let request = world.client.post(format!("{}/in/website", world.intake)).header("x-signature", sign(b"other"));
    let status = request.body(lead("c").to_string()).send().await.unwrap().status();
    assert_eq!(status.as_u16(), 401);
    world
}

/// Sum of a counter over the last hour, by its labels joined with a slash.
async fn counts(world: &World, measure: &str, by: &str) -> Vec<(String, u64)> {
    let history = world.get(&format!("/api/v1/series?measure={measure}&by={by}&step=minute&since=1h")).await;
    let sum = |series: &Value| {
        let labels: Vec<&str> = by.split(',').map(|name| series["labels"][name].as_str().unwrap()).collect();
        let points = series["points"].as_array().unwrap();
        (labels.join("/"), points.iter().map(|point| point["count"].as_u64().unwrap()).sum())
    };
    history["series"].as_array().unwrap().iter().map(sum).collect()
}

fn row(labels: &str, count: u64) -> (String, u64) {
    (labels.to_owned(), count)
}

#[tokio::test(flavor = "multi_thread")]
async fn history_has_what_the_node_did_after_a_restart() {
    let mut world = world_with_history().await;
    world.stop_node().await;
    world.start_node().await;
    assert_eq!(counts(&world, "accepted", "source").await, [row("website", 3)]);
    assert_eq!(counts(&world, "duplicates", "source").await, [row("website", 1)]);
    assert_eq!(counts(&world, "jobs", "worker,state").await, [row("to-crm/dead", 1), row("to-crm/succeeded", 2)]);
    assert_eq!(counts(&world, "attempts", "destination,outcome").await, [row("crm/done", 2), row("crm/reject", 1)]);
    assert_eq!(counts(&world, "refused", "source").await, [row("website", 1)]);
    assert_eq!(counts(&world, "effect_seconds", "destination").await, [row("crm", 2)]);
    assert_eq!(counts(&world, "call_seconds", "destination").await, [row("crm", 3)]);
    assert_eq!(counts(&world, "queue_seconds", "worker").await, [row("to-crm", 3)]);
    assert_eq!(counts(&world, "wait_seconds", "destination").await, [row("crm", 3)]);
    let apart = world.get("/api/v1/destinations/crm").await["latency"].clone();
    assert_eq!((&apart["wait"]["count"], &apart["call"]["count"]), (&json!(3), &json!(3)), "{apart}");
    assert!(apart["call"]["p50"].as_f64() <= apart["call"]["p99"].as_f64() && apart["window"] == "1h", "{apart}");
    let latency = world.get("/api/v1/latency?window=15m&percentile=95").await;
    assert_eq!((&latency[0]["name"], &latency[0]["count"]), (&json!("crm"), &json!(2)));
    assert!(latency[0]["percentile"].as_f64().unwrap() > 0.0, "{latency}");
    let stars = world.get("/api/v1/north-stars").await;
    assert_eq!((&stars["idempotent_effects_share"], &stars["duplicates_per_10000"]), (&json!(1.0), &json!(2500.0)));
    assert!(stars["intake_to_effect_p95_seconds"].as_f64().unwrap() > 0.0, "{stars}");
    assert_eq!(stars["replay_success_share"], Value::Null, "nothing was replayed");
    let page = world.page("/metrics").await;
    assert!(page.contains(r#"sluice_north_star{name="duplicates_per_10000"} 2500.0"#), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_exact_at_once() {
    let world = world_with_history().await;
    let totals = world.get("/api/v1/totals").await;
    let total = |measure: &str, labels: Value| {
        let found = totals.as_array().unwrap().iter().find(|row| row["measure"] == measure && row["labels"] == labels);
        found.map(|row| row["total"].as_u64().unwrap())
    };
    assert_eq!(total("accepted", json!({ "source": "website" })), Some(3));
    assert_eq!(total("duplicates", json!({ "source": "website" })), Some(1));
    assert_eq!(total("jobs", json!({ "worker": "to-crm", "state": "dead" })), Some(1));
    assert_eq!(total("attempts", json!({ "destination": "crm", "outcome": "done" })), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_series_that_cannot_be_answered_says_what_can() {
    let world = World::start().await;
    for (query, part) in [
        ("measure=nothing", "use one of accepted, duplicates"),
        ("measure=attempts&by=worker", "it has destination, outcome"),
        ("measure=attempts&step=second", "use minute, hour or day"),
        ("measure=attempts&step=minute&since=30d", "use a longer step"),
    ] {
        let answer = world.get(&format!("/api/v1/series?{query}")).await;
        assert_eq!(answer["status"], 400, "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains(part), "{answer}");
    }
    let answer = world.get("/api/v1/latency?measure=jobs").await;
    assert!(answer["detail"].as_str().unwrap().contains("use call_seconds, effect_seconds, queue_seconds"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_name_every_stage() {
    let world = world_with_history().await;
    let page = world.page("/metrics").await;
    for line in [
        r#"sluice_dead_letter_depth{queue="leads-dlq"} 1"#,
        r#"sluice_breaker{destination="crm"} 0"#,
        r#"sluice_destination_paused{destination="crm"} 0"#,
        r#"sluice_effect_seconds_count{destination="crm"} 2"#,
        r#"sluice_queue_seconds_count{worker="to-crm"} 3"#,
        "sluice_approvals_pending 0",
        "contact_attempts_total 3",
        "idempotency_hits_total 1",
        "contact_dlq_depth 1",
    ] {
        assert!(page.lines().any(|found| found.starts_with(line)), "{line} is not in\n{page}");
    }
    assert!(page.contains(r#"sluice_oldest_dead_letter_seconds{queue="leads-dlq"}"#), "{page}");
    assert!(page.contains("# {trace_id=\""), "no exemplar in\n{page}");
    assert!(page.ends_with("# EOF\n"));
}

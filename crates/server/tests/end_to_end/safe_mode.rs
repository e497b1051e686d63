//! Safe mode: other messages, tighter caps or none at all; by hand and by rule, with an end, over restarts.

use serde_json::{Value, json};
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::until;
use crate::guard_fixture::{Shop, cart, worker};

const POLICIES: &str = "policies: { careful: { rules: [{ daily: 1 }] } }\n";

fn with_safe_mode(safe_mode: &str) -> String {
    format!("{}safe_mode: {safe_mode}\n", worker(""))
}

async fn open(safe_mode: &str) -> Shop {
    let worker = with_safe_mode(safe_mode);
    let files = [
        ("policies.yml", POLICIES),
        ("templates/short.subject", "Still there{% if safe_mode %} (short){% endif %}"),
        ("templates/short.txt", "Your cart waits.\n"),
    ];
    Shop::open(&worker, &files).await
}

async fn turn(shop: &Shop, on: bool, more: Value) -> Value {
    let mut order = json!({"on": on, "reason": "incident", "actor": "ann"});
    order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = shop.world.act("/api/v1/safe-mode", order).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

#[tokio::test(flavor = "multi_thread")]
async fn safe_mode_changes_message_and_cap_and_survives_a_restart() {
    let mut shop = open("{ templates: { cart: short }, policy: careful }").await;
    assert_eq!(shop.settled(&cart("c1", "ada")).await["state"], "succeeded");
    let on = turn(&shop, true, json!({"worker": "cart-recovery", "for": "1h"})).await;
    assert_eq!(on[0]["worker"], "cart-recovery");
    shop.world.stop_node().await;
    shop.world.start_node().await;
    assert_eq!(shop.world.get("/api/v1/status").await["safe_modes"][0]["actor"], "ann");
    assert_eq!(shop.settled(&cart("c2", "ada")).await["state"], "succeeded");
    let job = shop.settled(&cart("c3", "ada")).await;
    assert_eq!((&job["state"], &job["result"]["policy"]), (&"noop".into(), &"careful".into()), "{job}");
    assert_eq!(turn(&shop, false, json!({"worker": "cart-recovery"})).await, json!([]));
    assert_eq!(shop.settled(&cart("c4", "ada")).await["state"], "succeeded");
    let subjects: Vec<String> =
        shop.smtp.messages().iter().map(|mail| mail.header("subject").unwrap().to_owned()).collect();
    assert_eq!(subjects, ["Your cart, Ada", "Still there (short)", "Your cart, Ada"]);
    let audit = shop.world.get("/api/v1/audit?limit=2").await;
    let actions: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["safe-mode off", "safe-mode on"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn safe_mode_ends_by_itself() {
    let shop = open("{ templates: { cart: short } }").await;
    turn(&shop, true, json!({"for": "150ms"})).await;
    until(|| async { shop.world.get("/api/v1/safe-mode").await.as_array().unwrap().is_empty().then_some(()) }).await;
    assert_eq!(shop.settled(&cart("c1", "ada")).await["state"], "succeeded");
    assert_eq!(shop.smtp.messages()[0].header("subject"), Some("Your cart, Ada"));
}

#[tokio::test(flavor = "multi_thread")]
async fn held_job_continues_once_when_safe_mode_ends() {
    let mut shop = open("{ hold: true }").await;
    turn(&shop, true, json!({"for": "1h"})).await;
    let event = shop.world.post(&cart("c1", "ada")).await.event();
    let waits = async |shop: &Shop| {
        until(|| async {
            let event = shop.world.get(&format!("/api/v1/events/{event}")).await;
            let job = shop.world.job(event["jobs"][0]["id"].as_str().unwrap()).await;
            (job["state"] == "waiting" && job["waiting_for"]["reason"] == "safe-mode").then_some(job)
        })
        .await
    };
    waits(&shop).await;
    shop.world.stop_node().await;
    shop.world.start_node().await;
    let job = waits(&shop).await;
    assert_eq!((&job["attempts"], shop.mails()), (&0.into(), 0));
    turn(&shop, false, json!({})).await;
    let jobs = shop.world.settled(&event).await;
    assert_eq!((&jobs[0]["state"], shop.mails()), (&"succeeded".into(), 1), "{jobs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_failures_turn_safe_mode_on() {
    let shop =
        open("{ templates: { cart: short }, for: 1h, when: { error_rate: { over: 20%, window: 5m, calls_min: 3 } } }")
            .await;
    shop.smtp.set_faults(FaultPlan::always(Fault::DropBefore)).unwrap();
    assert_eq!(shop.settled(&cart("c1", "ada")).await["state"], "dead");
    shop.smtp.set_faults(FaultPlan::none()).unwrap();
    let modes = shop.world.get("/api/v1/safe-mode").await;
    assert_eq!((&modes[0]["worker"], &modes[0]["actor"]), (&"cart-recovery".into(), &"sluice".into()), "{modes}");
    assert_eq!(shop.settled(&cart("c2", "bob")).await["state"], "succeeded");
    assert_eq!(shop.smtp.messages()[0].header("subject"), Some("Still there (short)"));
    let audit = shop.world.get("/api/v1/audit?limit=1").await;
    assert_eq!(audit["items"][0]["action"], "safe-mode on", "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_breaker_turns_safe_mode_on() {
    let worker = with_safe_mode("{ hold: true, for: 1h, when: { breaker: mail } }");
    let shop = Shop::open(&worker, &[("policies.yml", POLICIES)]).await;
    let text = std::fs::read_to_string(shop.world.config_path("mail.yml")).unwrap();
    let text = text.replace("timeout: 2s", "timeout: 2s, breaker: { failures_in_a_row: 3, open_first: 50ms }");
    std::fs::write(shop.world.config_path("mail.yml"), text).unwrap();
    assert_eq!(shop.world.act("/api/v1/reload", json!({})).await.status, 200);
    shop.smtp.set_faults(FaultPlan::always(Fault::DropBefore)).unwrap();
    shop.world.post(&cart("c1", "ada")).await.event();
    let modes = until(|| async {
        let modes = shop.world.get("/api/v1/safe-mode").await;
        (!modes.as_array().unwrap().is_empty()).then_some(modes)
    })
    .await;
    assert_eq!(modes[0]["reason"], "the breaker of mail opened", "{modes}");
}

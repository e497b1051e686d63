//! Policies: what is refused is a no-op that says why, and a cap is exact whatever happens.

use serde_json::{Value, json};
use sluice_simulator::faults::Scripted;
use sluice_simulator::{Fault, FaultPlan};

use crate::fixture::until;
use crate::guard_fixture::{Shop, cart, worker};

const POLICY: &str = "    policy: marketing\n";

fn policies(rules: &str) -> String {
    format!("policies:\n  marketing:\n    rules: [{rules}]\n")
}

async fn shop(rules: &str, more: &[(&str, &str)]) -> Shop {
    let policies = policies(rules);
    let mut files = vec![("policies.yml", policies.as_str())];
    files.extend_from_slice(more);
    Shop::open(&worker(POLICY), &files).await
}

fn refused(job: &Value, rule: &str) {
    assert_eq!(job["state"], "noop", "{job}");
    let effect = &job["effects"][0];
    assert_eq!((&effect["state"], &effect["result"]["rule"]), (&"skipped".into(), &rule.into()), "{job}");
    assert_eq!(
        (&effect["result"]["noop"], &effect["result"]["policy"]),
        (&"refused by policy".into(), &"marketing".into())
    );
    assert_eq!(job["result"], effect["result"], "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn effect_denied_by_a_rule_is_skipped_with_a_reason() {
    let rules =
        "{consent: {from: event.consent}}, {suppression: {list: gone}}, {when: 'event.total > 10', name: worth-it}";
    let shop = shop(rules, &[("lists/gone.txt", "# left us\nEVE@example.com\n")]).await;
    let with = |id: &str, name: &str, value: Value| {
        let mut cart = cart(id, "ada");
        cart[name] = value;
        cart
    };
    refused(&shop.settled(&with("c1", "consent", json!("no"))).await, "consent");
    refused(&shop.settled(&with("c2", "consent", Value::Null)).await, "consent");
    refused(&shop.settled(&with("c3", "total", json!(5))).await, "worth-it");
    refused(&shop.settled(&cart("c4", "eve")).await, "suppression");
    let suppressed = json!({"add": ["Bob@Example.com"], "reason": "asked", "actor": "ann"});
    assert_eq!(shop.world.act("/api/v1/suppressions", suppressed).await.body, json!({"added": 1, "removed": 0}));
    refused(&shop.settled(&cart("c5", "bob")).await, "suppression");
    let listed = shop.world.get("/api/v1/suppressions").await;
    assert!(!listed.to_string().to_lowercase().contains("bob@"), "{listed}");
    assert_eq!(shop.settled(&cart("c6", "ada")).await["state"], "succeeded");
    assert_eq!(shop.mails(), 1);
    let metrics = shop.world.page("/metrics").await;
    let line = r#"sluice_policy_decisions_total{policy="marketing",rule="consent",decision="refused"} 2"#;
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn daily_cap_is_exact_under_concurrency_and_after_a_restart() {
    let mut shop = shop("{daily: 2}", &[]).await;
    let mut events = vec![];
    for n in 0..12 {
        events.push(shop.world.post(&cart(&format!("c{n}"), "ada")).await.event());
    }
    let other = shop.world.post(&cart("other", "bob")).await.event();
    shop.world.stop_node().await;
    shop.world.start_node().await;
    events.push(shop.world.post(&cart("late", "ada")).await.event());
    let mut states = vec![];
    for event in events.iter().chain([&other]) {
        states.push(shop.world.settled(event).await[0]["state"].as_str().unwrap().to_owned());
    }
    assert_eq!(states.iter().filter(|state| *state == "succeeded").count(), 3, "{states:?}");
    assert_eq!(states.iter().filter(|state| *state == "noop").count(), 11, "{states:?}");
    let to_ada = shop.smtp.messages().iter().filter(|mail| mail.to[0] == "ada@example.com").count();
    assert_eq!((to_ada, shop.mails()), (2, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn reservation_is_released_when_nothing_was_sent_and_kept_while_unknown() {
    let shop = shop("{daily: 1}", &[]).await;
    // Refused for good before the content: nothing was sent.
    shop.smtp.set_faults(FaultPlan::scripted([Scripted::first(5, Fault::DropBefore).at("RCPT")])).unwrap();
    assert_eq!(shop.settled(&cart("c1", "ada")).await["state"], "dead");
    shop.smtp.set_faults(FaultPlan::none()).unwrap();
    assert_eq!(shop.settled(&cart("c2", "ada")).await["state"], "succeeded");
    refused(&shop.settled(&cart("c3", "ada")).await, "daily");
    // The mail was taken and the answer was lost: the place is taken until a person says that it did not happen.
    shop.smtp.set_faults(FaultPlan::scripted([Scripted::first(1, Fault::DropAfter).at("DOT")])).unwrap();
    let unknown = shop.settled(&cart("c4", "bob")).await;
    assert_eq!(unknown["state"], "unknown", "{unknown}");
    refused(&shop.settled(&cart("c5", "bob")).await, "daily");
    let resolve = json!({"resolution": "did-not-happen", "reason": "not in the log"});
    let id = unknown["id"].as_str().unwrap();
    assert_eq!(shop.world.act(&format!("/api/v1/jobs/{id}/resolve"), resolve).await.status, 200);
    let sent = until(|| async {
        let job = shop.world.job(id).await;
        (job["state"] == "succeeded").then_some(job)
    })
    .await;
    assert_eq!(sent["effects"][0]["state"], "applied");
    refused(&shop.settled(&cart("c6", "bob")).await, "daily");
}

/// The process dies while the answer of the mail server is awaited: nobody knows, and nobody is written to a second time.
#[tokio::test(flavor = "multi_thread")]
async fn crash_between_reservation_and_outcome_keeps_the_reservation() {
    let mut shop = shop("{daily: 1}", &[]).await;
    shop.smtp
        .set_faults(FaultPlan::scripted([Scripted::first(1, Fault::TimeoutAfter { hold_ms: 60_000 }).at("DOT")]))
        .unwrap();
    let first = shop.world.post(&cart("c1", "ada")).await.event();
    until(|| async { (shop.smtp.truth().accepted > 0).then_some(()) }).await;
    if let Some(node) = shop.world.node.take() {
        node.stop(std::time::Duration::from_millis(1)).await;
    }
    shop.smtp.set_faults(FaultPlan::none()).unwrap();
    shop.world.start_node().await;
    assert_eq!(shop.world.settled(&first).await[0]["state"], "unknown");
    refused(&shop.settled(&cart("c2", "ada")).await, "daily");
    assert_eq!(shop.smtp.truth().accepted, 1, "one mail, never two");
}

#[tokio::test(flavor = "multi_thread")]
async fn quiet_hours_defer_a_job_without_using_attempts() {
    // All day but one minute that is not now.
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let open = (now.hour() as u32 + 12) % 24;
    let hours = format!("{{quiet_hours: {{from: '{open:02}:01', to: '{open:02}:00', then: wait}}}}");
    let mut shop = shop(&hours, &[]).await;
    let event = shop.world.post(&cart("c1", "ada")).await.event();
    let waiting = async |shop: &Shop| {
        until(|| async {
            let event = shop.world.get(&format!("/api/v1/events/{event}")).await;
            let job = shop.world.job(event["jobs"][0]["id"].as_str().unwrap()).await;
            (job["state"] == "waiting").then_some(job)
        })
        .await
    };
    let job = waiting(&shop).await;
    assert_eq!((&job["attempts"], &job["waiting_for"]["reason"]), (&0.into(), &"policy".into()), "{job}");
    shop.world.stop_node().await;
    // The policy in force decides, also for jobs that were accepted before.
    std::fs::write(shop.world.config_path("policies.yml"), policies("{weekly: 1}")).unwrap();
    shop.world.start_node().await;
    let job = waiting(&shop).await;
    assert_eq!(job["attempts"], 0, "{job}");
    assert_eq!(shop.mails(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn consent_is_recorded_by_events_and_checked_by_a_step() {
    let worker = "name: cart-recovery\nconsumes: carts\nrun:\n  \
        - name: note\n    if: body.signup\n    run: consent.set\n    with: { granted: '{{ event.consent }}' }\n  \
        - name: ask\n    run: policy.check\n    with: { policy: marketing }\n  \
        - name: send\n    if: steps.ask.output.allowed and not body.signup\n    run: messaging.send_template\n    \
          with: { template: cart, to: '{{ event.email }}', vars: { offer: ten } }\n    policy: marketing\n";
    let shop = Shop::open(worker, &[("policies.yml", &policies("{consent: {}}"))]).await;
    let say = |id: &str, consent: bool| {
        let mut cart = cart(id, "ada");
        (cart["signup"], cart["consent"]) = (true.into(), consent.into());
        cart
    };
    assert_eq!(shop.settled(&cart("c1", "ada")).await["state"], "noop");
    shop.settled(&say("s1", true)).await;
    assert_eq!(shop.settled(&cart("c2", "ada")).await["state"], "succeeded");
    shop.settled(&say("s2", false)).await;
    let job = shop.settled(&cart("c3", "ada")).await;
    assert_eq!((&job["state"], &job["result"]["ask"]["rule"]), (&"noop".into(), &"consent".into()), "{job}");
    assert_eq!(shop.mails(), 1);
}

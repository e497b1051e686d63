//! A person decides: once, whatever crashes, and what was approved happens once.

use serde_json::{Value, json};
use sluice_simulator::faults::Scripted;
use sluice_simulator::{Fault, FaultPlan, Slack, SlackSettings};

use crate::fixture::until;
use crate::guard_fixture::{Shop, cart};

fn worker(more: &str) -> String {
    format!(
        "name: cart-recovery\nconsumes: carts\nretry: {{ base_delay: 10ms, max_delay: 50ms, max_attempts: 5 }}\nrun:\n  \
        - name: approve\n    run: approval.request\n    with:\n      title: \"Send to {{{{ event.first_name }}}}?\"\n      summary: A cart of {{{{ event.total }}}}\n{more}  \
        - name: send\n    run: messaging.send_template\n    with: {{ template: cart, to: \"{{{{ event.email }}}}\", vars: {{ offer: ten }} }}\n"
    )
}

/// The question of an event's job, once it waits.
async fn asked(shop: &Shop, event: &str) -> Value {
    until(|| async {
        let job = shop.world.get(&format!("/api/v1/events/{event}")).await["jobs"][0].clone();
        let questions = shop.world.get("/api/v1/approvals?limit=1000").await;
        let of_job = |item: &&Value| item["job"] == job["id"];
        let found = questions["items"].as_array().unwrap().iter().find(of_job).cloned();
        found.filter(|_| job["state"] == "waiting")
    })
    .await
}

async fn decide(shop: &Shop, id: &Value, decision: &str) -> crate::fixture::Answer {
    let path = format!("/api/v1/approvals/{}", id.as_str().unwrap());
    shop.world.act(&path, json!({"decision": decision, "reason": "looked at it", "actor": "ann"})).await
}

async fn final_job(shop: &Shop, event: &str) -> Value {
    let jobs = shop.world.settled(event).await;
    shop.world.job(jobs[0]["id"].as_str().unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_job_continues_once_and_the_first_decision_counts() {
    let shop = Shop::open(&worker(""), &[]).await;
    let event = shop.world.post(&cart("c1", "ada")).await.event();
    let question = asked(&shop, &event).await;
    assert_eq!((&question["title"], &question["summary"]), (&"Send to Ada?".into(), &"A cart of 42".into()));
    assert_eq!(shop.mails(), 0);
    let answer = decide(&shop, &question["id"], "approve").await;
    assert_eq!((answer.status, &answer.body["state"]), (200, &"approved".into()), "{}", answer.body);
    let job = final_job(&shop, &event).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!((shop.mails(), &job["attempts"]), (1, &0.into()));
    assert_eq!(decide(&shop, &question["id"], "approve").await.status, 200, "twice the same is fine");
    let other = decide(&shop, &question["id"], "reject").await;
    assert_eq!((other.status, &other.body["code"]), (409, &"conflict".into()));
    assert!(other.body["detail"].as_str().unwrap().contains("was approved by ann"), "{}", other.body);
    assert_eq!(shop.mails(), 1);
    let audit = shop.world.get("/api/v1/audit?limit=3").await;
    let line = &audit["items"][0];
    assert_eq!(
        (&line["action"], &line["actor"], &line["detail"]),
        (&"approve".into(), &"ann".into(), &"looked at it".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_approval_is_a_no_op_that_names_the_actor() {
    let shop = Shop::open(&worker(""), &[]).await;
    let event = shop.world.post(&cart("c1", "ada")).await.event();
    let question = asked(&shop, &event).await;
    decide(&shop, &question["id"], "reject").await;
    let job = final_job(&shop, &event).await;
    assert_eq!((&job["state"], shop.mails()), (&"noop".into(), 0), "{job}");
    assert_eq!((&job["result"]["noop"], &job["result"]["by"]), (&"rejected".into(), &"ann".into()), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_without_a_decision_gets_its_default() {
    for (default, state, mails) in [("approve", "succeeded", 1), ("reject", "noop", 0)] {
        let shop = Shop::open(&worker(&format!("      expires: 200ms\n      default: {default}\n")), &[]).await;
        let event = shop.world.post(&cart("c1", "ada")).await.event();
        let job = final_job(&shop, &event).await;
        assert_eq!((job["state"].as_str(), shop.mails()), (Some(state), mails), "{job}");
        let questions = shop.world.get("/api/v1/approvals").await;
        assert_eq!(questions["items"][0]["decided_by"], "expiry");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_approvals_are_decided_at_once() {
    let shop = Shop::open(&worker(""), &[]).await;
    let mut events = vec![];
    for n in 0..5 {
        events.push(shop.world.post(&cart(&format!("c{n}"), &format!("p{n}"))).await.event());
    }
    for event in &events {
        asked(&shop, event).await;
    }
    let order = |dry_run| json!({"decision": "approve", "reason": "all fine", "actor": "ann", "worker": "cart-recovery", "dry_run": dry_run});
    assert_eq!(shop.world.act("/api/v1/approvals", order(true)).await.body["changed"], 5);
    assert_eq!(shop.world.act("/api/v1/approvals", order(false)).await.body["changed"], 5);
    for event in &events {
        assert_eq!(final_job(&shop, event).await["state"], "succeeded");
    }
    assert_eq!(shop.mails(), 5);
    assert_eq!(shop.world.act("/api/v1/approvals", order(false)).await.body["matched"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_asked_for_after_the_count_is_not_decided_with_it() {
    let shop = Shop::open(&worker(""), &[]).await;
    let first = shop.world.post(&cart("c1", "ada")).await.event();
    let asked_at = asked(&shop, &first).await["asked_at"].clone();
    let order = json!({"decision": "approve", "reason": "all fine", "all": true, "asked_before": &asked_at});
    assert_eq!(shop.world.act("/api/v1/approvals", order).await.body["matched"], 0);
    let later = || async { Some(shop.world.get("/api/v1/clock").await["ledger"].clone()).filter(|at| *at != asked_at) };
    let counted = until(later).await;
    let wrong = json!({"decision": "approve", "reason": "x", "all": true, "asked_before": "soon"});
    assert_eq!(shop.world.act("/api/v1/approvals", wrong).await.status, 400);
    let order = json!({"decision": "approve", "reason": "all fine", "all": true, "asked_before": counted});
    assert_eq!(shop.world.act("/api/v1/approvals", order).await.body["changed"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn address_in_the_question_of_an_approval_is_masked() {
    let asks = worker("").replace("event.first_name", "event.email").replace("event.total", "event.email");
    let shop = Shop::open(&asks, &[]).await;
    let event = shop.world.post(&cart("c1", "ada")).await.event();
    let question = asked(&shop, &event).await;
    let address = cart("c1", "ada")["email"].as_str().unwrap().to_owned();
    assert!(question["title"].as_str().unwrap().contains("***@"), "{question}");
    let id = question["id"].as_str().unwrap();
    for path in [format!("/api/v1/approvals/{id}"), "/api/v1/approvals".into(), format!("/api/v1/trace?about={event}")]
    {
        let shown = shop.world.page(&path).await;
        assert!(shown.contains(id) && !shown.contains(&address), "{path}: {shown}");
    }
}

/// The process dies after every step: asked, answered, begun, sent. One mail, never two, and never none once it was approved
/// and nothing is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_every_step_changes_nothing() {
    let mut shop = Shop::open(&worker(""), &[]).await;
    let crash = async |shop: &mut Shop| {
        if let Some(node) = shop.world.node.take() {
            node.stop(std::time::Duration::from_millis(1)).await;
        }
        shop.world.start_node().await;
    };
    // Accepted, and perhaps asked.
    let event = shop.world.post(&cart("c1", "ada")).await.event();
    crash(&mut shop).await;
    let question = asked(&shop, &event).await;
    // Asked, and waiting.
    crash(&mut shop).await;
    assert_eq!(asked(&shop, &event).await["id"], question["id"], "it is asked once");
    assert_eq!(shop.mails(), 0);
    // Answered, and perhaps on its way.
    decide(&shop, &question["id"], "approve").await;
    crash(&mut shop).await;
    let job = final_job(&shop, &event).await;
    assert!(matches!(job["state"].as_str(), Some("succeeded" | "unknown")), "{job}");
    assert_eq!(shop.smtp.truth().by_message_id.values().max(), Some(&1), "one mail, never two");
    crash(&mut shop).await;
    assert_eq!(final_job(&shop, &event).await["state"], job["state"]);
    assert_eq!(shop.mails(), 1);

    // Answered while no node runs: the next one goes on.
    let event = shop.world.post(&cart("c2", "ada")).await.event();
    let question = asked(&shop, &event).await;
    // Sent, and the process dies before it hears the answer.
    shop.smtp
        .set_faults(FaultPlan::scripted([Scripted::first(1, Fault::TimeoutAfter { hold_ms: 60_000 }).at("DOT")]))
        .unwrap();
    decide(&shop, &question["id"], "approve").await;
    until(|| async { (shop.smtp.truth().accepted == 2).then_some(()) }).await;
    shop.smtp.set_faults(FaultPlan::none()).unwrap();
    crash(&mut shop).await;
    assert_eq!(final_job(&shop, &event).await["state"], "unknown");
    assert_eq!(shop.smtp.truth().accepted, 2, "nobody sent it again");
}

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

async fn slack_shop(slack: &Slack) -> Shop {
    let destination = format!(
        "destinations:\n  chat: {{ type: slack, token: \"${{secrets.SLACK_TOKEN}}\", signing_secret: \"${{secrets.SLACK_SIGNING}}\", base_url: \"{}\", timeout: 2s }}\n",
        slack.api_url()
    );
    let files = [
        ("secrets/SLACK_TOKEN", "xoxb-simulator"),
        ("secrets/SLACK_SIGNING", SECRET),
        ("chat.yml", destination.as_str()),
    ];
    Shop::open(&worker("      slack: { destination: chat, channel: C0SIMULATOR }\n"), &files).await
}

async fn press(shop: &Shop, slack: &Slack, button: &str, secret: &str) -> crate::fixture::Answer {
    let message = slack.messages().pop().unwrap();
    let press = slack.click_button(&message, button, "maya", secret).unwrap();
    let mut request = shop.world.client.post(format!("{}/slack/interactions/chat", shop.world.intake)).body(press.body);
    for (name, value) in press.headers {
        request = request.header(name, value);
    }
    crate::fixture::Answer::of(request.send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_button_decides_an_approval_and_only_signed_requests_are_accepted() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let mut shop = slack_shop(&slack).await;
    let event = shop.world.post(&cart("c1", "ada")).await.event();
    let question = asked(&shop, &event).await;
    assert_eq!(slack.truth().messages, 1);
    let message = slack.messages().pop().unwrap();
    assert_eq!(message.text, "Send to Ada?");
    assert_eq!(message.blocks[0]["text"]["text"], "*Send to Ada?*\nA cart of 42");
    assert_eq!(message.blocks[1]["elements"][0]["value"], question["id"]);

    let forged = press(&shop, &slack, "approve", "another secret").await;
    assert_eq!(forged.status, 401, "{}", forged.body);
    // A restart in between: the message is not posted again.
    shop.world.stop_node().await;
    shop.world.start_node().await;
    let answer = press(&shop, &slack, "approve", SECRET).await;
    assert_eq!((answer.status, &answer.body["decided"][0]["state"]), (200, &"approved".into()), "{}", answer.body);
    let job = final_job(&shop, &event).await;
    assert_eq!((&job["state"], shop.mails(), slack.truth().messages), (&"succeeded".into(), 1, 1), "{job}");
    let again = press(&shop, &slack, "reject", SECRET).await;
    assert_eq!(again.body["decided"][0]["state"], "already approved by slack:maya", "{}", again.body);
    let audit = shop.world.get("/api/v1/audit?limit=1").await;
    assert_eq!(audit["items"][0]["actor"], "slack:maya", "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_slack_does_not_stop_an_approval() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    slack.refuse_next(["channel_not_found"; 20]);
    let shop = slack_shop(&slack).await;
    let event = shop.world.post(&cart("c1", "ada")).await.event();
    let question = asked(&shop, &event).await;
    decide(&shop, &question["id"], "approve").await;
    assert_eq!(final_job(&shop, &event).await["state"], "succeeded");
    assert_eq!((shop.mails(), slack.truth().messages), (1, 0));
}

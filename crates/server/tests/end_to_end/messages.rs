//! Messages that are filled in from the event, or not sent at all.

use serde_json::Value;

use crate::guard_fixture::{Shop, cart, worker};

#[tokio::test(flavor = "multi_thread")]
async fn message_is_rendered_and_sent_once() {
    let shop = Shop::open(&worker(""), &[]).await;
    let job = shop.settled(&cart("c1", "ada")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let again = shop.world.post(&cart("c1", "ada")).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    let mails = shop.smtp.messages();
    assert_eq!(mails.len(), 1);
    assert_eq!(mails[0].header("subject"), Some("Your cart, Ada"));
    assert!(mails[0].header("message-id").unwrap().starts_with("<eff_"));
    assert!(mails[0].body.contains("your cart of 42 waits. ten per cent"), "{}", mails[0].body);
    assert!(mails[0].body.contains("<p>Hello Ada</p>"), "{}", mails[0].body);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_placeholder_value_is_a_dead_letter_and_no_mail() {
    let shop = Shop::open(&worker(""), &[]).await;
    for (id, gap) in [("g1", Value::Null), ("g2", Value::from(" "))] {
        let mut cart = cart(id, "ada");
        cart["first_name"] = gap;
        let job = shop.settled(&cart).await;
        assert_eq!((&job["state"], &job["failure"]["class"]), (&"dead".into(), &"mapping".into()), "{job}");
        let message = job["failure"]["message"].as_str().unwrap();
        assert!(message.contains("template `cart.subject`, line 1: `event.first_name` has no value"), "{message}");
    }
    assert_eq!(shop.mails(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_keeps_the_message_that_it_was_accepted_under() {
    let mut shop = Shop::open(&worker(""), &[]).await;
    let answer = shop.world.act("/api/v1/pause", serde_json::json!({"target": "destination:mail", "reason": "test"}));
    assert_eq!(answer.await.status, 200);
    let event = shop.world.post(&cart("c1", "ada")).await.event();
    std::fs::write(shop.world.config_path("templates/cart.txt"), "Another text\n").unwrap();
    shop.world.stop_node().await;
    shop.world.start_node().await;
    let resumed = shop.world.act("/api/v1/resume", serde_json::json!({"target": "destination:mail"})).await;
    assert_eq!(resumed.status, 200);
    shop.world.settled(&event).await;
    assert!(shop.smtp.messages()[0].body.contains("your cart of 42 waits"));
    assert_eq!(shop.settled(&cart("c2", "ada")).await["state"], "succeeded");
    assert!(shop.smtp.messages()[1].body.contains("Another text"));
}

#[tokio::test(flavor = "multi_thread")]
async fn list_from_an_event_adds_no_recipients() {
    let shop = Shop::open(&worker("").replace("event.email", "body.send_to"), &[]).await;
    let recipients = [
        serde_json::json!("ada@example.com, eve@example.com"),
        serde_json::json!("ada@example.com\r\nBcc: eve@example.com"),
        serde_json::json!(["ada@example.com", "eve@example.com"]),
    ];
    for (number, to) in recipients.into_iter().enumerate() {
        let mut cart = cart(&format!("c{number}"), "ada");
        cart["send_to"] = to;
        let job = shop.settled(&cart).await;
        assert_eq!(job["state"], "dead", "{job}");
        assert!(job["failure"]["message"].as_str().unwrap().contains("`with.to`"), "{job}");
    }
    assert_eq!(shop.mails(), 0);
    let mut one = cart("one", "ada");
    one["send_to"] = "Ada <ada@example.com>".into();
    assert_eq!(shop.settled(&one).await["state"], "succeeded");
}

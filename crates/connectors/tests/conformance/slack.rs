//! `slack.post` against the simulated Slack.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors};
use sluice_domain::action::Action;
use sluice_domain::destination::{DestinationKind, SlackDestination, SlackTransport};
use sluice_domain::outcome::{Outcome, Readback};
use sluice_simulator::faults::{CallKind, Moment, RetryAfter, Scripted};
use sluice_simulator::{Fault, FaultPlan, Slack, SlackSettings};

use crate::{PATIENT, brief, connectors};

const CHANNEL: &str = "C0SIMULATOR";

fn with_token(slack: &Slack, token: &str) -> Connectors {
    let way = SlackTransport::Token(token.into());
    connectors([(
        "there",
        DestinationKind::Slack(SlackDestination { base_url: slack.api_url(), transport: way, signing_secret: None }),
    )])
}

fn behind_webhook(slack: &Slack) -> Connectors {
    let way = SlackTransport::Webhook(slack.webhook_url().into());
    connectors([(
        "there",
        DestinationKind::Slack(SlackDestination { base_url: slack.api_url(), transport: way, signing_secret: None }),
    )])
}

fn post(with: &Value) -> Call<'_> {
    crate::call(Action::SlackPost, with, PATIENT)
}

fn start(settings: SlackSettings) -> (Slack, Connectors) {
    let slack = Slack::start(settings).unwrap();
    let connectors = with_token(&slack, "xoxb-simulator");
    (slack, connectors)
}

#[tokio::test]
async fn posted_message_is_read_back_by_its_effect_key() {
    let (slack, connectors) = start(SlackSettings { page_max: 2, ..SlackSettings::default() });
    let with = json!({"channel": CHANNEL, "text": "hello", "blocks": [{"type": "divider"}]});
    assert_eq!(connectors.read_back(post(&with)).await, Readback::Absent);
    let outcome = connectors.call(post(&with)).await;
    let Outcome::Done { result } = outcome else { panic!("{outcome:?}") };
    assert_eq!(result["channel"], CHANNEL);
    let message = &slack.messages()[0];
    assert_eq!((message.text.as_str(), &message.blocks), ("hello", &json!([{"type": "divider"}])));
    assert_eq!(result["ts"], message.ts.as_str());
    // With five newer messages it is on the third page.
    for n in 0..5 {
        let key = format!("other-{n}");
        connectors.call(Call { effect_key: &key, ..post(&with) }).await;
    }
    assert_eq!(connectors.read_back(post(&with)).await, Readback::Present(result.clone()));
    assert_eq!(slack.truth().calls["conversations.history"], 1 + 3);
    // A reply is found in its thread only, not in the channel history.
    let reply = json!({"channel": CHANNEL, "text": "yes", "thread_ts": result["ts"]});
    let reply_call = Call { effect_key: "reply", ..post(&reply) };
    connectors.call(reply_call).await;
    assert!(matches!(connectors.read_back(reply_call).await, Readback::Present(_)));
    assert_eq!(connectors.read_back(Call { with: &with, ..reply_call }).await, Readback::Absent);
}

#[tokio::test]
async fn every_fault_of_slack_has_its_outcome() {
    let (slack, connectors) = start(SlackSettings::default());
    let with = json!({"channel": CHANNEL, "text": "hello"});
    let mut posted = 0;
    for (fault, expected, applied) in [
        (Fault::DropAfter, "unsure retryable reset", true),
        (Fault::DropBefore, "unsure retryable reset", false),
        (Fault::CutResponse, "unsure retryable truncated", true),
        (Fault::TimeoutAfter { hold_ms: 60_000 }, "unsure retryable timeout", true),
        (Fault::ErrorAfter, "unsure retryable internal_error", true),
        (Fault::Gateway { status: 502, moment: Moment::AfterApplying }, "unsure retryable http-502", true),
        (Fault::GarbageBody { moment: Moment::AfterApplying }, "unsure retryable http-200", true),
        (Fault::ServerUnavailable, "retry retryable service_unavailable", false),
        (Fault::TooManyRequests { retry_after: RetryAfter::Seconds(7) }, "wait retryable ratelimited", false),
        (Fault::InvalidSession, "reject auth invalid_auth", false),
        (Fault::RedirectLoop, "reject permanent http-302", false),
    ] {
        slack.set_faults(FaultPlan::scripted([Scripted::first(1, fault.clone()).only(CallKind::Write)])).unwrap();
        let timeout = if expected.ends_with("timeout") { Duration::from_millis(200) } else { PATIENT };
        let key = format!("{fault:?}");
        let call = Call { timeout, effect_key: &key, ..post(&with) };
        let outcome = connectors.call(call).await;
        assert_eq!(brief(&outcome), expected, "{fault:?}");
        if let Outcome::Wait { after, .. } = outcome {
            assert_eq!(after, Some(Duration::from_secs(7)));
        }
        posted += u64::from(applied);
        assert_eq!(slack.truth().messages, posted, "{fault:?}");
        let read = connectors.read_back(Call { timeout: PATIENT, ..call }).await;
        assert_eq!(matches!(read, Readback::Present(_)), applied, "{fault:?} {read:?}");
    }
    slack.set_faults(FaultPlan::none()).unwrap();
    for (error, expected) in [
        ("channel_not_found", "reject permanent channel_not_found"),
        ("fatal_error", "unsure retryable fatal_error"),
        ("msg_too_long", "reject permanent msg_too_long"),
        ("token_revoked", "reject auth token_revoked"),
    ] {
        slack.refuse_next([error]);
        assert_eq!(brief(&connectors.call(post(&with)).await), expected);
    }
    slack.refuse_next(["missing_scope"]);
    assert!(matches!(connectors.read_back(post(&with)).await, Readback::Unreadable(_)));
    slack.refuse_connections().unwrap();
    let reconnecting = with_token(&slack, "xoxb-simulator");
    assert_eq!(brief(&reconnecting.call(post(&with)).await), "retry retryable connect");
}

#[tokio::test]
async fn webhook_posts_a_message_and_has_no_read_back() {
    let slack = Slack::start(SlackSettings::default()).unwrap();
    let connectors = behind_webhook(&slack);
    let with = json!({"text": "hello"});
    assert_eq!(connectors.call(post(&with)).await.as_str(), "done");
    assert_eq!(slack.messages()[0].text, "hello");
    assert!(matches!(connectors.read_back(post(&with)).await, Readback::Unreadable(_)));
    slack.set_faults(FaultPlan::always(Fault::DropAfter)).unwrap();
    assert_eq!(brief(&connectors.call(post(&with)).await), "unsure retryable reset");
    assert_eq!(slack.truth().unseen, 1);
}

#[tokio::test]
async fn token_and_webhook_url_are_not_shown() {
    let slack = Slack::start(SlackSettings { webhook: "T9/B9/hunter2".into(), ..SlackSettings::default() }).unwrap();
    let with = json!({"channel": CHANNEL, "text": "hello"});
    let wrong = with_token(&slack, "xoxb-hunter2");
    let refused = wrong.call(post(&with)).await;
    assert_eq!(brief(&refused), "reject auth invalid_auth");
    let preview = wrong.preview(&post(&with)).unwrap();
    let hook = json!({"text": "hello"});
    let behind = behind_webhook(&slack);
    slack.refuse_connections().unwrap();
    let broken = behind.call(post(&hook)).await;
    let shown =
        format!("{wrong:?} {refused:?} {preview:?} {behind:?} {broken:?} {:?}", behind.preview(&post(&hook)).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(preview.url.ends_with("/api/chat.postMessage"), "{preview:?}");
}

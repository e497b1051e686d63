//! Click on a message button: the interaction request that Slack posts to the app, with Slack's signature.

use aws_lc_rs::hmac;
use serde_json::{Value, json};

use super::{Slack, SlackMessage};

/// Signed interaction request of a button click.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ButtonClick {
    pub headers: Vec<(String, String)>,
    /// Form with one field, `payload`.
    pub body: Vec<u8>,
}

impl Slack {
    /// Clicks the button with this `action_id`; `None` if the message has no such button.
    pub fn click_button(
        &self,
        message: &SlackMessage,
        button: &str,
        user: &str,
        signing_secret: &str,
    ) -> Option<ButtonClick> {
        let (block, element) = message.blocks.as_array()?.iter().find_map(|block| {
            let elements = block["elements"].as_array()?;
            Some((block, elements.iter().find(|element| element["action_id"] == button)?))
        })?;
        let payload = json!({
            "type": "block_actions",
            "user": { "id": "U0SIMULATOR", "username": user, "name": user },
            "channel": { "id": message.channel },
            "message": { "ts": message.ts, "text": message.text },
            "actions": [{
                "type": "button", "action_id": button, "block_id": block["block_id"], "value": element["value"],
                "action_ts": message.ts,
            }],
        });
        Some(sign(&payload, signing_secret, jiff::Timestamp::now().as_second()))
    }
}

fn sign(payload: &Value, secret: &str, at: i64) -> ButtonClick {
    let body = format!("payload={}", encoded(&payload.to_string())).into_bytes();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut signed = format!("v0:{at}:").into_bytes();
    signed.extend_from_slice(&body);
    let signature = data_encoding::HEXLOWER.encode(hmac::sign(&key, &signed).as_ref());
    let headers = [
        ("content-type", "application/x-www-form-urlencoded".to_owned()),
        ("x-slack-request-timestamp", at.to_string()),
        ("x-slack-signature", format!("v0={signature}")),
    ];
    ButtonClick { headers: headers.map(|(name, value)| (name.to_owned(), value)).to_vec(), body }
}

fn encoded(text: &str) -> String {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    text.bytes()
        .map(|byte| if unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

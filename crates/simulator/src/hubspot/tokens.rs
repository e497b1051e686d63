//! Token of a private app, and OAuth tokens that expire and rotate.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde_json::json;

use super::HubspotSettings;
use super::errors::CORRELATION_ID;
use crate::reply::FakeReply;
use crate::uri;

/// Maximum valid OAuth access tokens; the oldest is dropped.
const TOKENS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Tokens {
    private_app: String,
    client_id: String,
    client_secret: String,
    refresh_token: String,
    rotates: bool,
    lifetime: Duration,
    valid: VecDeque<(String, Instant)>,
    issued: u64,
}

impl Tokens {
    pub(crate) fn new(settings: &HubspotSettings) -> Tokens {
        Tokens {
            private_app: settings.token.clone(),
            client_id: settings.client_id.clone(),
            client_secret: settings.client_secret.clone(),
            refresh_token: settings.refresh_token.clone(),
            rotates: settings.rotates_refresh_token,
            lifetime: settings.access_token_lifetime,
            valid: VecDeque::new(),
            issued: 0,
        }
    }

    pub(crate) fn expire_all(&mut self) {
        self.valid.clear();
    }

    pub(crate) fn is_valid(&self, token: &str) -> bool {
        let known = self.valid.iter().rev().find(|(valid, _)| valid == token);
        token == self.private_app || known.is_some_and(|(_, issued)| issued.elapsed() < self.lifetime)
    }

    /// Responds to a token request; issues a token if its credentials are valid.
    pub(crate) fn issue_for(&mut self, form: &str) -> Result<FakeReply, TokenRefusal> {
        let value = |name| uri::form_value(form, name).unwrap_or_default();
        let refused = |status, message| Err(TokenRefusal { status, message });
        if value("grant_type") != "refresh_token" {
            return refused("BAD_GRANT_TYPE", "unsupported grant_type");
        }
        if value("client_id") != self.client_id || value("client_secret") != self.client_secret {
            return refused("BAD_CLIENT_SECRET", "missing or invalid client id or secret");
        }
        if value("refresh_token") != self.refresh_token {
            return refused("BAD_REFRESH_TOKEN", "missing or invalid refresh token");
        }
        self.issued += 1;
        if self.rotates {
            self.refresh_token = format!("sim-refresh-{}", self.issued);
        }
        let token = format!("CSim{:032x}", u128::from(self.issued) * 0x9E37_79B9_7F4A_7C15_F39C);
        if self.valid.len() == TOKENS_MAX {
            self.valid.pop_front();
        }
        self.valid.push_back((token.clone(), Instant::now()));
        let body = json!({
            "token_type": "bearer",
            "refresh_token": self.refresh_token,
            "access_token": token,
            "expires_in": self.lifetime.as_secs(),
        });
        Ok(FakeReply::json(StatusCode::OK, &body))
    }
}

/// Refused token request; always a 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenRefusal {
    status: &'static str,
    message: &'static str,
}

impl TokenRefusal {
    pub(crate) fn reply(self) -> FakeReply {
        let body = json!({"status": self.status, "message": self.message, "correlationId": CORRELATION_ID});
        FakeReply::json(StatusCode::BAD_REQUEST, &body)
    }
}

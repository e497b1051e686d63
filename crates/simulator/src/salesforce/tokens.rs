//! Access tokens: issued for client credentials and signed assertions, expired on request.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use hyper::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::JwtApplication;
use crate::reply::FakeReply;
use crate::uri;

/// Maximum valid tokens; the oldest is dropped.
const TOKENS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Tokens {
    client_id: String,
    client_secret: String,
    jwt_application: Option<JwtApplication>,
    lifetime: Option<Duration>,
    valid: VecDeque<(String, Instant)>,
    issued: u64,
}

impl Tokens {
    pub(crate) fn new(client_id: String, client_secret: String, lifetime: Option<Duration>) -> Tokens {
        let jwt_application = None;
        Tokens { client_id, client_secret, jwt_application, lifetime, valid: VecDeque::new(), issued: 0 }
    }

    /// Accepts assertions of this application too.
    pub(crate) fn accepting(self, jwt_application: Option<JwtApplication>) -> Tokens {
        Tokens { jwt_application, ..self }
    }

    pub(crate) fn issue(&mut self) -> String {
        self.issued += 1;
        let token = format!("00DSm0000000001!AQcAQ{:032x}", u128::from(self.issued) * 0x9E37_79B9_7F4A_7C15_F39C);
        if self.valid.len() == TOKENS_MAX {
            self.valid.pop_front();
        }
        self.valid.push_back((token.clone(), Instant::now()));
        token
    }

    pub(crate) fn expire_all(&mut self) {
        self.valid.clear();
    }

    pub(crate) fn is_valid(&self, token: &str) -> bool {
        let known = self.valid.iter().rev().find(|(valid, _)| valid == token);
        known.is_some_and(|(_, issued)| self.lifetime.is_none_or(|lifetime| issued.elapsed() < lifetime))
    }

    /// Responds to a token request; issues a token if its credentials are valid.
    pub(crate) fn issue_for(
        &mut self,
        form: &str,
        basic: Option<&str>,
        instance_url: &str,
    ) -> Result<FakeReply, TokenRefusal> {
        match uri::form_value(form, "grant_type").as_deref() {
            Some("client_credentials") => self.check_client(form, basic)?,
            Some("urn:ietf:params:oauth:grant-type:jwt-bearer") => self.check_assertion(form)?,
            Some(_) => return Err(refusal("unsupported_grant_type", "grant type not supported")),
            None => return Err(refusal("invalid_request", "must provide grant_type")),
        }
        let token = self.issue();
        // No `expires_in`: Salesforce does not report the session lifetime.
        let body = json!({
            "access_token": token,
            "signature": BASE64.encode(token.as_bytes()),
            "scope": "api",
            "instance_url": instance_url,
            "id": format!("{instance_url}/id/00DSm0000000001EAA/005Sm0000000001IAA"),
            "token_type": "Bearer",
            "issued_at": Timestamp::now().as_millisecond().to_string(),
        });
        Ok(FakeReply::json(StatusCode::OK, &body))
    }

    fn check_client(&self, form: &str, basic: Option<&str>) -> Result<(), TokenRefusal> {
        let in_form = || Some((uri::form_value(form, "client_id")?, uri::form_value(form, "client_secret")?));
        let Some((client_id, client_secret)) = basic.and_then(basic_pair).or_else(in_form) else {
            return Err(refusal("invalid_request", "must provide client_id and client_secret"));
        };
        if client_id != self.client_id {
            return Err(refusal("invalid_client_id", "client identifier invalid"));
        }
        if client_secret != self.client_secret {
            return Err(refusal("invalid_client", "invalid client credentials"));
        }
        Ok(())
    }

    /// Checks signature, issuer, user, audience and expiry of an assertion.
    fn check_assertion(&self, form: &str) -> Result<(), TokenRefusal> {
        let invalid = || refusal("invalid_grant", "invalid assertion");
        let application = self.jwt_application.as_ref().ok_or_else(invalid)?;
        let assertion = uri::form_value(form, "assertion").ok_or_else(invalid)?;
        let (signed, signature) = assertion.rsplit_once('.').ok_or_else(invalid)?;
        let decode = |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|_| invalid());
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &application.public_key);
        key.verify(signed.as_bytes(), &decode(signature)?).map_err(|_| invalid())?;
        let (_, claims) = signed.split_once('.').ok_or_else(invalid)?;
        let claims: Value = serde_json::from_slice(&decode(claims)?).map_err(|_| invalid())?;
        if claims["iss"] != self.client_id.as_str() {
            return Err(refusal("invalid_client_id", "client identifier invalid"));
        }
        if claims["sub"] != application.user.as_str() {
            return Err(refusal("invalid_grant", "user hasn't approved this consumer"));
        }
        if claims["aud"] != application.audience.as_str() {
            return Err(refusal("invalid_grant", "audience is invalid"));
        }
        let seconds_left = claims["exp"].as_i64().unwrap_or(0) - Timestamp::now().as_second();
        match (1..=300).contains(&seconds_left) {
            true => Ok(()),
            false => Err(refusal("invalid_grant", "expired authorization code")),
        }
    }
}

fn basic_pair(encoded: &str) -> Option<(String, String)> {
    let decoded = BASE64.decode(encoded.trim().as_bytes()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((id.to_owned(), secret.to_owned()))
}

/// Refused token request; always a 400 in OAuth's error format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenRefusal {
    error: &'static str,
    description: &'static str,
}

impl TokenRefusal {
    pub(crate) fn reply(&self) -> FakeReply {
        let body = json!({"error": self.error, "error_description": self.description});
        FakeReply::json(StatusCode::BAD_REQUEST, &body)
    }
}

fn refusal(error: &'static str, description: &'static str) -> TokenRefusal {
    TokenRefusal { error, description }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        Tokens::new("id".to_owned(), "se:cret".to_owned(), None)
    }

    fn error(form: &str, basic: Option<&str>) -> &'static str {
        tokens().issue_for(form, basic, "http://x").unwrap_err().error
    }

    #[test]
    fn credentials_are_read_from_the_form_or_basic_auth() {
        let form = "grant_type=client_credentials&client_id=id&client_secret=se%3Acret";
        assert!(tokens().issue_for(form, None, "http://x").is_ok());
        let basic = BASE64.encode(b"id:se:cret");
        assert!(tokens().issue_for("grant_type=client_credentials", Some(&basic), "http://x").is_ok());
    }

    #[test]
    fn each_refusal_has_its_error_code() {
        assert_eq!(error("grant_type=password", None), "unsupported_grant_type");
        assert_eq!(error("", None), "invalid_request");
        assert_eq!(error("grant_type=client_credentials&client_id=id", None), "invalid_request");
        assert_eq!(error("grant_type=client_credentials&client_id=x&client_secret=y", None), "invalid_client_id");
        assert_eq!(error("grant_type=client_credentials&client_id=id&client_secret=y", None), "invalid_client");
    }

    #[test]
    fn tokens_expire_on_request_and_by_age() {
        let mut tokens = tokens();
        let (first, second) = (tokens.issue(), tokens.issue());
        assert_ne!(first, second);
        assert!(tokens.is_valid(&first) && tokens.is_valid(&second));
        tokens.expire_all();
        assert!(!tokens.is_valid(&first) && !tokens.is_valid(&second));
        let third = tokens.issue();
        assert!(tokens.is_valid(&third));
        tokens.lifetime = Some(Duration::ZERO);
        assert!(!tokens.is_valid(&third));
    }
}

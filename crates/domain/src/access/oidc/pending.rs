//! A sign-in that was started in a browser.
//!
//! State, nonce and PKCE verifier are derived from a random id and a key of the process. The browser keeps the id in a cookie, so a
//! started sign-in takes no memory of the node, and an answer counts only in the browser that started it.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use aws_lc_rs::{digest, hmac};
use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};

use super::{OidcRefusal, SIGN_IN_LIFETIME};
use crate::access::own_path;
use crate::time::Time;
use crate::verify::SecretValue;

/// Longest path to return to, in bytes; a longer one becomes the overview.
const NEXT_MAX: usize = 1_024;
/// Finished sign-ins that are remembered, so that none counts twice.
const USED_MAX: usize = 4_096;
/// Longest text of a provider that is shown, in characters.
const PROVIDER_TEXT_MAX: usize = 200;

/// Key of one process. Sign-ins that were started before a restart are started again.
#[derive(Clone)]
pub struct SignInKey(hmac::Key);

impl SignInKey {
    /// From random text.
    pub fn new(random: &str) -> SignInKey {
        SignInKey(hmac::Key::new(hmac::HMAC_SHA256, random.as_bytes()))
    }

    fn derive(&self, label: &str, text: &str) -> String {
        let tag = hmac::sign(&self.0, format!("{label}:{text}").as_bytes());
        BASE64URL_NOPAD.encode(tag.as_ref())
    }
}

impl fmt::Debug for SignInKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignInKey(***)")
    }
}

/// A started sign-in, as its cookie says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingSignIn {
    /// Random.
    id: String,
    /// In milliseconds, of the steady clock.
    started_at: i64,
    issuer: String,
    /// Page to open afterwards.
    next: String,
}

/// What the provider sent the browser back with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callback {
    pub state: Option<String>,
    pub code: Option<String>,
    /// Issuer (RFC 9207).
    pub issuer: Option<String>,
    pub error: Option<String>,
    pub error_description: Option<String>,
}

impl PendingSignIn {
    /// `id` is random and used once.
    pub fn new(id: String, issuer: &str, next: &str, now: Time) -> PendingSignIn {
        let next = if next.len() > NEXT_MAX { "/" } else { own_path(next) };
        PendingSignIn { id, started_at: now.0, issuer: issuer.to_owned(), next: next.to_owned() }
    }

    pub fn next(&self) -> &str {
        &self.next
    }

    /// Value of the cookie: the sign-in, and a code that only this process can make.
    pub fn to_cookie(&self, key: &SignInKey) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        let text = BASE64URL_NOPAD.encode(&json);
        let tag = key.derive("cookie", &text);
        format!("{text}.{tag}")
    }

    /// Reads a cookie of this process.
    pub fn from_cookie(cookie: &str, key: &SignInKey) -> Option<PendingSignIn> {
        let (text, tag) = cookie.split_once('.')?;
        if !SecretValue::from(key.derive("cookie", text)).matches(tag) {
            return None;
        }
        serde_json::from_slice(&BASE64URL_NOPAD.decode(text.as_bytes()).ok()?).ok()
    }

    pub fn state(&self, key: &SignInKey) -> String {
        key.derive("state", &self.id)
    }

    pub fn nonce(&self, key: &SignInKey) -> String {
        key.derive("nonce", &self.id)
    }

    /// Secret that redeems the code (PKCE).
    pub fn verifier(&self, key: &SignInKey) -> String {
        key.derive("verifier", &self.id)
    }

    /// What the provider is told of the verifier, by S256.
    pub fn challenge(&self, key: &SignInKey) -> String {
        BASE64URL_NOPAD.encode(digest::digest(&digest::SHA256, self.verifier(key).as_bytes()).as_ref())
    }

    /// The code of an answer, if the answer belongs to this sign-in and comes in time from the issuer. `names_itself`: the provider
    /// always names itself in its answers.
    pub fn code(
        &self,
        callback: &Callback,
        key: &SignInKey,
        (issuer, names_itself): (&str, bool),
        now: Time,
    ) -> Result<String, OidcRefusal> {
        if now >= Time(self.started_at) + SIGN_IN_LIFETIME {
            return Err(OidcRefusal::NotStarted);
        }
        let state = SecretValue::from(self.state(key));
        if !callback.state.as_deref().is_some_and(|presented| state.matches(presented)) {
            return Err(OidcRefusal::WrongState);
        }
        let is_issuer = callback.issuer.as_deref().map_or(!names_itself, |named| named == issuer);
        if self.issuer != issuer || !is_issuer {
            return Err(OidcRefusal::WrongIssuer);
        }
        if let Some(error) = &callback.error {
            return Err(OidcRefusal::Provider(provider_text(error, callback.error_description.as_deref())));
        }
        callback.code.clone().filter(|code| !code.is_empty()).ok_or(OidcRefusal::NoCode)
    }
}

/// An error of a provider in one line. Templates escape it.
fn provider_text(code: &str, description: Option<&str>) -> String {
    let text = match description {
        Some(description) if !description.is_empty() => format!("{description} ({code})"),
        _ => code.to_owned(),
    };
    text.chars().filter(|c| !c.is_control()).take(PROVIDER_TEXT_MAX).collect()
}

/// Sign-ins that were finished, until they would have expired.
#[derive(Debug, Default)]
pub struct UsedSignIns {
    ids: HashSet<String>,
    order: VecDeque<(Time, String)>,
}

impl UsedSignIns {
    /// Takes a sign-in once. `false` if it was taken before.
    pub fn take(&mut self, pending: &PendingSignIn, now: Time) -> bool {
        while let Some((at, _)) = self.order.front()
            && (now >= *at + SIGN_IN_LIFETIME || self.order.len() >= USED_MAX)
        {
            if let Some((_, id)) = self.order.pop_front() {
                self.ids.remove(&id);
            }
        }
        let is_new = self.ids.insert(pending.id.clone());
        if is_new {
            self.order.push_back((now, pending.id.clone()));
        }
        is_new
    }
}

//! State shared by handle and server, and request handling.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use data_encoding::BASE64;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, LOCATION};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};

use super::codes::{Codes, Grant, Redeemed};
use super::signing::{SigningKey, random};
use super::tokens::{TokenSubject, access_token, challenge_of, id_token};
use super::{Mistake, OpenIdSettings, OpenIdTruth, OpenIdUser};
use crate::apply_fault::{FakeTarget, Refusal, ReplyTruth, apply_fault};
use crate::faults::{Call, CallKind, Injector};
use crate::inspect::{self, Inspect};
use crate::lock;
use crate::reply::{FakeReply, Hangup, Payload};
use crate::serve::{Handler, read_body};
use crate::uri::{self, form_value};

/// Larger requests are rejected with 413.
const BODY_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Shared {
    settings: OpenIdSettings,
    pub(super) injector: Injector,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    issuer: String,
    users: Vec<OpenIdUser>,
    key: Arc<SigningKey>,
    codes: Codes,
    /// Access tokens, with the user of each.
    tokens: HashMap<String, String>,
    mistake: Option<Mistake>,
    truth: OpenIdTruth,
}

impl Shared {
    pub(super) fn new(settings: OpenIdSettings, injector: Injector) -> io::Result<Shared> {
        let state = State {
            issuer: String::new(),
            users: settings.users.clone(),
            key: Arc::new(SigningKey::generate(settings.signatures)?),
            codes: Codes::default(),
            tokens: HashMap::new(),
            mistake: None,
            truth: OpenIdTruth::default(),
        };
        Ok(Shared { settings, injector, state: Mutex::new(state) })
    }

    pub(super) fn set_issuer(&self, issuer: String) {
        lock(&self.state).issuer = issuer;
    }

    pub(super) fn set_mistake(&self, mistake: Option<Mistake>) {
        lock(&self.state).mistake = mistake;
    }

    pub(super) fn put_user(&self, user: OpenIdUser) {
        let users = &mut lock(&self.state).users;
        users.retain(|known| known.login != user.login);
        users.push(user);
    }

    pub(super) fn rotate(&self) -> io::Result<()> {
        let key = Arc::new(SigningKey::generate(self.settings.signatures)?);
        lock(&self.state).key = key;
        Ok(())
    }

    pub(super) fn truth(&self) -> OpenIdTruth {
        lock(&self.state).truth.clone()
    }

    fn answer(&self, parts: &Parts, body: &str) -> FakeReply {
        let query = parts.uri.query().unwrap_or_default();
        match (parts.method.as_str(), parts.uri.path()) {
            ("GET", "/.well-known/openid-configuration") => self.description(),
            ("GET", "/jwks") => {
                let state = &mut lock(&self.state);
                state.truth.keys_read += 1;
                FakeReply::json(StatusCode::OK, &json!({ "keys": [state.key.public()] }))
            }
            ("GET", "/authorize") => match self.check_authorization(query) {
                Err(refused) => *refused,
                Ok(()) => match form_value(query, "login_hint").filter(|login| self.knows(login)) {
                    Some(login) => self.sign_in(query, &login),
                    None => self.page(query),
                },
            },
            ("POST", "/authorize") => match (self.check_authorization(query), form_value(body, "user")) {
                (Err(refused), _) => *refused,
                (Ok(()), Some(login)) if self.knows(&login) => self.sign_in(query, &login),
                (Ok(()), _) => {
                    self.redirect(query, &[("error", "access_denied"), ("error_description", "the user said no")])
                }
            },
            ("POST", "/token") => self.token(parts, body),
            ("GET", "/userinfo") => self.user_info(parts),
            _ => FakeReply::json(StatusCode::NOT_FOUND, &json!({ "error": "not_found" })),
        }
    }

    fn knows(&self, login: &str) -> bool {
        lock(&self.state).users.iter().any(|user| user.login == login)
    }

    fn description(&self) -> FakeReply {
        let state = &mut lock(&self.state);
        state.truth.descriptions_read += 1;
        let issuer = &state.issuer;
        let named = if state.mistake == Some(Mistake::OtherDescription) { "https://other.example" } else { issuer };
        let description = json!({
            "issuer": named,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "userinfo_endpoint": format!("{issuer}/userinfo"),
            "jwks_uri": format!("{issuer}/jwks"),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [self.settings.signatures.name()],
            "scopes_supported": ["openid", "profile", "email", "groups"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "claims_supported": ["sub", "iss", "aud", "exp", "iat", "nonce", "email", "email_verified", "preferred_username", "groups"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        });
        FakeReply::json(StatusCode::OK, &description)
    }

    /// Client and redirect URI are checked before anything is sent to the browser.
    fn check_authorization(&self, query: &str) -> Result<(), Box<FakeReply>> {
        let value = |name: &str| form_value(query, name).unwrap_or_default();
        let (client, redirect) = (value("client_id"), value("redirect_uri"));
        let known = &self.settings.redirect_uris;
        let is_known = known.is_empty() || known.contains(&redirect);
        let is_address = redirect.starts_with("http://") || redirect.starts_with("https://");
        if client != self.settings.client_id || !is_known || !is_address {
            let text = "invalid_request: unknown client or redirect URI";
            return Err(Box::new(FakeReply::of(StatusCode::BAD_REQUEST, "text/plain", text)));
        }
        let problem = match () {
            () if value("response_type") != "code" => Some("unsupported_response_type"),
            () if !value("scope").split(' ').any(|scope| scope == "openid") => Some("invalid_scope"),
            () if value("code_challenge_method") != "S256" || value("code_challenge").is_empty() => {
                Some("invalid_request")
            }
            () => None,
        };
        problem.map_or(Ok(()), |code| Err(Box::new(self.redirect(query, &[("error", code)]))))
    }

    /// The sign-in page: a button for each user.
    fn page(&self, query: &str) -> FakeReply {
        let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
        let users = lock(&self.state).users.clone();
        let buttons: String = users
            .iter()
            .map(|user| format!("<button name=\"user\" value=\"{0}\">{0}</button>\n", escaped(&user.login)))
            .collect();
        let page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Simulated provider</title></head>\n<body><h1>Simulated provider</h1>\n\
             <form method=\"post\" action=\"/authorize?{}\">\n{buttons}<button name=\"deny\" value=\"yes\">Deny</button>\n</form></body></html>\n",
            escaped(query)
        );
        FakeReply::of(StatusCode::OK, "text/html; charset=utf-8", page)
    }

    fn sign_in(&self, query: &str, login: &str) -> FakeReply {
        let Ok(code) = random() else { return FakeReply::empty(StatusCode::INTERNAL_SERVER_ERROR) };
        let grant = Grant {
            login: login.to_owned(),
            redirect_uri: form_value(query, "redirect_uri").unwrap_or_default(),
            challenge: form_value(query, "code_challenge").unwrap_or_default(),
            nonce: form_value(query, "nonce"),
        };
        {
            let state = &mut lock(&self.state);
            state.codes.issue(code.clone(), grant, Instant::now());
            state.truth.codes += 1;
            state.truth.signed_in.push(login.to_owned());
        }
        self.redirect(query, &[("code", &code)])
    }

    /// Sends the browser back, with its state and the name of the issuer.
    fn redirect(&self, query: &str, fields: &[(&str, &str)]) -> FakeReply {
        let (issuer, mistake) = {
            let state = lock(&self.state);
            (state.issuer.clone(), state.mistake)
        };
        let issuer = match mistake {
            Some(Mistake::OtherIssuerInAnswer) => Some("https://other.example".to_owned()),
            Some(Mistake::NoIssuerInAnswer) => None,
            _ => Some(issuer),
        };
        let mut fields: Vec<(&str, String)> = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        fields.extend(form_value(query, "state").map(|state| ("state", state)));
        fields.extend(issuer.map(|issuer| ("iss", issuer)));
        let mut address = form_value(query, "redirect_uri").unwrap_or_default();
        for (name, value) in fields {
            address.push(if address.contains('?') { '&' } else { '?' });
            address.push_str(&format!("{name}={}", uri::encode(&value)));
        }
        FakeReply::empty(StatusCode::SEE_OTHER).with(LOCATION, &address)
    }

    fn token(&self, parts: &Parts, body: &str) -> FakeReply {
        let refused = |status: StatusCode, code: &str| {
            FakeReply::json(status, &json!({ "error": code })).with(CACHE_CONTROL, "no-store")
        };
        if !self.is_client(parts, body) {
            return refused(StatusCode::UNAUTHORIZED, "invalid_client");
        }
        let value = |name: &str| form_value(body, name).unwrap_or_default();
        if value("grant_type") != "authorization_code" {
            return refused(StatusCode::BAD_REQUEST, "unsupported_grant_type");
        }
        let state = &mut lock(&self.state);
        let grant = match state.codes.redeem(&value("code"), Instant::now()) {
            Redeemed::Grant(grant) => grant,
            Redeemed::Again => {
                state.truth.codes_replayed += 1;
                return refused(StatusCode::BAD_REQUEST, "invalid_grant");
            }
            Redeemed::Unknown => return refused(StatusCode::BAD_REQUEST, "invalid_grant"),
        };
        let is_same =
            value("redirect_uri") == grant.redirect_uri && challenge_of(&value("code_verifier")) == grant.challenge;
        let user = state.users.iter().find(|user| user.login == grant.login).cloned();
        let (true, Some(user)) = (is_same, user) else { return refused(StatusCode::BAD_REQUEST, "invalid_grant") };
        let (issuer, client_id) = (state.issuer.as_str(), self.settings.client_id.as_str());
        let subject = TokenSubject { issuer, client_id, user: &user, nonce: grant.nonce.as_deref() };
        let made = id_token(&subject, &state.key, state.mistake).and_then(|token| Ok((token, access_token()?)));
        let Ok((id_token, access_token)) = made else {
            return refused(StatusCode::INTERNAL_SERVER_ERROR, "server_error");
        };
        state.truth.tokens += 1;
        state.tokens.insert(access_token.clone(), grant.login);
        let mut answer = json!({ "access_token": access_token, "token_type": "Bearer", "expires_in": 300 });
        if state.mistake != Some(Mistake::NoIdToken) {
            answer["id_token"] = id_token.into();
        }
        FakeReply::json(StatusCode::OK, &answer).with(CACHE_CONTROL, "no-store")
    }

    /// Whether the caller of the token endpoint is the client, by a header or by the form.
    fn is_client(&self, parts: &Parts, body: &str) -> bool {
        let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let basic = header.and_then(|value| value.strip_prefix("Basic ")).and_then(|encoded| {
            let decoded = String::from_utf8(BASE64.decode(encoded.as_bytes()).ok()?).ok()?;
            let (id, secret) = decoded.split_once(':')?;
            Some((uri::decode(&id.replace('+', " ")), uri::decode(&secret.replace('+', " "))))
        });
        let of_form = || Some((form_value(body, "client_id")?, form_value(body, "client_secret")?));
        let wanted = (self.settings.client_id.clone(), self.settings.client_secret.clone());
        basic.or_else(of_form).is_some_and(|presented| presented == wanted)
    }

    fn user_info(&self, parts: &Parts) -> FakeReply {
        let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let state = lock(&self.state);
        let user = state.tokens.get(token).and_then(|login| state.users.iter().find(|user| user.login == *login));
        match user {
            Some(user) => FakeReply::json(StatusCode::OK, &user.claims),
            None => FakeReply::json(StatusCode::UNAUTHORIZED, &json!({ "error": "invalid_token" })),
        }
    }

    /// `/sim/rotate` and `/sim/mistake`.
    fn control(&self, method: &str, path: &str, body: &[u8]) -> Option<FakeReply> {
        match (method, path) {
            ("POST", "/rotate") => Some(match self.rotate() {
                Ok(()) => FakeReply::empty(StatusCode::NO_CONTENT),
                Err(error) => {
                    FakeReply::json(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": error.to_string() }))
                }
            }),
            ("POST", "/mistake") => Some(match serde_json::from_slice(body) {
                Ok(mistake) => {
                    self.set_mistake(mistake);
                    FakeReply::empty(StatusCode::NO_CONTENT)
                }
                Err(error) => FakeReply::json(StatusCode::BAD_REQUEST, &json!({ "error": error.to_string() })),
            }),
            _ => None,
        }
    }
}

impl Inspect for Shared {
    fn name(&self) -> &'static str {
        "openid"
    }

    fn received(&self, limit: usize) -> Vec<Value> {
        inspect::last(lock(&self.state).truth.signed_in.iter().map(|login| json!({ "user": login })), limit)
    }

    fn truth(&self) -> Value {
        json!(Shared::truth(self))
    }

    fn injector(&self) -> &Injector {
        &self.injector
    }
}

impl Handler for Shared {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Payload>, Hangup> {
        let (parts, body) = request.into_parts();
        let Some(body) = read_body(body, BODY_BYTES_MAX).await? else {
            return Ok(FakeReply::empty(StatusCode::PAYLOAD_TOO_LARGE).complete());
        };
        let path = parts.uri.path().to_owned();
        if let Some(control_path) = path.strip_prefix("/sim") {
            let query = parts.uri.query().unwrap_or_default();
            let reply = self
                .control(parts.method.as_str(), control_path, &body)
                .or_else(|| inspect::respond(&*self, &parts.method, control_path, query, &body));
            let reply = reply.unwrap_or_else(|| {
                let mut known = inspect::ENDPOINTS.to_vec();
                known.extend(["POST /sim/rotate", "POST /sim/mistake"]);
                FakeReply::json(StatusCode::NOT_FOUND, &json!({ "error": "unknown endpoint", "known": known }))
            });
            return Ok(reply.complete());
        }
        let kind = if path == "/token" { CallKind::Token } else { CallKind::Read };
        let decision = self.injector.decide(&Call { kind, method: parts.method.as_str(), path: &path, keys: &[] });
        apply_fault(decision, FakeCall { shared: self, parts, body }).await
    }
}

/// One call in progress.
#[derive(Debug)]
struct FakeCall {
    shared: Arc<Shared>,
    parts: Parts,
    body: Bytes,
}

impl FakeTarget for FakeCall {
    fn apply(&mut self) -> FakeReply {
        self.shared.answer(&self.parts, std::str::from_utf8(&self.body).unwrap_or_default())
    }

    fn refuse(&mut self, refusal: Refusal) -> FakeReply {
        let (status, code) = match refusal {
            Refusal::TooManyRequests | Refusal::RequestLimitExceeded => (StatusCode::TOO_MANY_REQUESTS, "slow_down"),
            Refusal::ServerUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable"),
            Refusal::InvalidSession => (StatusCode::UNAUTHORIZED, "invalid_client"),
            Refusal::ServerError | Refusal::LockRow | Refusal::DuplicateValue => {
                (StatusCode::INTERNAL_SERVER_ERROR, "server_error")
            }
        };
        FakeReply::json(status, &json!({ "error": code }))
    }

    fn absent(&mut self) -> FakeReply {
        FakeReply::json(StatusCode::NOT_FOUND, &json!({ "error": "not_found" }))
    }

    fn address(&self) -> String {
        self.parts.uri.to_string()
    }

    fn settle(&mut self, _: ReplyTruth) {}
}

//! What a provider says about itself (OpenID Connect Discovery), and which addresses are accepted.

use serde_json::Value;

use super::keys::SigningAlgorithm;
use super::{CALLBACK_PATH, OidcSettings, PendingSignIn, SignInKey};
use crate::access::is_loopback_name;
use crate::template::url::{UNRESERVED, percent_encode};

/// How the node shows at the token endpoint who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuthentication {
    /// `client_secret_basic`.
    Basic,
    /// `client_secret_post`.
    Post,
    /// A public client has no secret.
    Public,
}

/// The parts of a provider's description that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub jwks_uri: String,
    /// Those that are accepted.
    pub algorithms: Vec<SigningAlgorithm>,
    authentication: ClientAuthentication,
    /// Answers of the provider name it (RFC 9207).
    pub names_itself: bool,
}

impl Discovery {
    /// Address of the description of an issuer.
    pub fn address(issuer: &str) -> String {
        format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
    }

    /// Reads the description. It must be that of the issuer, and none of its addresses may be less protected than the issuer's.
    pub fn read(document: &Value, issuer: &str) -> Result<Discovery, String> {
        let text = |name: &str| document.get(name).and_then(Value::as_str);
        match text("issuer") {
            Some(named) if named == issuer => {}
            Some(named) => {
                let named: String = named.chars().filter(|c| !c.is_control()).take(200).collect();
                return Err(format!("it describes the issuer `{named}` and not `{issuer}`"));
            }
            None => return Err("it names no issuer".to_owned()),
        }
        let address = |name: &str| {
            let address = text(name).ok_or_else(|| format!("it has no `{name}`"))?;
            let is_safe =
                address.starts_with("https://") || (issuer.starts_with("http://") && same_host(address, issuer));
            let is_plain = !address.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#');
            if is_safe && is_plain {
                Ok(address.to_owned())
            } else {
                Err(format!("its `{name}` is not an https address"))
            }
        };
        let list = |name: &str| {
            let items = document.get(name).and_then(Value::as_array);
            items.map(|items| items.iter().filter_map(Value::as_str).collect::<Vec<_>>())
        };
        let algorithms: Vec<SigningAlgorithm> = match list("id_token_signing_alg_values_supported") {
            Some(names) => names.into_iter().filter_map(SigningAlgorithm::parse).collect(),
            // The specification requires the list, and RS256 in it.
            None => vec![SigningAlgorithm::Rs256],
        };
        if algorithms.is_empty() {
            return Err("it signs ID tokens with no algorithm that is accepted".to_owned());
        }
        // Absent, it means client_secret_basic.
        let authentication = match list("token_endpoint_auth_methods_supported") {
            Some(methods) if !methods.contains(&"client_secret_basic") && methods.contains(&"client_secret_post") => {
                ClientAuthentication::Post
            }
            _ => ClientAuthentication::Basic,
        };
        Ok(Discovery {
            authorization_endpoint: address("authorization_endpoint")?,
            token_endpoint: address("token_endpoint")?,
            jwks_uri: address("jwks_uri")?,
            algorithms,
            authentication,
            names_itself: document.get("authorization_response_iss_parameter_supported") == Some(&Value::Bool(true)),
        })
    }

    pub fn authentication(&self, settings: &OidcSettings) -> ClientAuthentication {
        match settings.client_secret {
            Some(_) => self.authentication,
            None => ClientAuthentication::Public,
        }
    }

    /// Address at the provider that a sign-in begins at.
    pub fn authorization_address(&self, settings: &OidcSettings, pending: &PendingSignIn, key: &SignInKey) -> String {
        let fields = [
            ("response_type", "code".to_owned()),
            ("client_id", settings.client_id.clone()),
            ("redirect_uri", settings.redirect_uri()),
            ("scope", settings.scopes.join(" ")),
            ("state", pending.state(key)),
            ("nonce", pending.nonce(key)),
            ("code_challenge", pending.challenge(key)),
            ("code_challenge_method", "S256".to_owned()),
        ];
        let mut address = self.authorization_endpoint.clone();
        address.push(if address.contains('?') { '&' } else { '?' });
        for (place, (name, value)) in fields.iter().enumerate() {
            if place > 0 {
                address.push('&');
            }
            address.push_str(name);
            address.push('=');
            percent_encode(value, UNRESERVED, &mut address);
        }
        address
    }
}

impl OidcSettings {
    /// Address that the provider sends the browser back to.
    pub fn redirect_uri(&self) -> String {
        format!("{}{CALLBACK_PATH}", self.public_url)
    }

    /// Whether browsers reach the console over HTTPS.
    pub fn is_https(&self) -> bool {
        self.public_url.starts_with("https://")
    }
}

/// Host and port of a URL.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#', '\\']).next().unwrap_or_default()
}

fn same_host(a: &str, b: &str) -> bool {
    a.starts_with("http://") && authority(a).eq_ignore_ascii_case(authority(b))
}

/// Whether a URL is protected: HTTPS, or plain HTTP to this machine.
fn is_protected(url: &str) -> bool {
    let authority = authority(url);
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_valid = !host.is_empty() && !authority.contains('@');
    is_valid && (url.starts_with("https://") || (url.starts_with("http://") && is_loopback_name(host)))
}

/// What is wrong with the address of an issuer.
pub fn issuer_problem(issuer: &str) -> Option<&'static str> {
    if !is_protected(issuer) {
        return Some("an issuer is an https URL; http is accepted on this machine only");
    }
    issuer.contains(['?', '#']).then_some("an issuer has no query and no fragment; leave out what is behind the path")
}

/// What is wrong with the address at which browsers reach the console.
pub fn public_url_problem(url: &str) -> Option<&'static str> {
    if !is_protected(url) {
        return Some("providers send codes to https URLs only; http is accepted on this machine only");
    }
    let path = url.split_once("://").and_then(|(_, rest)| rest.find(['/', '?', '#', '\\']));
    path.is_some().then_some("the console is served at the root of its host; leave out the path")
}

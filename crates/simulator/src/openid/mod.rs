//! OpenID provider: description, sign-in page, token endpoint, keys that rotate, and mistakes on order.
//!
//! It behaves as a careful provider does: redirect URIs are compared exactly, PKCE with S256 is required, and a code counts once, for its
//! client, for a minute. A [`Mistake`] makes it issue tokens that a careful client must refuse. `/sim/…` is an API to inspect and
//! control it.

mod codes;
mod shared;
mod signing;
mod tokens;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::faults::{FaultPlan, Injector, PlanError};
use crate::inspect::Inspected;
use crate::serve::{ANY_PORT, Server};
use shared::Shared;
pub use signing::SignatureKind;

/// What is wrong with the answers of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mistake {
    /// The ID token has another nonce.
    WrongNonce,
    /// It has no nonce.
    NoNonce,
    /// It is for another client.
    WrongAudience,
    /// It is for this client and another one, and names no authorized party.
    SeveralAudiences,
    /// It is for this client, but another one is the authorized party.
    WrongParty,
    WrongIssuer,
    /// It expired two hours ago.
    Expired,
    /// It was issued in an hour.
    Future,
    /// It is signed with another key, under the id of the published one.
    OtherKey,
    /// It names a key that was never published.
    UnknownKey,
    /// Its algorithm is `none`.
    NoSignature,
    /// It is signed with HS256 and the public key as the secret.
    HmacWithPublicKey,
    /// It is signed with another key, which is in its header.
    EmbeddedKey,
    /// Its header demands an extension.
    CriticalHeader,
    /// There is no ID token.
    NoIdToken,
    /// The answer to the browser names another issuer.
    OtherIssuerInAnswer,
    /// The answer to the browser names no issuer, although the description says that it does.
    NoIssuerInAnswer,
    /// The description is that of another issuer.
    OtherDescription,
}

/// A user of the provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenIdUser {
    /// On the sign-in page.
    pub login: String,
    /// Of the ID token, beside those of the protocol. `sub` is among them.
    pub claims: Value,
}

impl OpenIdUser {
    /// With a verified address at example.com.
    pub fn new(login: &str, groups: &[&str]) -> OpenIdUser {
        let claims = json!({
            "sub": format!("sub-{login}"),
            "email": format!("{login}@example.com"),
            "email_verified": true,
            "preferred_username": login,
            "groups": groups,
        });
        OpenIdUser { login: login.to_owned(), claims }
    }
}

#[derive(Debug, Clone)]
pub struct OpenIdSettings {
    /// Port 0: chosen by the system.
    pub listen: SocketAddr,
    pub client_id: String,
    pub client_secret: String,
    /// Compared exactly; empty accepts any.
    pub redirect_uris: Vec<String>,
    pub users: Vec<OpenIdUser>,
    pub signatures: SignatureKind,
    pub faults: FaultPlan,
}

impl Default for OpenIdSettings {
    fn default() -> OpenIdSettings {
        OpenIdSettings {
            listen: ANY_PORT,
            client_id: "sluice".to_owned(),
            client_secret: "sim-openid-secret".to_owned(),
            redirect_uris: vec![],
            users: vec![
                OpenIdUser::new("ann", &["sluice-admins"]),
                OpenIdUser::new("bob", &["sluice-operators"]),
                OpenIdUser::new("vic", &["everyone"]),
            ],
            signatures: SignatureKind::Rs256,
            faults: FaultPlan::none(),
        }
    }
}

/// What the provider has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OpenIdTruth {
    /// Users who signed in, oldest first.
    pub signed_in: Vec<String>,
    pub codes: u64,
    /// ID tokens that were issued.
    pub tokens: u64,
    /// Codes that were sent a second time.
    pub codes_replayed: u64,
    pub descriptions_read: u64,
    pub keys_read: u64,
}

/// Running provider. Stops when dropped.
#[derive(Debug)]
pub struct OpenId {
    server: Server,
    shared: Arc<Shared>,
}

impl OpenId {
    /// Starts the server on its own thread. An invalid fault plan is an `InvalidInput` error.
    pub fn start(settings: OpenIdSettings) -> io::Result<OpenId> {
        let injector = Injector::new(settings.faults.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listen = settings.listen;
        let shared = Arc::new(Shared::new(settings, injector)?);
        let server = Server::start("sim-openid", listen, Arc::clone(&shared))?;
        shared.set_issuer(format!("http://{}", server.address()));
        Ok(OpenId { server, shared })
    }

    /// `http://127.0.0.1:port`, without a trailing slash.
    pub fn issuer(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// For [`SalesforceSettings::beside`](crate::SalesforceSettings::beside).
    pub fn inspected(&self) -> Inspected {
        Inspected(self.shared.clone())
    }

    pub fn truth(&self) -> OpenIdTruth {
        self.shared.truth()
    }

    /// Replaces the fault plan; its time and call numbers start again.
    pub fn set_faults(&self, plan: FaultPlan) -> Result<(), PlanError> {
        self.shared.injector.replace(plan)
    }

    /// From now on; `None` makes no mistake.
    pub fn set_mistake(&self, mistake: Option<Mistake>) {
        self.shared.set_mistake(mistake);
    }

    /// Adds a user, or changes one.
    pub fn put_user(&self, user: OpenIdUser) {
        self.shared.put_user(user);
    }

    /// Signs with a new key from now on. The old one is no longer published.
    pub fn rotate_keys(&self) -> io::Result<()> {
        self.shared.rotate()
    }

    /// Refuses connections until it is opened again.
    pub fn close(&self) -> io::Result<()> {
        self.server.close()
    }

    pub fn open(&self) -> io::Result<()> {
        self.server.open()
    }
}

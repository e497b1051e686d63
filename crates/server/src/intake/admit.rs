//! Who may connect and send: limits of addresses, of strangers and of sources.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::{Request, StatusCode};
use sluice_domain::flow::Flow;
use tokio::net::TcpStream;

use super::answer::HttpProblem;
use super::peer::{Peer, PeerConnection};
use super::problems::{address_limited, rate_limited, too_large, unavailable};
use super::proxy::came_through_a_proxy;
use super::receive::Receiver;
use super::server::Shared;

const TOO_MANY_UNVERIFIED: &str = "too many requests of this address failed verification; nothing was stored";

/// Sent before any request is read.
const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The caller of one request.
pub(super) struct Caller {
    pub(super) address: IpAddr,
    pub(super) peer: Arc<Peer>,
    /// The address is the one that a trusted proxy reports.
    behind_trusted_proxy: bool,
    /// Set once the request is verified.
    verified: AtomicBool,
}

/// Where a connection comes from.
pub(super) struct Origin {
    pub(super) address: IpAddr,
    pub(super) peer: Arc<Peer>,
    /// `None` for a trusted proxy.
    pub(super) connection: Option<PeerConnection>,
}

impl Shared {
    /// Counts a connection. One too many of its address is answered without reading from it.
    pub(super) fn connect(&self, stream: &TcpStream, peer: SocketAddr) -> Option<Origin> {
        let address = peer.ip();
        let peer = self.peers.of(address, self.context.clock.now());
        if self.settings.trusted_proxies.contains(address) {
            return Some(Origin { address, peer, connection: None });
        }
        if let Some(connection) = peer.connect(self.settings.connections_per_address_max) {
            return Some(Origin { address, peer, connection: Some(connection) });
        }
        if peer.warn_once() {
            let max = self.settings.connections_per_address_max;
            tracing::warn!(%address, max, "too many connections of one address; if it is a reverse proxy, name it in --trusted-proxies");
        }
        self.context.metrics.refused("", "address-limited", Duration::ZERO);
        let _ = stream.try_write(TOO_MANY_CONNECTIONS);
        None
    }

    /// The caller of a request: the peer of the connection, or the address that a trusted proxy reports.
    pub(super) fn caller(&self, address: IpAddr, peer: &Arc<Peer>, request: &Request<Incoming>) -> Caller {
        let proxies = &self.settings.trusted_proxies;
        let behind_trusted_proxy = proxies.contains(address);
        let forwarded = proxies.behind(address, request.headers());
        let peer = match forwarded == address {
            true => peer.clone(),
            false => self.peers.of(forwarded, self.context.clock.now()),
        };
        Caller { address: forwarded, peer, behind_trusted_proxy, verified: AtomicBool::new(false) }
    }

    pub(super) fn receiver<'a>(&'a self, caller: &'a Caller) -> Receiver<'a> {
        Receiver { memory: &self.body_memory, limits: &self.body_limits, peer: &caller.peer }
    }

    /// Checks before the body is read.
    pub(super) fn admit(&self, flow: &Flow, caller: &Caller, request: &Request<Incoming>) -> Result<(), HttpProblem> {
        if flow.verify.is_none() && !Shared::is_local(caller, request) {
            return Err(HttpProblem::new(
                StatusCode::FORBIDDEN,
                "unverified-source",
                "this flow has no verification, so it accepts only callers on loopback; add a verify: section",
            ));
        }
        if self.context.paused.load().contains(&flow.source) {
            return Err(unavailable("source-paused", "this source is paused; send the event again later", 60));
        }
        if flow.verify.is_some() {
            self.admit_unverified(caller)?;
        }
        if self.context.ledger.is_overloaded() || self.body_memory.is_full(&self.body_limits) {
            return Err(unavailable(
                "overloaded",
                "more is arriving than can be written down; try again in a moment",
                2,
            ));
        }
        let length = request.body().size_hint().lower();
        if length > flow.body_bytes_max {
            return Err(too_large(flow.body_bytes_max).closing());
        }
        Ok(())
    }

    /// True for a caller on this machine; false if a proxy on this machine hides where the caller is.
    fn is_local(caller: &Caller, request: &Request<Incoming>) -> bool {
        let hidden = !caller.behind_trusted_proxy && came_through_a_proxy(request.headers());
        caller.address.to_canonical().is_loopback() && !hidden
    }

    /// Refuses strangers whose requests failed verification too often.
    pub(super) fn admit_unverified(&self, caller: &Caller) -> Result<(), HttpProblem> {
        match self.peers.wait(&caller.peer, self.settings.unverified, self.context.clock.now()) {
            Some(wait) => Err(address_limited(TOO_MANY_UNVERIFIED, wait)),
            None => Ok(()),
        }
    }

    /// Counts a verified request against the limits of its source and of its secret.
    pub(super) fn admit_verified(
        &self,
        flow: &Flow,
        caller: &Caller,
        verified_by: Option<&str>,
    ) -> Result<(), HttpProblem> {
        caller.verified.store(true, Ordering::Relaxed);
        // Without a secret nothing is proven, and the address stays unknown.
        if verified_by.is_some() {
            self.note_verified(caller);
        }
        let take = |name: &str, limit| self.context.limits.take(name, limit, self.context.clock.now());
        if let Some(limit) = flow.rate_limit
            && let Err(wait) = take(&flow.source, limit)
        {
            return Err(rate_limited("this source", limit, wait));
        }
        if let Some((name, limit)) = verified_by.and_then(|name| Some((name, *flow.secret_limits.get(name)?)))
            && let Err(wait) = take(&format!("{}#{name}", flow.source), limit)
        {
            return Err(rate_limited(&format!("the secret `{name}`"), limit, wait));
        }
        Ok(())
    }

    pub(super) fn note_verified(&self, caller: &Caller) {
        caller.verified.store(true, Ordering::Relaxed);
        caller.peer.note_verified(self.context.clock.now());
    }

    /// Counts a request that proves nothing against the limits of strangers.
    pub(super) fn count_unverified(&self, caller: &Caller) -> Result<(), HttpProblem> {
        let now = self.context.clock.now();
        let noted = self.peers.note_unverified(&caller.peer, self.settings.unverified, now);
        noted.map_err(|wait| address_limited(TOO_MANY_UNVERIFIED, wait))
    }

    /// Counts a refused request that was not verified against the limits of strangers. Above them it is answered with 429,
    /// and not audited.
    pub(super) fn charge(&self, caller: &Caller, problem: HttpProblem) -> HttpProblem {
        let own_fault = problem.status.is_client_error() && problem.status != StatusCode::TOO_MANY_REQUESTS;
        if caller.verified.load(Ordering::Relaxed) || !own_fault {
            return problem;
        }
        self.count_unverified(caller).err().unwrap_or(problem)
    }
}

//! Opens connections: DNS, TCP, TLS; directly or through a proxy.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service;

use super::address::{AddressRefused, AddressScope, Resolver, Unresolved};
use super::connection::Connection;
use super::counting_stream::Stream;
use super::pool::Origin;
use super::proxy::{Proxy, tunnel};
use super::root_cause;
use crate::tls::Tls;

/// The connection could not be opened; nothing was sent.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The address scope of the request excludes every resolved address.
    Refused(AddressRefused),
    /// The name cannot be resolved.
    Unknown(String),
    Slow,
    /// TCP connect failed.
    Network(String),
    /// The proxy cannot be reached, or opened no tunnel.
    Proxy(String),
    /// The certificate is not trusted, or the TLS handshake failed.
    Tls(String),
}

/// Opens connections. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    public: HttpConnector<Resolver>,
    anywhere: HttpConnector<Resolver>,
    tls: Tls,
    proxy: Option<Arc<Proxy>>,
    timeout: Duration,
    headers_max: usize,
}

impl Dialer {
    /// `timeout` covers DNS, TCP and TLS together.
    pub(super) fn new(tls: Tls, proxy: Option<Arc<Proxy>>, timeout: Duration, headers_max: usize) -> Dialer {
        let connector = |scope| {
            let mut connector = HttpConnector::new_with_resolver(Resolver(scope));
            connector.enforce_http(false);
            connector.set_nodelay(true);
            connector.set_connect_timeout(Some(timeout));
            connector
        };
        let (public, anywhere) = (connector(AddressScope::Public), connector(AddressScope::Anywhere));
        Dialer { public, anywhere, tls, proxy, timeout, headers_max }
    }

    /// Connects to `origin`; `authority` is its URL up to the port.
    pub(super) async fn open(&self, origin: &Origin, authority: &str) -> Result<Connection, ConnectError> {
        let opening = tokio::time::timeout(self.timeout, self.stream(origin, authority));
        let stream = opening.await.map_err(|_| ConnectError::Slow)??;
        Connection::over(stream, self.headers_max).await.map_err(|error| ConnectError::Network(root_cause(&error)))
    }

    /// The stream of a connection, after TLS.
    pub(super) async fn stream(&self, origin: &Origin, authority: &str) -> Result<Stream, ConnectError> {
        let address = self.proxy.as_ref().map_or(authority, |proxy| proxy.authority.as_str());
        let uri = Uri::try_from(address).map_err(|error| ConnectError::Unknown(error.to_string()))?;
        let mut connector = match (origin.scope, &self.proxy) {
            (AddressScope::Public, None) => self.public.clone(),
            _ => self.anywhere.clone(),
        };
        let connected = connector.call(uri).await.map_err(|error| classify(&error));
        let mut stream = match (connected, &self.proxy) {
            (Ok(stream), _) => stream.into_inner(),
            (Err(error), Some(proxy)) => return Err(ConnectError::Proxy(proxy.unreachable(&error))),
            (Err(error), None) => return Err(error),
        };
        if !origin.https {
            return Ok(Stream::Plain(stream));
        }
        if let Some(proxy) = &self.proxy {
            tunnel(&mut stream, proxy, origin).await.map_err(ConnectError::Proxy)?;
        }
        match self.tls.connect(&origin.host, stream).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
            Err(error) if is_network(error.kind()) => Err(ConnectError::Network(root_cause(&error))),
            Err(error) => Err(ConnectError::Tls(root_cause(&error))),
        }
    }
}

fn classify(error: &(dyn Error + 'static)) -> ConnectError {
    let mut chain = std::iter::successors(Some(error), |error| (*error).source());
    let found = chain.find_map(|error| match (error.downcast_ref(), error.downcast_ref::<io::Error>()) {
        (Some(Unresolved::Refused(AddressRefused(address))), _) => {
            Some(ConnectError::Refused(AddressRefused(*address)))
        }
        (Some(Unresolved::Unknown(error)), _) => Some(ConnectError::Unknown(root_cause(error))),
        (None, Some(error)) if error.kind() == io::ErrorKind::TimedOut => Some(ConnectError::Slow),
        _ => None,
    });
    found.unwrap_or_else(|| ConnectError::Network(root_cause(error)))
}

/// True if the error comes from the network and not from TLS.
fn is_network(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut,
    };
    matches!(kind, AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut)
}

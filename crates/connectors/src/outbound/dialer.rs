//! How a connection comes to stand: the name, the address, TLS.

use std::error::Error;
use std::io;
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service;

use super::address::{AddressRefused, AddressScope, Resolver, Unresolved};
use super::connection::Connection;
use super::counting_stream::Stream;
use super::innermost;
use super::pool::Origin;
use crate::tls::Tls;

/// Why no connection stands. Nothing was sent.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The name leads to where the request may not go.
    Refused(AddressRefused),
    /// The name leads nowhere.
    Unknown(String),
    /// It took too long.
    Slow,
    /// Nobody is there, or nobody can be reached.
    Network(String),
    /// Somebody is there whom we do not trust, or who does not speak TLS.
    Tls(String),
}

/// Opens connections. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    public: HttpConnector<Resolver>,
    anywhere: HttpConnector<Resolver>,
    tls: Tls,
    timeout: Duration,
    headers_max: usize,
}

impl Dialer {
    /// No connection may take longer than this to stand, TLS included.
    pub fn new(tls: Tls, timeout: Duration, headers_max: usize) -> Dialer {
        let connector = |reach| {
            let mut connector = HttpConnector::new_with_resolver(Resolver(reach));
            connector.enforce_http(false);
            connector.set_nodelay(true);
            connector.set_connect_timeout(Some(timeout));
            connector
        };
        let (public, anywhere) = (connector(AddressScope::Public), connector(AddressScope::Anywhere));
        Dialer { public, anywhere, tls, timeout, headers_max }
    }

    /// A connection to an origin, whose scheme, host and port are these.
    pub async fn open(&self, origin: &Origin, authority: &str) -> Result<Connection, ConnectError> {
        let opening = tokio::time::timeout(self.timeout, self.stream(origin, authority));
        let stream = opening.await.map_err(|_| ConnectError::Slow)??;
        Connection::over(stream, self.headers_max).await.map_err(|error| ConnectError::Network(innermost(&error)))
    }

    async fn stream(&self, origin: &Origin, authority: &str) -> Result<Stream, ConnectError> {
        let uri = Uri::try_from(authority).map_err(|error| ConnectError::Unknown(error.to_string()))?;
        let mut connector = match origin.reach {
            AddressScope::Public => self.public.clone(),
            AddressScope::Anywhere => self.anywhere.clone(),
        };
        let stream = connector.call(uri).await.map_err(|error| not_connected(&error))?.into_inner();
        if !origin.https {
            return Ok(Stream::Plain(stream));
        }
        match self.tls.connect(&origin.host, stream).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
            Err(error) if is_network(error.kind()) => Err(ConnectError::Network(innermost(&error))),
            Err(error) => Err(ConnectError::Tls(innermost(&error))),
        }
    }
}

fn not_connected(error: &(dyn Error + 'static)) -> ConnectError {
    let mut chain = std::iter::successors(Some(error), |error| (*error).source());
    let found = chain.find_map(|error| match (error.downcast_ref(), error.downcast_ref::<io::Error>()) {
        (Some(Unresolved::Refused(AddressRefused(address))), _) => {
            Some(ConnectError::Refused(AddressRefused(*address)))
        }
        (Some(Unresolved::Unknown(error)), _) => Some(ConnectError::Unknown(innermost(error))),
        (None, Some(error)) if error.kind() == io::ErrorKind::TimedOut => Some(ConnectError::Slow),
        _ => None,
    });
    found.unwrap_or_else(|| ConnectError::Network(innermost(error)))
}

/// Whether the network said this, rather than TLS on top of it.
fn is_network(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut,
    };
    matches!(kind, AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkDown | NetworkUnreachable | TimedOut)
}

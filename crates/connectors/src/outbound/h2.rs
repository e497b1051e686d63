//! Connections for HTTP/2 clients, which multiplex and reconnect by themselves. Not for effects: such a client does not tell how
//! far a request got.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use tower_service::Service;

use super::OutboundSettings;
use super::address::AddressScope;
use super::counting_stream::CountingStream;
use super::dialer::{ConnectError, Dialer};
use super::pool::Origin;
use crate::tls::Tls;

/// Opens connections to a host that the operator configured.
#[derive(Clone, Debug)]
pub(crate) struct H2Connector(Dialer);

impl H2Connector {
    /// Fails if TLS cannot be configured on this machine.
    pub(crate) fn new(timeout: Duration) -> Result<H2Connector, String> {
        let tls = Tls::new(None)?.with_alpn(b"h2");
        Ok(H2Connector(Dialer::new(tls, None, timeout, OutboundSettings::default().response_headers_max)))
    }
}

impl Service<Uri> for H2Connector {
    type Response = TokioIo<CountingStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<CountingStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialer = self.0.clone();
        Box::pin(async move {
            let https = uri.scheme_str() == Some("https");
            let host = uri.host().unwrap_or_default();
            let origin = Origin {
                https,
                host: Box::from(host.trim_start_matches('[').trim_end_matches(']')),
                port: uri.port_u16().unwrap_or(if https { 443 } else { 80 }),
                scope: AddressScope::Anywhere,
            };
            let stream = dialer.stream(&origin, &uri.to_string()).await.map_err(described)?;
            Ok(TokioIo::new(CountingStream::new(stream).0))
        })
    }
}

fn described(error: ConnectError) -> io::Error {
    io::Error::other(match error {
        ConnectError::Refused(refused) => refused.to_string(),
        ConnectError::Unknown(text) => format!("unknown host: {text}"),
        ConnectError::Slow => "the connection takes too long".to_owned(),
        ConnectError::Network(text) => text,
        ConnectError::Proxy(text) => text,
        ConnectError::Tls(text) => format!("TLS: {text}"),
    })
}

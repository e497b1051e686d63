//! Admin listener: connections with time limits.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sluice_domain::verify::SecretValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

use super::operator::Operator;
use super::routes;
use crate::access::Access;
use crate::admin_token::AdminToken;
use crate::intake::TrustedProxies;

/// Request heads beyond this are rejected.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Time for open requests at shutdown.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Settings of the admin listener.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// Configured by the operator; one in the data directory otherwise.
    pub token: Option<SecretValue>,
    /// Host names, besides those of loopback, that callers may use.
    pub allowed_hosts: Vec<String>,
    /// Applies to the request head and to idle connections.
    pub head_timeout: Duration,
    pub body_timeout: Duration,
    pub connections_max: usize,
}

impl Default for AdminSettings {
    fn default() -> AdminSettings {
        AdminSettings {
            token: None,
            allowed_hosts: vec![],
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(15),
            connections_max: 512,
        }
    }
}

/// Pages that another component serves beside the API.
pub(crate) type Pages = fn(Operator, Access) -> Router;

/// Becomes true when the node stops, as a request extension: responses without an end must end then.
#[derive(Clone, Debug)]
pub(crate) struct Stopping(pub watch::Receiver<bool>);

/// Address of the caller, as a request extension: the peer of the connection, or what a trusted proxy reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub IpAddr);

#[derive(Debug)]
pub(crate) struct AdminServer {
    listener: TcpListener,
    operator: Operator,
    token: AdminToken,
    settings: AdminSettings,
    pages: Option<Pages>,
}

impl AdminServer {
    pub(crate) async fn bind(
        address: SocketAddr,
        operator: Operator,
        token: AdminToken,
        settings: AdminSettings,
    ) -> std::io::Result<AdminServer> {
        Ok(AdminServer { listener: TcpListener::bind(address).await?, operator, token, settings, pages: None })
    }

    pub(crate) fn with_pages(self, pages: Pages) -> AdminServer {
        AdminServer { pages: Some(pages), ..self }
    }

    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let AdminServer { listener, operator, token, settings, pages } = self;
        let mut hosts = settings.allowed_hosts.clone();
        // The operator chose this address for callers. The unspecified one names no host.
        hosts.extend(
            listener.local_addr().ok().map(|at| at.ip()).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string()),
        );
        let proxies = operator.settings.intake_settings.trusted_proxies.clone();
        let (clock, ledger) = (operator.clock.clone(), operator.ledger.clone());
        let access = Access::new(token, hosts, clock, ledger, operator.revisions.clone());
        let mut router = routes::router(operator.clone(), access.clone(), settings.body_timeout);
        if let Some(pages) = pages {
            router = router.merge(pages(operator, access));
        }
        let router = router.fallback(|| async { routes::not_found() }).layer(axum::Extension(Stopping(stop.clone())));
        let permits = Arc::new(Semaphore::new(settings.connections_max));
        let serving = Arc::new(Serving { router, proxies, head_timeout: settings.head_timeout });
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else { break };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let serving = serve(stream, peer.ip(), serving.clone(), stop.clone());
                    tokio::spawn(async move {
                        serving.await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "admin connection not accepted");
                    // Usually out of file descriptors; they become free when connections end.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        let permits_total = u32::try_from(settings.connections_max).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(DRAIN_MAX, permits.acquire_many(permits_total)).await;
    }
}

/// What every connection needs.
struct Serving {
    router: Router,
    proxies: TrustedProxies,
    head_timeout: Duration,
}

async fn serve(stream: TcpStream, peer: IpAddr, serving: Arc<Serving>, mut stop: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let head_timeout = serving.head_timeout;
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        let caller = serving.proxies.behind(peer, request.headers());
        request.extensions_mut().insert(Peer(caller));
        serving.router.clone().call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let stopped = async {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stopped => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

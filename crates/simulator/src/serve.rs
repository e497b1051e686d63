//! One listener on its own thread, with a door that can be closed and opened; for HTTP/1.1 and for anything else.
//!
//! Each server has a thread and a runtime of its own, so that it keeps answering whatever the code under test does to
//! its own runtime (blocks it, pauses its clock, shuts it down), and so that it can be started from plain threads too.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc as blocking};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::locked;
use crate::reply::{Hangup, Payload};

/// More connections than this wait in the listen queue.
const CONNECTIONS_MAX: usize = 10_000;

/// `127.0.0.1` with a port that the system chooses.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(crate) trait Handler: Send + Sync + 'static {
    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Payload>, Hangup>> + Send;
}

/// Whoever speaks on the connections of a listener.
pub(crate) trait Connections: Send + Sync + 'static {
    fn converse(self: Arc<Self>, stream: TcpStream) -> impl Future<Output = ()> + Send;
}

/// HTTP/1.1 on every connection.
struct Http<H>(Arc<H>);

impl<H: Handler> Connections for Http<H> {
    async fn converse(self: Arc<Self>, stream: TcpStream) {
        serve(stream, Arc::clone(&self.0)).await;
    }
}

#[derive(Debug)]
enum ListenerState {
    Close,
    Open,
    Stop,
}

#[derive(Debug)]
struct Order {
    door: ListenerState,
    done: blocking::Sender<io::Result<()>>,
}

#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    orders: mpsc::UnboundedSender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    pub(crate) fn start<H: Handler>(name: &str, listen: SocketAddr, handler: Arc<H>) -> io::Result<Server> {
        Server::start_raw(name, listen, Arc::new(Http(handler)))
    }

    pub(crate) fn start_raw<C: Connections>(name: &str, listen: SocketAddr, handler: Arc<C>) -> io::Result<Server> {
        let listener = std::net::TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (orders, inbox) = mpsc::unbounded_channel();
        let (started, starting) = blocking::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener);
                let told = started.send(listener.as_ref().map(drop).map_err(|error| io::Error::from(error.kind())));
                if let (Ok(listener), Ok(())) = (listener, told) {
                    run(listener, address, handler, inbox).await;
                }
            });
            // Held answers and late writes end with the server.
            runtime.shutdown_timeout(Duration::ZERO);
        })?;
        starting.recv().map_err(|_| io::Error::other("the thread of the simulated server ended at once"))??;
        Ok(Server { address, orders, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn close(&self) -> io::Result<()> {
        self.order(ListenerState::Close)
    }

    pub(crate) fn open(&self) -> io::Result<()> {
        self.order(ListenerState::Open)
    }

    pub(crate) fn stop(&self) {
        // A server that has already stopped cannot take the order, which is what was wanted.
        let _ = self.order(ListenerState::Stop);
        if let Some(thread) = locked(&self.thread).take() {
            let _ = thread.join();
        }
    }

    fn order(&self, door: ListenerState) -> io::Result<()> {
        let stopped = || io::Error::new(io::ErrorKind::NotConnected, "the simulated server has been stopped");
        let (done, answer) = blocking::channel();
        self.orders.send(Order { door, done }).map_err(|_| stopped())?;
        answer.recv().map_err(|_| stopped())?
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn run<C: Connections>(
    listener: TcpListener,
    address: SocketAddr,
    handler: Arc<C>,
    mut inbox: mpsc::UnboundedReceiver<Order>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let accepting = listener.as_ref().filter(|_| connections.len() < CONNECTIONS_MAX);
        tokio::select! {
            order = inbox.recv() => {
                let Some(Order { door, done }) = order else { return };
                let result = match door {
                    ListenerState::Stop => return,
                    ListenerState::Close => {
                        listener = None;
                        connections.shutdown().await;
                        Ok(())
                    }
                    ListenerState::Open if listener.is_some() => Ok(()),
                    ListenerState::Open => TcpListener::bind(address).await.map(|opened| listener = Some(opened)),
                };
                // Whoever gave the order may have stopped waiting for it.
                let _ = done.send(result);
            }
            accepted = accept(accepting) => match accepted {
                Ok(stream) => {
                    // Without it, small answers wait for the caller's delayed acknowledgement.
                    let _ = stream.set_nodelay(true);
                    connections.spawn(Arc::clone(&handler).converse(stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "the simulator could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn serve<H: Handler>(stream: TcpStream, handler: Arc<H>) {
    let service = service_fn(move |request| Arc::clone(&handler).handle(request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        // Closing idle connections would be a fault that nobody ordered.
        .header_read_timeout(None)
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::trace!(%error, "a simulated connection ended early");
    }
}

/// The whole body; `None` when it is larger than `bytes_max`.
pub(crate) async fn read_body(body: Incoming, bytes_max: usize) -> Result<Option<Bytes>, Hangup> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(Some(collected.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Ok(None),
        // The caller went away in the middle of its request.
        Err(_) => Err(Hangup),
    }
}

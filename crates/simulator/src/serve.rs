//! TCP listener on its own thread that can be closed and reopened, for HTTP/1.1 and other protocols.
//!
//! Each server has its own thread and runtime: it keeps responding whatever the code under test does to its own
//! runtime (blocks it, pauses its clock, shuts it down), and it can be started outside a runtime.

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
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::lock;
use crate::reply::{Hangup, Payload};

/// Further connections wait in the listen queue.
const CONNECTIONS_MAX: usize = 10_000;

/// `127.0.0.1` with a port chosen by the system.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(crate) trait Handler: Send + Sync + 'static {
    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Payload>, Hangup>> + Send;
}

/// Protocol handler for raw connections.
pub(crate) trait ConnectionHandler: Send + Sync + 'static {
    fn handle_connection(self: Arc<Self>, stream: TcpStream) -> impl Future<Output = ()> + Send;
}

struct Http<H>(Arc<H>);

impl<H: Handler> ConnectionHandler for Http<H> {
    async fn handle_connection(self: Arc<Self>, stream: TcpStream) {
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
struct ListenerCommand {
    state: ListenerState,
    done: blocking::Sender<io::Result<()>>,
}

#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    commands: mpsc::UnboundedSender<ListenerCommand>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    pub(crate) fn start<H: Handler>(name: &str, listen: SocketAddr, handler: Arc<H>) -> io::Result<Server> {
        Server::start_raw(name, listen, Arc::new(Http(handler)))
    }

    pub(crate) fn start_raw<C: ConnectionHandler>(
        name: &str,
        listen: SocketAddr,
        handler: Arc<C>,
    ) -> io::Result<Server> {
        let listener = std::net::TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let (started, starting) = blocking::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener);
                let reported = started.send(listener.as_ref().map(drop).map_err(|error| io::Error::from(error.kind())));
                if let (Ok(listener), Ok(())) = (listener, reported) {
                    run(listener, address, handler, inbox).await;
                }
            });
            // Cancels held responses and late writes.
            runtime.shutdown_timeout(Duration::ZERO);
        })?;
        starting.recv().map_err(|_| io::Error::other("the thread of the simulated server ended during start"))??;
        Ok(Server { address, commands, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn close(&self) -> io::Result<()> {
        self.set_state(ListenerState::Close)
    }

    pub(crate) fn open(&self) -> io::Result<()> {
        self.set_state(ListenerState::Open)
    }

    pub(crate) fn stop(&self) {
        // Fails if the server has stopped already.
        let _ = self.set_state(ListenerState::Stop);
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }

    fn set_state(&self, state: ListenerState) -> io::Result<()> {
        let stopped = || io::Error::new(io::ErrorKind::NotConnected, "the simulated server is stopped");
        let (done, result) = blocking::channel();
        self.commands.send(ListenerCommand { state, done }).map_err(|_| stopped())?;
        result.recv().map_err(|_| stopped())?
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn run<C: ConnectionHandler>(
    listener: TcpListener,
    address: SocketAddr,
    handler: Arc<C>,
    mut inbox: mpsc::UnboundedReceiver<ListenerCommand>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let accepting = listener.as_ref().filter(|_| connections.len() < CONNECTIONS_MAX);
        tokio::select! {
            command = inbox.recv() => {
                let Some(ListenerCommand { state, done }) = command else { return };
                let result = match state {
                    ListenerState::Stop => return,
                    ListenerState::Close => {
                        listener = None;
                        connections.shutdown().await;
                        Ok(())
                    }
                    ListenerState::Open if listener.is_some() => Ok(()),
                    ListenerState::Open => TcpListener::bind(address).await.map(|opened| listener = Some(opened)),
                };
                // The caller may have stopped waiting.
                let _ = done.send(result);
            }
            accepted = accept(accepting) => match accepted {
                Ok(stream) => {
                    // Otherwise small responses wait for the caller's delayed acknowledgement.
                    let _ = stream.set_nodelay(true);
                    connections.spawn(Arc::clone(&handler).handle_connection(stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "simulator cannot accept a connection");
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
        // Closing idle connections would be a fault that no plan requests.
        .header_read_timeout(None)
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::trace!(%error, "simulated connection ended early");
    }
}

/// Reads the body; `None` if it is larger than `bytes_max`.
pub(crate) async fn read_body(body: Incoming, bytes_max: usize) -> Result<Option<Bytes>, Hangup> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(Some(collected.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Ok(None),
        // The caller disconnected in the middle of its request.
        Err(_) => Err(Hangup),
    }
}

/// Waits, without polling, until the counts satisfy `condition`, and returns them. They are read again on each change.
pub(crate) async fn wait_until<T>(
    changed: &watch::Sender<()>,
    counts: impl Fn() -> T,
    mut condition: impl FnMut(&T) -> bool,
) -> T {
    let mut changes = changed.subscribe();
    loop {
        changes.borrow_and_update();
        let counts = counts();
        if condition(&counts) {
            return counts;
        }
        changes.changed().await.expect("the sender lives as long as this borrow");
    }
}

//! A wire to a database that loses the answer to a COMMIT on order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::serve::{ANY_PORT, Connections, Server};

const NOTHING: u8 = 0;
const BEFORE: u8 = 1;
const AFTER: u8 = 2;

/// What becomes of a COMMIT whose answer is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitLoss {
    /// The server never sees it, and takes the transaction back.
    BeforeCommitting,
    /// The server commits.
    AfterCommitting,
}

/// A listener that passes everything on in both directions. It stops when dropped.
#[derive(Debug)]
pub struct Relay {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    to: SocketAddr,
    /// What happens to the next COMMIT.
    order: AtomicU8,
}

impl Relay {
    pub(crate) fn start(port: u16) -> io::Result<Relay> {
        let shared = Arc::new(Shared { to: SocketAddr::from(([127, 0, 0, 1], port)), order: AtomicU8::new(NOTHING) });
        let server = Server::start_raw("sim-relay", ANY_PORT, Arc::clone(&shared))?;
        Ok(Relay { server, shared })
    }

    /// Where it listens on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// Cuts the connection at the next COMMIT.
    pub fn lose_next_commit(&self, loss: CommitLoss) {
        let order = match loss {
            CommitLoss::BeforeCommitting => BEFORE,
            CommitLoss::AfterCommitting => AFTER,
        };
        self.shared.order.store(order, Ordering::SeqCst);
    }

    /// Closes the listener and every connection: callers are refused until [`Relay::accept_connections`].
    pub fn refuse_connections(&self) -> io::Result<()> {
        self.server.close()
    }

    /// Listens again at the same address.
    pub fn accept_connections(&self) -> io::Result<()> {
        self.server.open()
    }
}

impl Connections for Shared {
    async fn converse(self: Arc<Self>, mut near: TcpStream) {
        let Ok(mut far) = TcpStream::connect(self.to).await else { return };
        let (mut asked, mut answered) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
        let mut losing = false;
        loop {
            tokio::select! {
                read = near.read(&mut asked) => {
                    let Ok(count @ 1..) = read else { return };
                    if is_commit(&asked[..count]) {
                        match self.order.swap(NOTHING, Ordering::SeqCst) {
                            BEFORE => return,
                            AFTER => losing = true,
                            _ => {}
                        }
                    }
                    if far.write_all(&asked[..count]).await.is_err() {
                        return;
                    }
                }
                read = far.read(&mut answered) => {
                    let Ok(count @ 1..) = read else { return };
                    // The answer has come, so the server has done it; nobody is told.
                    if losing || near.write_all(&answered[..count]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

fn is_commit(bytes: &[u8]) -> bool {
    bytes.windows(7).any(|window| window.eq_ignore_ascii_case(b"COMMIT\0"))
}

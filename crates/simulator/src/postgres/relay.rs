//! TCP relay to a database that can lose the response to a COMMIT.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rng::SeededRng;
use crate::serve::{ANY_PORT, ConnectionHandler, Server};

const PASS: u8 = 0;
const BEFORE: u8 = 1;
const AFTER: u8 = 2;

/// What happens to a COMMIT whose response is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitLoss {
    /// The server never receives it and rolls back.
    BeforeCommitting,
    AfterCommitting,
}

/// Relays both directions. Stops when dropped.
#[derive(Debug)]
pub struct Relay {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    /// What happens to the next COMMIT: pass, or lose it before or after committing.
    next_commit: AtomicU8,
    /// Percent of all other COMMITs that are lost before committing, and after it.
    lost_percent: [AtomicU8; 2],
    /// COMMITs so far: the number decides which are lost.
    commits: AtomicU64,
}

impl Relay {
    pub(crate) fn start(port: u16) -> io::Result<Relay> {
        let shared = Arc::new(Shared {
            upstream: SocketAddr::from(([127, 0, 0, 1], port)),
            next_commit: AtomicU8::new(PASS),
            lost_percent: Default::default(),
            commits: AtomicU64::new(0),
        });
        let server = Server::start_raw("sim-relay", ANY_PORT, Arc::clone(&shared))?;
        Ok(Relay { server, shared })
    }

    /// Port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// Closes the connection at the next COMMIT.
    pub fn lose_next_commit(&self, loss: CommitLoss) {
        let next_commit = match loss {
            CommitLoss::BeforeCommitting => BEFORE,
            CommitLoss::AfterCommitting => AFTER,
        };
        self.shared.next_commit.store(next_commit, Ordering::SeqCst);
    }

    /// Closes the connection at these shares of all COMMITs, in percent: before committing, and after it. The same COMMITs in the
    /// same order are lost.
    pub fn lose_commits(&self, before_percent: u8, after_percent: u8) {
        self.shared.lost_percent[0].store(before_percent, Ordering::SeqCst);
        self.shared.lost_percent[1].store(after_percent, Ordering::SeqCst);
    }

    /// Closes the listener and every connection; callers are refused until [`Relay::accept_connections`].
    pub fn refuse_connections(&self) -> io::Result<()> {
        self.server.close()
    }

    /// Listens again on the same address.
    pub fn accept_connections(&self) -> io::Result<()> {
        self.server.open()
    }
}

impl Shared {
    /// What happens to this COMMIT.
    fn next_loss(&self) -> u8 {
        let ordered = self.next_commit.swap(PASS, Ordering::SeqCst);
        if ordered != PASS {
            return ordered;
        }
        let [before, after] = [0, 1].map(|at: usize| u64::from(self.lost_percent[at].load(Ordering::SeqCst)));
        let number = self.commits.fetch_add(1, Ordering::SeqCst);
        match SeededRng::stream(0, number).below(100) {
            drawn if drawn < before => BEFORE,
            drawn if drawn < before + after => AFTER,
            _ => PASS,
        }
    }
}

impl ConnectionHandler for Shared {
    async fn handle_connection(self: Arc<Self>, mut client: TcpStream) {
        let Ok(mut server) = TcpStream::connect(self.upstream).await else { return };
        let (mut request, mut response) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
        let mut losing = false;
        loop {
            tokio::select! {
                read = client.read(&mut request) => {
                    let Ok(count @ 1..) = read else { return };
                    if is_commit(&request[..count]) {
                        match self.next_loss() {
                            BEFORE => return,
                            AFTER => losing = true,
                            _ => {}
                        }
                    }
                    if server.write_all(&request[..count]).await.is_err() {
                        return;
                    }
                }
                read = server.read(&mut response) => {
                    let Ok(count @ 1..) = read else { return };
                    // The response has arrived, so the server has committed; it is not passed on.
                    if losing || client.write_all(&response[..count]).await.is_err() {
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

//! TCP proxy that cuts connections in the middle of requests and responses, or refuses them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use sluice_domain::random::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{Commands, Listening, report};
use crate::{ANY_PORT, Error};

/// A connection is cut after fewer bytes than this, both directions together: about twenty requests and responses.
const CUT_BYTES_MAX: u64 = 16 * 1024;
const CHUNK: usize = 4 * 1024;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Task {
    /// Share of connections to cut.
    pub cut_percent: f64,
    pub seed: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) enum Command {
    /// Sets the upstream address and closes open connections. With `None`, new connections are closed at once.
    SetUpstream(Option<SocketAddr>),
    /// Only reports the count.
    Count,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Report {
    /// Connections cut so far.
    pub cuts: u64,
}

pub(super) async fn run(mut commands: Commands) -> Result<(), Error> {
    let Task { cut_percent, seed } = commands.task().await?;
    let failed = || Error::io("the proxy");
    let listener = TcpListener::bind(ANY_PORT).await.map_err(failed())?;
    report(&Listening { address: listener.local_addr().map_err(failed())? })?;
    let (upstream, upstreams) = watch::channel(None);
    let cuts = Arc::new(AtomicU64::new(0));
    tokio::spawn(accept(listener, upstreams, cut_percent / 100.0, Random::seeded(seed), cuts.clone()));
    while let Some(command) = commands.next().await? {
        if let Command::SetUpstream(address) = command {
            upstream.send_replace(address);
        }
        report(&Report { cuts: cuts.load(Ordering::Relaxed) })?;
    }
    Ok(())
}

async fn accept(
    listener: TcpListener,
    upstreams: watch::Receiver<Option<SocketAddr>>,
    cut: f64,
    mut random: Random,
    cuts: Arc<AtomicU64>,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let mut upstreams = upstreams.clone();
        let Some(upstream) = *upstreams.borrow_and_update() else { continue };
        let left = if random.chance(cut) { random.below(CUT_BYTES_MAX) } else { u64::MAX };
        let (cuts, left) = (cuts.clone(), Arc::new(AtomicU64::new(left)));
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(upstream).await else { return };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            // The first direction to end closes both; bytes in flight are dropped.
            let was_cut = tokio::select! {
                was_cut = forward(&mut from_client, &mut to_server, &left) => was_cut,
                was_cut = forward(&mut from_server, &mut to_client, &left) => was_cut,
                _ = upstreams.changed() => false,
            };
            cuts.fetch_add(u64::from(was_cut), Ordering::Relaxed);
        });
    }
}

/// Forwards bytes until one end closes or the budget `left` is used up. Returns true if the connection was cut.
async fn forward(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    left: &AtomicU64,
) -> bool {
    let mut chunk = [0; CHUNK];
    loop {
        let length = match from.read(&mut chunk).await {
            Ok(0) | Err(_) => return false,
            Ok(length) => length,
        };
        let before = left.load(Ordering::Relaxed);
        let passes = usize::try_from(before).unwrap_or(usize::MAX).min(length);
        left.store(before.saturating_sub(length as u64), Ordering::Relaxed);
        if to.write_all(&chunk[..passes]).await.is_err() {
            return false;
        }
        if passes < length {
            return true;
        }
    }
}

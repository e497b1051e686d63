//! A way in between that breaks: connections are cut in the middle of requests and of answers, or not let through at all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use sluice_domain::random::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{Listening, Orders, report};
use crate::{ANY_PORT, Error};

/// A connection that is cut has carried less than this, both ways together: some twenty requests with their answers.
const CUT_BYTES_MAX: u64 = 16 * 1024;
const CHUNK: usize = 4 * 1024;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Task {
    /// The share of connections that are cut.
    pub cut_percent: f64,
    pub seed: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaos) enum Order {
    /// Where connections lead from here on. Those that there are end, and where it is nowhere, new ones are closed at once.
    LeadTo(Option<SocketAddr>),
    /// Only the count is wanted.
    Count,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::chaos) struct Report {
    /// Connections that were cut midway so far.
    pub cuts: u64,
}

pub(super) async fn play(mut orders: Orders) -> Result<(), Error> {
    let Task { cut_percent, seed } = orders.task().await?;
    let failed = || Error::io("the proxy that cuts connections");
    let listener = TcpListener::bind(ANY_PORT).await.map_err(failed())?;
    report(&Listening { address: listener.local_addr().map_err(failed())? })?;
    let (upstream, leads_to) = watch::channel(None);
    let cuts = Arc::new(AtomicU64::new(0));
    tokio::spawn(accept(listener, leads_to, cut_percent / 100.0, Random::seeded(seed), cuts.clone()));
    while let Some(order) = orders.next().await? {
        if let Order::LeadTo(address) = order {
            upstream.send_replace(address);
        }
        report(&Report { cuts: cuts.load(Ordering::Relaxed) })?;
    }
    Ok(())
}

async fn accept(
    listener: TcpListener,
    leads_to: watch::Receiver<Option<SocketAddr>>,
    cut: f64,
    mut random: Random,
    cuts: Arc<AtomicU64>,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let mut leads_to = leads_to.clone();
        let Some(upstream) = *leads_to.borrow_and_update() else { continue };
        let left = if random.chance(cut) { random.below(CUT_BYTES_MAX) } else { u64::MAX };
        let (cuts, left) = (cuts.clone(), Arc::new(AtomicU64::new(left)));
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(upstream).await else { return };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            // Whichever ends first ends both: the rest is dropped with what it carried.
            let was_cut = tokio::select! {
                was_cut = carry(&mut from_client, &mut to_server, &left) => was_cut,
                was_cut = carry(&mut from_server, &mut to_client, &left) => was_cut,
                _ = leads_to.changed() => false,
            };
            cuts.fetch_add(u64::from(was_cut), Ordering::Relaxed);
        });
    }
}

/// Carries bytes until an end closes, or until no more may pass. Answers whether it was cut.
async fn carry(
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

//! Sends one more duplicate of a lead directly to the node, so that a full or frozen disk meets a write and the response
//! shows it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use sluice_simulator::load::Connection;
use sluice_simulator::traffic::Traffic;

use crate::Sender;

/// Timeout; longer than any freeze of the disk.
const RESPONSE_MAX: Duration = Duration::from_secs(5);

/// Response of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeResult {
    /// 503 `disk-full`.
    DiskFull,
    /// Any other response, or none.
    Other,
}

#[derive(Debug, Deserialize)]
struct Problem {
    code: String,
}

/// Holds a request that the node accepts.
#[derive(Clone, Debug)]
pub(super) struct Prober {
    request: Arc<[u8]>,
}

impl Prober {
    pub(super) fn new(sender: &Sender, traffic: &Traffic) -> Prober {
        let mut request = Vec::new();
        sender.write(&traffic.body(0), &mut request);
        Prober { request: request.into() }
    }

    pub(super) async fn probe(self, intake: SocketAddr) -> ProbeResult {
        let exchange = async {
            let mut connection = Connection::open(intake).await.ok()?;
            let response = connection.send(&self.request).await.ok()?;
            let problem: Problem = serde_json::from_slice(response.body).ok()?;
            (response.status == 503 && problem.code == "disk-full").then_some(ProbeResult::DiskFull)
        };
        tokio::time::timeout(RESPONSE_MAX, exchange).await.ok().flatten().unwrap_or(ProbeResult::Other)
    }
}

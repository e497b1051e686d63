//! One more repeat of a lead, straight to the node: so that a full or slow disk is always met by a write, and so that it shows outside.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use sluice_simulator::load::Connection;
use sluice_simulator::traffic::Traffic;

use crate::Sender;

/// Longer than any disk stands still.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What the node said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knock {
    /// There is no room to write the event down.
    NoRoom,
    /// Something else, or nothing.
    Other,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    code: String,
}

/// Knows a lead that the node would take in.
#[derive(Clone, Debug)]
pub(super) struct Prober {
    request: Arc<[u8]>,
}

impl Prober {
    pub fn new(sender: &Sender, traffic: &Traffic) -> Prober {
        let mut request = Vec::new();
        sender.write(&traffic.body(0), &mut request);
        Prober { request: request.into() }
    }

    pub async fn knock(self, intake: SocketAddr) -> Knock {
        let asked = async {
            let mut connection = Connection::open(intake).await.ok()?;
            let answer = connection.send(&self.request).await.ok()?;
            let refusal: Refusal = serde_json::from_slice(answer.body).ok()?;
            (answer.status == 503 && refusal.code == "disk-full").then_some(Knock::NoRoom)
        };
        tokio::time::timeout(ANSWER_MAX, asked).await.ok().flatten().unwrap_or(Knock::Other)
    }
}

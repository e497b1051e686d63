//! Connections that wait for their next request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::address::AddressScope;
use super::connection::Connection;

/// Where a connection leads. How far it may reach is part of it: one that was opened to a private address for an operator
/// must not serve a URL that came out of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub https: bool,
    /// Without the brackets of an IPv6 address.
    pub host: Box<str>,
    pub port: u16,
    pub reach: AddressScope,
}

/// The connections at rest. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    idle: Arc<Mutex<Idle>>,
    timeout: Duration,
    per_origin_max: usize,
}

#[derive(Debug, Default)]
struct Idle {
    connections: HashMap<Origin, Vec<(Instant, Connection)>>,
    /// Whether somebody comes by to hang up.
    watched: bool,
}

impl Pool {
    pub fn new(timeout: Duration, per_origin_max: usize) -> Pool {
        Pool { idle: Arc::default(), timeout, per_origin_max }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that the other side has not closed, as far as is known. The last one that came back comes first.
    pub fn take(&self, origin: &Origin) -> Option<Connection> {
        loop {
            let (since, mut connection) = self.idle().connections.get_mut(origin)?.pop()?;
            if since.elapsed() < self.timeout && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next call. It is closed if that does not come in time.
    pub fn give_back(&self, origin: &Origin, mut connection: Connection) {
        if !connection.is_usable() {
            return;
        }
        let mut idle = self.idle();
        let kept = match idle.connections.get_mut(origin) {
            Some(kept) => kept,
            None => idle.connections.entry(origin.clone()).or_default(),
        };
        if kept.len() < self.per_origin_max {
            kept.push((Instant::now(), connection));
        }
        if !std::mem::replace(&mut idle.watched, true) {
            tokio::spawn(self.clone().hang_up());
        }
    }

    /// Closes what has waited for too long, until nothing waits any more.
    async fn hang_up(self) {
        loop {
            tokio::time::sleep(self.timeout).await;
            let mut idle = self.idle();
            idle.connections.retain(|_, kept| {
                kept.retain(|(since, _)| since.elapsed() < self.timeout);
                !kept.is_empty()
            });
            if idle.connections.is_empty() {
                idle.watched = false;
                return;
            }
        }
    }
}

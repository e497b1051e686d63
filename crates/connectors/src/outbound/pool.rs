//! Pool of idle connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::address::AddressScope;
use super::connection::Connection;

/// Pool key. The address scope is part of it: a connection opened to a private address for a configured
/// host must not serve a URL that comes from an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub https: bool,
    /// Without the brackets of an IPv6 address.
    pub host: Box<str>,
    pub port: u16,
    pub scope: AddressScope,
}

/// Idle connections by origin. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    idle: Arc<Mutex<Idle>>,
    timeout: Duration,
    per_origin_max: usize,
}

#[derive(Debug, Default)]
struct Idle {
    connections: HashMap<Origin, Vec<(Instant, Connection)>>,
    /// The task that closes expired connections is running.
    reaper_running: bool,
}

impl Pool {
    pub(super) fn new(timeout: Duration, per_origin_max: usize) -> Pool {
        Pool { idle: Arc::default(), timeout, per_origin_max }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most recently used connection that is still open, as far as is known without waiting.
    pub(super) fn take(&self, origin: &Origin) -> Option<Connection> {
        loop {
            let (since, mut connection) = self.idle().connections.get_mut(origin)?.pop()?;
            if since.elapsed() < self.timeout && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Pools a connection; it is closed after the idle timeout.
    pub(super) fn put(&self, origin: &Origin, mut connection: Connection) {
        if !connection.is_usable() {
            return;
        }
        let mut idle = self.idle();
        let connections = match idle.connections.get_mut(origin) {
            Some(connections) => connections,
            None => idle.connections.entry(origin.clone()).or_default(),
        };
        if connections.len() < self.per_origin_max {
            connections.push((Instant::now(), connection));
        }
        if !std::mem::replace(&mut idle.reaper_running, true) {
            tokio::spawn(self.clone().close_expired());
        }
    }

    /// Closes expired connections; ends when the pool is empty.
    async fn close_expired(self) {
        loop {
            tokio::time::sleep(self.timeout).await;
            let mut idle = self.idle();
            idle.connections.retain(|_, connections| {
                connections.retain(|(since, _)| since.elapsed() < self.timeout);
                !connections.is_empty()
            });
            if idle.connections.is_empty() {
                idle.reaper_running = false;
                return;
            }
        }
    }
}

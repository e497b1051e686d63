//! Callers of the intake by address: open connections, bytes in flight, requests that failed verification.
//!
//! A connection looks its peer up once; a request only changes counters.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluice_domain::flow::RateLimit;
use sluice_domain::time::Time;

use super::limit::Bucket;

/// After a verified request its address is known for so long: its requests are verified whatever else it sends, because
/// genuine senders and strangers may share an address.
const KNOWN_FOR: Duration = Duration::from_secs(3_600);

/// Addresses that are remembered. Further ones share one entry.
const PEERS_MAX: usize = 65_536;

/// Number of addresses from which on idle ones are forgotten.
const SWEEP_LEN_MIN: usize = 1_024;

/// One address.
#[derive(Debug, Default)]
pub(super) struct Peer {
    connections: AtomicUsize,
    pub(super) body_bytes: AtomicUsize,
    unverified: Bucket,
    /// Steady time in milliseconds; 0 for never.
    verified_at: AtomicI64,
    warned: AtomicBool,
}

/// An open connection of an address.
#[derive(Debug)]
pub(super) struct PeerConnection(Arc<Peer>);

impl Drop for PeerConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer {
    /// Counts a connection; `None` if the address has `max` already.
    pub(super) fn connect(self: &Arc<Peer>, max: usize) -> Option<PeerConnection> {
        let counted = self
            .connections
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| (open < max).then_some(open + 1));
        counted.ok().map(|_| PeerConnection(self.clone()))
    }

    /// True the first time.
    pub(super) fn warn_once(&self) -> bool {
        !self.warned.swap(true, Ordering::Relaxed)
    }

    pub(super) fn note_verified(&self, now: Time) {
        // One write per second, so that connections of one address do not contend for it.
        if now.0 - self.verified_at.load(Ordering::Relaxed) >= 1_000 {
            self.verified_at.store(now.0, Ordering::Relaxed);
        }
    }

    fn is_known(&self, now: Time) -> bool {
        let verified_at = self.verified_at.load(Ordering::Relaxed);
        verified_at != 0 && now.since(Time(verified_at)) < KNOWN_FOR
    }

    fn is_idle(&self, now: Time) -> bool {
        self.unverified.is_full(now) && !self.is_known(now)
    }
}

/// Limits of requests that fail verification.
#[derive(Clone, Copy, Debug)]
pub struct UnverifiedLimits {
    pub per_address: RateLimit,
    pub total: RateLimit,
}

/// All addresses.
#[derive(Debug, Default)]
pub(super) struct Peers {
    table: Mutex<Table>,
    unverified_total: Bucket,
    overflow: Arc<Peer>,
}

#[derive(Debug, Default)]
struct Table {
    peers: HashMap<IpAddr, Arc<Peer>>,
    sweep_len: usize,
}

impl Peers {
    pub(super) fn of(&self, address: IpAddr, now: Time) -> Arc<Peer> {
        let address = counted_as(address);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = table.peers.get(&address) {
            return peer.clone();
        }
        if table.peers.len() >= table.sweep_len.max(SWEEP_LEN_MIN) {
            table.peers.retain(|_, peer| Arc::strong_count(peer) > 1 || !peer.is_idle(now));
            table.sweep_len = (table.peers.len() * 2).min(PEERS_MAX);
        }
        if table.peers.len() >= PEERS_MAX {
            return self.overflow.clone();
        }
        table.peers.entry(address).or_default().clone()
    }

    /// Time until a request of this address is read; `None` if now. Requests of a known address always are.
    pub(super) fn wait(&self, peer: &Peer, limits: UnverifiedLimits, now: Time) -> Option<Duration> {
        if peer.is_known(now) {
            return None;
        }
        peer.unverified.wait(limits.per_address, now).max(self.unverified_total.wait(limits.total, now))
    }

    /// Counts a request that was not verified. Returns the time until the next one is allowed, if there were too many.
    pub(super) fn note_unverified(&self, peer: &Peer, limits: UnverifiedLimits, now: Time) -> Result<(), Duration> {
        peer.unverified.take(limits.per_address, now)?;
        self.unverified_total.take(limits.total, now)
    }
}

/// One network of IPv6 has one owner, who may use all its addresses.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_domain::unit;

    fn limits() -> UnverifiedLimits {
        let limit = |rate: &str, burst| RateLimit { rate: unit::rate(rate).unwrap(), burst };
        UnverifiedLimits { per_address: limit("1/s", 2), total: limit("10/s", 5) }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn network_of_ipv6_is_one_address() {
        let peers = Peers::default();
        let same = |a: &str, b: &str| Arc::ptr_eq(&peers.of(address(a), Time(1)), &peers.of(address(b), Time(1)));
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"));
        assert!(!same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }

    #[test]
    fn connections_of_an_address_are_limited_and_freed() {
        let peer = Arc::new(Peer::default());
        let open: Vec<_> = (0..3).filter_map(|_| peer.connect(2)).collect();
        assert_eq!(open.len(), 2);
        drop(open);
        assert!(peer.connect(2).is_some());
    }

    #[test]
    fn failed_requests_use_up_the_limit_of_their_address_only() {
        let (peers, now) = (Peers::default(), Time(1_000_000));
        let (stranger, other) = (peers.of(address("192.0.2.1"), now), peers.of(address("192.0.2.2"), now));
        assert!(peers.note_unverified(&stranger, limits(), now).is_ok());
        assert!(peers.note_unverified(&stranger, limits(), now).is_ok());
        assert!(peers.note_unverified(&stranger, limits(), now).is_err());
        assert!(peers.wait(&stranger, limits(), now).is_some());
        assert!(peers.wait(&other, limits(), now).is_none());
        assert!(peers.wait(&stranger, limits(), now + Duration::from_secs(1)).is_none());
    }

    #[test]
    fn known_address_is_read_although_strangers_use_up_all_limits() {
        let (peers, now) = (Peers::default(), Time(1_000_000));
        let known = peers.of(address("192.0.2.9"), now);
        known.note_verified(now);
        for n in 0..40 {
            let stranger = peers.of(address(&format!("198.51.100.{n}")), now);
            let _ = peers.note_unverified(&stranger, limits(), now);
            let _ = peers.note_unverified(&known, limits(), now);
        }
        assert!(peers.wait(&peers.of(address("203.0.113.1"), now), limits(), now).is_some(), "the total is used up");
        assert!(peers.wait(&known, limits(), now).is_none());
        assert!(peers.wait(&known, limits(), now + KNOWN_FOR).is_none(), "the limits are full again");
    }

    #[test]
    fn idle_addresses_are_forgotten() {
        let (peers, now) = (Peers::default(), Time(1_000_000));
        let held = peers.of(address("192.0.2.1"), now);
        let failed = peers.of(address("192.0.2.2"), now);
        let _ = peers.note_unverified(&failed, limits(), now);
        drop(failed);
        for n in 0..5_000u32 {
            peers.of(IpAddr::from(n.to_be_bytes()), now);
        }
        let table = peers.table.lock().unwrap();
        assert!(table.peers.len() <= SWEEP_LEN_MIN + 2, "{}", table.peers.len());
        assert!(table.peers.contains_key(&address("192.0.2.1")) && Arc::strong_count(&held) == 2);
        assert!(table.peers.contains_key(&address("192.0.2.2")), "its limit is not full again");
    }
}

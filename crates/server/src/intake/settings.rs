//! Limits of the intake listener.

use std::time::Duration;

use sluice_domain::flow::RateLimit;
use sluice_domain::unit::Rate;

use super::peer::UnverifiedLimits;
use super::proxy::TrustedProxies;
use super::receive::BodyLimits;

/// Timeout of request heads while most connections are in use.
const HEAD_TIMEOUT_SHORT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct IntakeSettings {
    pub connections_max: usize,
    /// Applies to the request head and to idle connections.
    pub head_timeout: Duration,
    pub body_timeout: Duration,
    /// Bytes of bodies being received or waiting for their commit, over all connections.
    pub body_bytes_in_flight_max: usize,
    /// Bytes per second that a body must arrive with while more than half of that memory is used.
    pub body_bytes_per_second_min: usize,
    /// Open connections of one address; a trusted proxy may have more.
    pub connections_per_address_max: usize,
    /// Share of `body_bytes_in_flight_max` that one address may use.
    pub body_bytes_per_address_max: usize,
    /// Limits of requests that fail verification.
    pub unverified: UnverifiedLimits,
    pub trusted_proxies: TrustedProxies,
}

impl Default for IntakeSettings {
    fn default() -> IntakeSettings {
        IntakeSettings {
            connections_max: 4_096,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(15),
            body_bytes_in_flight_max: 64 * 1024 * 1024,
            body_bytes_per_second_min: 8 * 1024,
            connections_per_address_max: 512,
            body_bytes_per_address_max: 16 * 1024 * 1024,
            unverified: UnverifiedLimits { per_address: per_second(20, 200), total: per_second(500, 2_000) },
            trusted_proxies: TrustedProxies::default(),
        }
    }
}

fn per_second(count: u32, burst: u32) -> RateLimit {
    RateLimit { rate: Rate { count, per: Duration::from_secs(1) }, burst }
}

impl IntakeSettings {
    /// Time for the head of a request while this many further connections fit: shorter when few do.
    pub(super) fn head_timeout_with(&self, connections_free: usize) -> Duration {
        match connections_free < self.connections_max / 4 {
            true => self.head_timeout.min(HEAD_TIMEOUT_SHORT),
            false => self.head_timeout,
        }
    }

    pub(super) fn body_limits(&self) -> BodyLimits {
        BodyLimits {
            timeout: self.body_timeout,
            bytes_max: self.body_bytes_in_flight_max,
            bytes_per_address_max: self.body_bytes_per_address_max,
            rate_min: self.body_bytes_per_second_min,
        }
    }
}

//! Access to the admin API: who may do what, which hosts and origins are accepted, and how guesses are throttled.

mod caller;
mod credential;
pub mod oidc;

pub use caller::{Caller, Identity, OWNER, Permission, Role, UserNameProblem, check_user_name};
pub use credential::{
    CredentialKind, LINK_LIFETIME, SESSION_IDLE, SESSION_LIFETIME, SESSIONS_PER_USER_MAX, TOKEN_LIFETIME_DEFAULT,
    TOKEN_LIFETIME_MAX, TOKENS_MAX, USERS_MAX, is_valid, use_is_recorded,
};

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::time::Time;

/// Whether a `Host` header names this machine or one of the `allowed` hosts, whatever the port of either. A page of another site whose name was pointed at
/// this machine (DNS rebinding) sends its own name.
pub fn host_is_allowed(host: &str, allowed: &[String]) -> bool {
    let Some(name) = name_of(host) else { return false };
    // An IPv6 address without brackets has no port.
    let name_of_allowed = |allowed: &str| name_of(allowed).unwrap_or(allowed).trim_matches(['[', ']']).to_owned();
    is_loopback_name(name) || allowed.iter().any(|allowed| name_of_allowed(allowed).eq_ignore_ascii_case(name))
}

/// Whether an `Origin` header names the page's own server, as the `Host` header does. `null` never matches.
pub fn origin_matches(origin: &str, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default_port = match scheme.to_ascii_lowercase().as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let without_default = |authority: &str| {
        let authority = authority.to_ascii_lowercase();
        authority.strip_suffix(default_port).map(str::to_owned).unwrap_or(authority)
    };
    !authority.is_empty() && without_default(authority) == without_default(host)
}

/// Whether the name or address is one of this machine only.
pub fn is_loopback_name(name: &str) -> bool {
    let name = name.trim_matches(['[', ']']);
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// A path of the console to go to after a sign-in; anything else is the overview. Browsers drop tabs and line breaks from addresses and take
/// a backslash for a slash, so that each could hide the `//` before another host.
pub fn own_path(next: &str) -> &str {
    let is_unsafe = |c: char| c == '\\' || c.is_control();
    let is_own = next.starts_with('/') && !next.starts_with("//") && !next.contains(is_unsafe);
    if is_own { next } else { "/" }
}

/// Name of `NAME`, `NAME:PORT` or `[ADDRESS]:PORT`; `None` if it is malformed.
fn name_of(host: &str) -> Option<&str> {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    if let Some(rest) = host.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        let port_is_valid = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        return (port_is_valid && address.parse::<Ipv6Addr>().is_ok()).then_some(address);
    }
    let name = match host.split_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => return None,
        None => host,
    };
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (!name.is_empty() && name.bytes().all(is_valid)).then_some(name)
}

/// Failed tokens of one address before it is throttled.
pub const FAILURES_MAX: u32 = 10;
/// Time in which failures of an address count together, and in which one is reported.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are told apart; the rest share one count.
const ADDRESSES_MAX: usize = 1_024;
/// Reports per window over all addresses, so that failed tokens cannot fill the audit trail.
const REPORTS_MAX: u32 = 20;
/// Stands for every address beyond [`ADDRESSES_MAX`].
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Failed tokens that are due to be logged and audited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureReport {
    /// Of this address, since its last report.
    pub failures: u64,
    /// Of other addresses, left out to bound the number of reports.
    pub unreported: u64,
}

/// Failed tokens by address.
#[derive(Debug, Default)]
pub struct FailedTokens {
    addresses: HashMap<IpAddr, Failures>,
    reports: Window,
    unreported: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    window: Window,
    since_report: u64,
    reported_at: Option<Time>,
}

/// Count since the start of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    started: Time,
    count: u32,
}

impl Window {
    fn ends(&self) -> Time {
        self.started + WINDOW
    }

    fn is_over(&self, now: Time) -> bool {
        self.count == 0 || now >= self.ends()
    }

    fn add(&mut self, now: Time) {
        if self.is_over(now) {
            *self = Window { started: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
    }
}

impl FailedTokens {
    /// Time for which tokens of this address are refused without a comparison, if it is throttled.
    pub fn throttled(&self, address: IpAddr, now: Time) -> Option<Duration> {
        let window = self.addresses.get(&self.key(address))?.window;
        (window.count >= FAILURES_MAX && !window.is_over(now)).then(|| window.ends().since(now))
    }

    /// Counts a failed or throttled token. Returns a report if one is due: at most one per address and window.
    pub fn record(&mut self, address: IpAddr, now: Time) -> Option<FailureReport> {
        if self.addresses.len() >= ADDRESSES_MAX {
            self.forget_old(now);
        }
        let failures = self.addresses.entry(self.key(address)).or_default();
        failures.since_report += 1;
        // A throttled token does not extend the time.
        if failures.window.is_over(now) || failures.window.count < FAILURES_MAX {
            failures.window.add(now);
        }
        if failures.reported_at.is_some_and(|at| now < at + WINDOW) {
            return None;
        }
        if !self.reports.is_over(now) && self.reports.count >= REPORTS_MAX {
            return None;
        }
        self.reports.add(now);
        failures.reported_at = Some(now);
        let (failures, unreported) = (std::mem::take(&mut failures.since_report), std::mem::take(&mut self.unreported));
        Some(FailureReport { failures, unreported })
    }

    fn forget_old(&mut self, now: Time) {
        let unreported = &mut self.unreported;
        self.addresses.retain(|_, failures| {
            let is_kept = !failures.window.is_over(now) || failures.reported_at.is_some_and(|at| now < at + WINDOW);
            if !is_kept {
                *unreported += failures.since_report;
            }
            is_kept
        });
    }

    /// One network of IPv6 counts as one address: its owner can choose any address in it.
    fn key(&self, address: IpAddr) -> IpAddr {
        let address = match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
            }
            address => address,
        };
        let is_known = self.addresses.contains_key(&address);
        if is_known || self.addresses.len() < ADDRESSES_MAX { address } else { OTHERS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_and_allowed_hosts_are_accepted() {
        let allowed = ["sluice.internal", "10.0.0.5", "[fd00::1]", "fd00::2", "ops.internal:8443"].map(str::to_owned);
        for host in [
            "localhost",
            "LocalHost:8081",
            "127.0.0.1:8081",
            "127.9.9.9",
            "[::1]:8081",
            "[::ffff:127.0.0.1]",
            "sluice.internal:443",
            "SLUICE.internal",
            "10.0.0.5:8081",
            "[fd00::1]:8081",
            "[fd00::2]:8081",
            "ops.internal",
            "ops.internal:8443",
        ] {
            assert!(host_is_allowed(host, &allowed), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "localhost:evil",
            "localhost:80:80",
            "user@localhost",
            "127.0.0.1.evil.example",
            "10.0.0.6:8081",
            "[::1",
            "[localhost]:8081",
            "0.0.0.0:8081",
            "local host",
        ] {
            assert!(!host_is_allowed(host, &allowed), "{host}");
        }
    }

    #[test]
    fn origin_must_be_the_host_itself() {
        assert!(origin_matches("http://localhost:8081", "localhost:8081"));
        assert!(origin_matches("https://sluice.internal", "sluice.internal"));
        assert!(origin_matches("https://sluice.internal", "sluice.internal:443"));
        for origin in ["null", "", "http://", "http://localhost:3000", "http://evil.example", "file://localhost:8081"] {
            assert!(!origin_matches(origin, "localhost:8081"), "{origin}");
        }
        assert!(!origin_matches("http://sluice.internal:443", "sluice.internal"));
    }

    #[test]
    fn sign_in_opens_pages_of_this_console_only() {
        assert_eq!(own_path("/events?state=dead"), "/events?state=dead");
        for next in [
            "",
            "//evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/\\evil.example",
            "/a\r\nb",
            "/\t/evil.example",
            "/\n/evil.example",
            "\t//evil.example",
        ] {
            assert_eq!(own_path(next), "/", "{next}");
        }
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    #[test]
    fn address_is_throttled_after_ten_failures_until_the_window_ends() {
        let mut failed = FailedTokens::default();
        for n in 0..FAILURES_MAX {
            assert_eq!(failed.throttled(address(1), Time(1_000)), None, "{n}");
            failed.record(address(1), Time(1_000));
        }
        assert_eq!(failed.throttled(address(1), Time(31_000)), Some(Duration::from_secs(30)));
        failed.record(address(1), Time(60_900));
        assert_eq!(failed.throttled(address(1), Time(61_000)), None, "throttled tokens do not extend the time");
        assert_eq!(failed.throttled(address(2), Time(31_000)), None, "another address is not affected");
    }

    #[test]
    fn flood_of_failures_makes_few_reports_and_loses_no_count() {
        let mut failed = FailedTokens::default();
        assert_eq!(failed.record(address(1), Time(0)), Some(FailureReport { failures: 1, unreported: 0 }));
        for _ in 0..1_000 {
            assert_eq!(failed.record(address(1), Time(1)), None);
        }
        assert_eq!(failed.record(address(1), Time(60_000)), Some(FailureReport { failures: 1_001, unreported: 0 }));
    }

    #[test]
    fn many_addresses_share_memory_and_reports() {
        let mut failed = FailedTokens::default();
        let mut reports = 0;
        for n in 0..100_000_u32 {
            let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n));
            reports += u32::from(failed.record(address, Time(5)).is_some());
        }
        assert_eq!(reports, REPORTS_MAX);
        assert!(failed.addresses.len() <= ADDRESSES_MAX + 1);
        let next = IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1));
        assert!(failed.throttled(next, Time(6)).is_some(), "the rest shares one count");
        assert!(failed.record(address(9), Time(70_000)).is_some_and(|report| report.unreported > 90_000));
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let mut failed = FailedTokens::default();
        for n in 0..FAILURES_MAX {
            failed.record(format!("2001:db8::{n:x}").parse().unwrap(), Time(0));
        }
        assert!(failed.throttled("2001:db8::ffff".parse().unwrap(), Time(1)).is_some());
        assert!(failed.throttled("2001:db8:0:1::1".parse().unwrap(), Time(1)).is_none());
    }
}

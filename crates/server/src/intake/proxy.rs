//! Reverse proxies in front of the intake, and the address of the caller behind them.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use hyper::HeaderMap;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Headers that only a proxy adds.
const PROXY_HEADERS: [&str; 4] = [FORWARDED_FOR, "forwarded", "x-real-ip", "via"];

/// An address, or a network such as 10.0.0.0/8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: u128,
    mask: u128,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address; write 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32")]
pub struct NetworkProblem(String);

impl FromStr for Network {
    type Err = NetworkProblem;

    fn from_str(text: &str) -> Result<Network, NetworkProblem> {
        let problem = || NetworkProblem(text.to_owned());
        let (address, length) = match text.trim().split_once('/') {
            Some((address, length)) => (address, Some(length.parse::<u32>().map_err(|_| problem())?)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| problem())?;
        let (bits, offset) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        let length = length.unwrap_or(bits);
        if length > bits {
            return Err(problem());
        }
        let mask = u128::MAX.checked_shl(128 - (offset + length)).unwrap_or(0);
        Ok(Network { address: as_number(address) & mask, mask })
    }
}

/// IPv4 addresses are counted as IPv4-mapped IPv6 addresses.
fn as_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The proxies whose `X-Forwarded-For` is believed.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(pub Vec<Network>);

impl TrustedProxies {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let number = as_number(address);
        self.0.iter().any(|network| number & network.mask == network.address)
    }

    /// Address of the caller of a request on a connection from this peer.
    pub(crate) fn behind(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if self.contains(peer) { self.caller(peer, headers) } else { peer }
    }

    /// Address of the caller: the last one in `X-Forwarded-For` that is not a trusted proxy. What stands before it was
    /// written by that caller and proves nothing.
    pub(super) fn caller(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut caller = peer;
        for value in headers.get_all(FORWARDED_FOR).iter().rev() {
            for text in value.to_str().unwrap_or_default().rsplit(',') {
                let Some(address) = parse(text.trim()) else { return caller };
                caller = address;
                if !self.contains(address) {
                    return caller;
                }
            }
        }
        caller
    }
}

/// True if a proxy has handled the request, as far as its headers show.
pub(super) fn came_through_a_proxy(headers: &HeaderMap) -> bool {
    PROXY_HEADERS.iter().any(|name| headers.contains_key(*name))
}

/// Some proxies add the port, and brackets around an IPv6 address.
fn parse(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn proxies(networks: &[&str]) -> TrustedProxies {
        TrustedProxies(networks.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn network_contains_its_addresses() {
        let trusted = proxies(&["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1"]);
        for (address, expected) in [
            ("10.255.0.1", true),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("::ffff:192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
            ("::1", true),
            ("::2", false),
        ] {
            assert_eq!(trusted.contains(address.parse().unwrap()), expected, "{address}");
        }
        assert!(proxies(&["0.0.0.0/0"]).contains("198.51.100.1".parse().unwrap()));
        assert!(!proxies(&["0.0.0.0/0"]).contains("2001:db8::1".parse().unwrap()));
        for wrong in ["", "10.0.0.0/33", "10.0.0", "example.com", "::/129", "10.0.0.0/x"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn forged_entry_before_the_caller_is_ignored() {
        let trusted = proxies(&["127.0.0.1", "10.0.0.0/8"]);
        let caller = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(FORWARDED_FOR, value.parse().unwrap());
            }
            trusted.caller(Ipv4Addr::LOCALHOST.into(), &headers).to_string()
        };
        assert_eq!(caller(&[]), "127.0.0.1");
        assert_eq!(caller(&["203.0.113.5"]), "203.0.113.5");
        assert_eq!(caller(&["127.0.0.1, 203.0.113.5"]), "203.0.113.5");
        assert_eq!(caller(&["198.51.100.1, 203.0.113.5, 10.0.0.3"]), "203.0.113.5");
        assert_eq!(caller(&["198.51.100.1", "203.0.113.5"]), "203.0.113.5");
        assert_eq!(caller(&["203.0.113.5:4711"]), "203.0.113.5");
        assert_eq!(caller(&["[2001:db8::1]:4711"]), "2001:db8::1");
        assert_eq!(caller(&["198.51.100.1, unknown"]), "127.0.0.1");
        assert_eq!(caller(&["unknown, 10.0.0.3"]), "10.0.0.3");
    }
}

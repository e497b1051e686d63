//! Address restrictions. Checked on the resolved address of the connection itself, so a DNS name that
//! changes between check and connect (DNS rebinding) cannot bypass them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

/// Addresses a request may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AddressScope {
    /// Public internet addresses only.
    Public,
    /// Any address: the operator configured the host or allowed private addresses.
    Anywhere,
}

/// The host resolves to an address that this request must not use.
#[derive(Debug, thiserror::Error)]
#[error("it resolves to {0}, which is not a public address")]
pub(super) struct AddressRefused(pub(super) IpAddr);

#[derive(Debug, thiserror::Error)]
pub(super) enum Unresolved {
    /// The scope allows none of its addresses.
    #[error(transparent)]
    Refused(AddressRefused),
    /// The name is unknown or the resolver failed.
    #[error(transparent)]
    Unknown(io::Error),
}

/// Resolves names and drops addresses outside the scope.
#[derive(Clone, Debug)]
pub(super) struct Resolver(pub(super) AddressScope);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Unresolved;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Unresolved>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let scope = self.0;
        Box::pin(async move {
            let mut resolved: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await.map_err(Unresolved::Unknown)?.collect();
            let refused = resolved.iter().map(SocketAddr::ip).find(|address| !within(scope, *address));
            resolved.retain(|address| within(scope, address.ip()));
            match refused {
                Some(address) if resolved.is_empty() => Err(Unresolved::Refused(AddressRefused(address))),
                _ => Ok(resolved.into_iter()),
            }
        })
    }
}

/// The refused address if the host is an IP literal (without brackets): literals do not pass the resolver.
pub(super) fn refused_literal(scope: AddressScope, host: &str) -> Option<AddressRefused> {
    let address: IpAddr = host.parse().ok()?;
    (!within(scope, address)).then_some(AddressRefused(address))
}

fn within(scope: AddressScope, address: IpAddr) -> bool {
    match (scope, address) {
        (AddressScope::Anywhere, _) => true,
        (AddressScope::Public, IpAddr::V4(address)) => is_public_v4(address),
        (AddressScope::Public, IpAddr::V6(address)) => is_public_v6(address),
    }
}

/// Excludes the IANA special-purpose registry, and the Azure wire server: it serves machine credentials
/// to guests under a public address.
fn is_public_v4(address: Ipv4Addr) -> bool {
    const AZURE_WIRE_SERVER: [u8; 4] = [168, 63, 129, 16];
    let octets = address.octets();
    octets != AZURE_WIRE_SERVER
        && !matches!(
            octets,
            [0 | 10 | 127 | 224..=255, ..]
                | [100, 64..=127, ..]
                | [169, 254, ..]
                | [172, 16..=31, ..]
                | [192, 168, ..]
                | [192, 0, 0 | 2, _]
                | [192, 88, 99, _]
                | [198, 18 | 19, ..]
                | [198, 51, 100, _]
                | [203, 0, 113, _]
        )
}

/// Global unicast without documentation and tunnel ranges. IPv4-mapped addresses are refused; for the
/// NAT64 prefix the embedded IPv4 address decides.
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))),
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_scope_refuses_special_purpose_addresses() {
        for refused in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "3fff::1",
        ] {
            let address = refused.parse().unwrap();
            assert!(!within(AddressScope::Public, address), "{refused}");
            assert!(within(AddressScope::Anywhere, address), "{refused}");
        }
        for public in [
            "8.8.8.8",
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "64:ff9b::808:808",
        ] {
            assert!(within(AddressScope::Public, public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn literal_hosts_outside_the_scope_are_refused() {
        assert!(refused_literal(AddressScope::Public, "::1").is_some());
        assert!(refused_literal(AddressScope::Public, "127.0.0.1").is_some());
        assert!(refused_literal(AddressScope::Public, "8.8.8.8").is_none());
        assert!(refused_literal(AddressScope::Public, "example.com").is_none());
        assert!(refused_literal(AddressScope::Anywhere, "::1").is_none());
    }
}

//! Networks in the notation `10.0.0.0/8`, which operators use to allow private addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses that share a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u32,
}

/// Why a text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// There is no slash.
    #[error("a network has a prefix length after a slash, such as 10.0.0.0/8")]
    NoPrefix,
    /// What is before the slash is not an address.
    #[error("what is before the slash must be an IPv4 or IPv6 address, such as 10.0.0.0/8")]
    BadAddress,
    /// What is after the slash is not a length.
    #[error("the prefix length after the slash must be a number, at most 32 (IPv4) or 128 (IPv6)")]
    BadPrefix,
    /// Some bits after the prefix are set: one of the two is a slip.
    #[error("the address has bits set after its prefix; the network would be {0}")]
    BitsAfterPrefix(Network),
}

impl Network {
    /// Whether an address is in this network. A v4 address written as v6 is the v4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                (first.to_bits() ^ address.to_bits()) & mask_v4(self.prefix) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                (first.to_bits() ^ address.to_bits()) & mask_v6(self.prefix) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let (address, prefix) = text.split_once('/').ok_or(NetworkError::NoPrefix)?;
        let address: IpAddr = address.parse().map_err(|_| NetworkError::BadAddress)?;
        let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|_| is_number).ok_or(NetworkError::BadPrefix)?;
        let (first, longest) = match address {
            IpAddr::V4(v4) => {
                (IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask_v4(prefix))), Ipv4Addr::BITS)
            }
            IpAddr::V6(v6) => {
                (IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask_v6(prefix))), Ipv6Addr::BITS)
            }
        };
        if prefix > longest {
            return Err(NetworkError::BadPrefix);
        }
        let network = Network { first, prefix };
        if first != address {
            return Err(NetworkError::BitsAfterPrefix(network));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

fn mask_v4(prefix: u32) -> u32 {
    u32::MAX.checked_shl(Ipv4Addr::BITS.saturating_sub(prefix)).unwrap_or(0)
}

fn mask_v6(prefix: u32) -> u128 {
    u128::MAX.checked_shl(Ipv6Addr::BITS.saturating_sub(prefix)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(network: &str, inside: &[&str], outside: &[&str]) {
        let parsed: Network = network.parse().unwrap();
        assert_eq!(parsed.to_string(), network);
        for address in inside {
            assert!(parsed.contains(address.parse().unwrap()), "{address} in {network}");
        }
        for address in outside {
            assert!(!parsed.contains(address.parse().unwrap()), "{address} not in {network}");
        }
    }

    #[test]
    fn a_network_contains_what_shares_its_prefix() {
        check("10.0.0.0/8", &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"], &["11.0.0.0"]);
        check("192.168.7.0/24", &["192.168.7.9"], &["192.168.8.9", "::c0a8:709"]);
        check("10.1.2.3/32", &["10.1.2.3"], &["10.1.2.2", "10.1.2.4"]);
        check("0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::1"]);
        check("fd00::/8", &["fd00::1", "fdff:1::"], &["fc00::1", "10.0.0.1"]);
        check("::/0", &["::1", "ffff::"], &["10.0.0.1", "::ffff:10.0.0.1"]);
        check("fd00::1/128", &["fd00::1"], &["fd00::2"]);
    }

    #[test]
    fn what_is_no_network_is_refused_with_the_reason() {
        let refused = |text: &str| text.parse::<Network>().unwrap_err();
        assert_eq!(refused("10.0.0.0"), NetworkError::NoPrefix);
        for text in ["/8", "10.0.0/8", "ten/8", "010.0.0.0/8", "[fd00::]/8", " 10.0.0.0/8"] {
            assert_eq!(refused(text), NetworkError::BadAddress, "{text}");
        }
        for text in ["10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/8 ", "fd00::/129"] {
            assert_eq!(refused(text), NetworkError::BadPrefix, "{text}");
        }
        let message = refused("10.1.2.3/8").to_string();
        assert!(message.ends_with("the network would be 10.0.0.0/8"), "{message}");
    }
}

//! The guard: which addresses a request may go to.
//!
//! It is asked for every socket address immediately before connecting, so that an address literal,
//! a name that resolves to something else the second time, and every alternate address of a name
//! are all seen. What is not plainly public is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is public.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Networks that are not the public internet: first address, and the length of the prefix.
const RESERVED_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),       // this network
    ([10, 0, 0, 0], 8),      // private
    ([100, 64, 0, 0], 10),   // carrier-grade NAT
    ([127, 0, 0, 0], 8),     // loopback
    ([169, 254, 0, 0], 16),  // link-local, where clouds keep their metadata
    ([172, 16, 0, 0], 12),   // private
    ([192, 0, 0, 0], 24),    // protocol assignments
    ([192, 0, 2, 0], 24),    // documentation
    ([192, 88, 99, 0], 24),  // 6to4 relays
    ([192, 168, 0, 0], 16),  // private
    ([198, 18, 0, 0], 15),   // benchmarks
    ([198, 51, 100, 0], 24), // documentation
    ([203, 0, 113, 0], 24),  // documentation
    ([224, 0, 0, 0], 3),     // multicast, reserved, broadcast
];

/// Parts of `2000::/3` that are not the public internet.
const RESERVED_V6: &[([u16; 8], u32)] = &[
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), // Teredo and other protocol assignments
    ([0x2001, 0x0db8, 0, 0, 0, 0, 0, 0], 32), // documentation
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), // 6to4: a v4 address inside
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), // documentation
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    !RESERVED_V4.iter().any(|(network, prefix)| {
        let network = Ipv4Addr::from_octets(*network).to_bits();
        (bits ^ network) >> (32 - prefix) == 0
    })
}

/// Only what is allocated for the public internet is let through: new special ranges appear
/// outside of it.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    let allocated = bits >> 125 == 0b001;
    allocated
        && !RESERVED_V6.iter().any(|(network, prefix)| {
            let network = Ipv6Addr::from_segments(*network).to_bits();
            (bits ^ network) >> (128 - prefix) == 0
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addresses: &[&str], public: bool) {
        for text in addresses {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(is_public(address), public, "{text}");
        }
    }

    #[test]
    fn public_addresses_pass() {
        check(&["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "223.255.255.255"], true);
        check(&["2606:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8"], true);
    }

    #[test]
    fn everything_special_is_refused() {
        check(
            &[
                "0.0.0.0",
                "10.1.2.3",
                "100.64.0.1",
                "127.0.0.1",
                "169.254.169.254",
                "172.16.0.1",
                "172.31.255.255",
                "192.0.0.1",
                "192.168.1.1",
                "198.18.0.1",
                "198.19.255.255",
                "224.0.0.1",
                "240.0.0.1",
                "255.255.255.255",
            ],
            false,
        );
        check(
            &[
                "::",
                "::1",
                "::ffff:127.0.0.1",
                "::ffff:169.254.169.254",
                "::127.0.0.1",
                "fe80::1",
                "fc00::1",
                "fd00:ec2::254",
                "fec0::1",
                "ff02::1",
                "64:ff9b::7f00:1",
                "64:ff9b:1::1",
                "100::1",
                "2001::1",
                "2001:db8::1",
                "2002:7f00:1::",
                "5f00::1",
            ],
            false,
        );
    }
}

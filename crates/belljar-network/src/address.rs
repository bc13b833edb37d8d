//! Addresses that code reaches only if the policy names them: private, local, reserved, and those that embed one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The special-purpose blocks of IPv4, by the registry of RFC 6890, and multicast.
const SPECIAL_V4: [([u8; 4], u8, &str); 16] = [
    ([0, 0, 0, 0], 8, "unspecified"),
    ([10, 0, 0, 0], 8, "private"),
    ([100, 64, 0, 0], 10, "private (shared by carriers)"),
    ([127, 0, 0, 0], 8, "loopback"),
    ([169, 254, 0, 0], 16, "link-local or of a metadata service"),
    ([172, 16, 0, 0], 12, "private"),
    ([192, 0, 0, 0], 24, "reserved"),
    ([192, 0, 2, 0], 24, "for documentation"),
    ([192, 31, 196, 0], 24, "reserved"),
    ([192, 88, 99, 0], 24, "a relay of 6to4"),
    ([192, 168, 0, 0], 16, "private"),
    ([198, 18, 0, 0], 15, "for benchmarks"),
    ([198, 51, 100, 0], 24, "for documentation"),
    ([203, 0, 113, 0], 24, "for documentation"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([240, 0, 0, 0], 4, "reserved or broadcast"),
];

/// The special-purpose blocks of IPv6. Global unicast addresses are those of `2000::/3`; every other address is
/// special.
const SPECIAL_V6: [([u16; 8], u8, &str); 14] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "unspecified"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback"),
    // The deprecated compatible addresses.
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, "an embedded address of IPv4"),
    // The local-use prefix of NAT64.
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "private"),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "discarded"),
    // Teredo, ORCHID and others.
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "reserved"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "for documentation"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "for documentation"),
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, "reserved"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "private"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "private"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
    ([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, "reserved"),
];

/// A block of addresses that code reaches only if the policy names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpecialBlock {
    /// The addresses.
    pub(crate) net: IpNet,
    /// Their use, as text.
    pub(crate) use_: &'static str,
}

/// Returns the special block that contains the address, if any. The address of IPv4 that one of IPv6 embeds counts.
pub(crate) fn special_block(address: IpAddr) -> Option<SpecialBlock> {
    match address.to_canonical() {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address).or_else(|| embedded_v4(address).and_then(special_v4)),
    }
}

/// Returns the address of IPv4 that a gateway would forward packets for this address to: those of NAT64 and 6to4.
pub(crate) fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some(Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15])),
        [0x2002, ..] => Some(Ipv4Addr::new(octets[2], octets[3], octets[4], octets[5])),
        _ => None,
    }
}

fn special_v4(address: Ipv4Addr) -> Option<SpecialBlock> {
    SPECIAL_V4.iter().find_map(|(base, length, use_)| {
        let net = Ipv4Net::new(Ipv4Addr::from(*base), *length).ok()?;
        net.contains(&address).then_some(SpecialBlock { net: IpNet::V4(net), use_ })
    })
}

fn special_v6(address: Ipv6Addr) -> Option<SpecialBlock> {
    let listed = SPECIAL_V6.iter().find_map(|(base, length, use_)| {
        let net = Ipv6Net::new(Ipv6Addr::from(*base), *length).ok()?;
        net.contains(&address).then_some(SpecialBlock { net: IpNet::V6(net), use_ })
    });
    let is_global = address.segments()[0] & 0xe000 == 0x2000 || embedded_v4(address).is_some();
    listed.or_else(|| {
        let net = IpNet::from(IpAddr::V6(address));
        (!is_global).then_some(SpecialBlock { net, use_: "reserved" })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_special(address: &str) -> bool {
        special_block(address.parse().unwrap()).is_some()
    }

    #[test]
    fn special_addresses_are_found() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "100::1",
            "3fff::1",
            "5f00::1",
            "4000::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
        ] {
            assert!(is_special(address), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_not_special() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert!(!is_special(address), "{address}");
        }
    }
}

//! Synthetic addresses: the code connects to them, and the host knows the names that they are for.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first synthetic address of IPv4, in the block for benchmarks.
const FIRST_V4: u32 = 0xc612_0001;

/// The prefix of synthetic addresses of IPv6, in the block for private networks.
const PREFIX_V6: u128 = 0xfd62_656c_6c6a_0000_0000_0000_0000_0000;

/// The most names, below the number of addresses of the block.
const MAX_NAMES: u64 = 100_000;

/// The names that code uses, with their synthetic addresses.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    names: Vec<String>,
    indices: HashMap<String, u32>,
}

impl NameTable {
    /// Returns the synthetic addresses of a name, the same for each call, or `None` if there are too many names.
    pub(crate) fn addresses(&mut self, name: &str, limit: u64) -> Option<[IpAddr; 2]> {
        let index = match self.indices.get(name) {
            Some(index) => *index,
            None => {
                let index = u32::try_from(self.names.len()).ok()?;
                if u64::from(index) >= limit.min(MAX_NAMES) {
                    return None;
                }
                self.names.push(name.to_owned());
                self.indices.insert(name.to_owned(), index);
                index
            }
        };
        let v4 = Ipv4Addr::from(FIRST_V4 + index);
        let v6 = Ipv6Addr::from(PREFIX_V6 + 1 + u128::from(index));
        Some([v4.into(), v6.into()])
    }

    /// Returns the name of a synthetic address.
    pub(crate) fn name_of(&self, address: IpAddr) -> Option<&str> {
        let index = match address.to_canonical() {
            IpAddr::V4(address) => u32::from(address).checked_sub(FIRST_V4)?,
            IpAddr::V6(address) => u32::try_from(u128::from(address).checked_sub(PREFIX_V6 + 1)?).ok()?,
        };
        self.names.get(index as usize).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_stable_and_lead_back_to_their_name() {
        let mut table = NameTable::default();
        let a = table.addresses("a.example", 2).unwrap();
        let b = table.addresses("b.example", 2).unwrap();
        assert_eq!(table.addresses("a.example", 2), Some(a));
        assert_eq!(a[0].to_string(), "198.18.0.1");
        assert_eq!(a[1].to_string(), "fd62:656c:6c6a::1");
        assert!(b.iter().all(|address| table.name_of(*address) == Some("b.example")));
        assert_eq!(table.name_of("::ffff:198.18.0.1".parse().unwrap()), Some("a.example"));
        assert_eq!(table.addresses("c.example", 2), None);
        for address in ["198.18.0.0", "198.18.0.3", "1.1.1.1", "255.255.255.255", "::1", "ffff::1"] {
            assert_eq!(table.name_of(address.parse().unwrap()), None);
        }
    }
}

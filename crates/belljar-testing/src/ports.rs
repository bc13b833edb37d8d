//! Ports for servers that are other processes and cannot choose one themselves.
//!
//! The system gives the port of a listener that has closed to other sockets: to any that binds to port 0, or connects.
//! These ports are below the range from which the system chooses, so that only processes that name them bind to them,
//! and each process of tests begins at another one.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of ports below the system's range that are candidates.
const CANDIDATES: u16 = 20_000;
/// The lowest candidate. Services of the machine are below it.
const LOWEST: u16 = 4_000;
/// The first port that Linux chooses by default.
const DEFAULT_FIRST: u16 = 32_768;
/// The distance between the first candidates of processes whose IDs follow one another.
const STRIDE: usize = 487;

static RANGE: LazyLock<Range<u16>> = LazyLock::new(|| {
    let settings = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range_below(settings.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(DEFAULT_FIRST))
});
static NEXT: LazyLock<AtomicUsize> = LazyLock::new(|| AtomicUsize::new((std::process::id() as usize) * STRIDE));

/// Returns the candidates for a system that chooses ports from `first` on. A system that leaves too few of them chooses
/// from the candidates, too.
fn range_below(first: u16) -> Range<u16> {
    let end = if first < LOWEST + CANDIDATES / 10 { DEFAULT_FIRST } else { first };
    end.saturating_sub(CANDIDATES).max(LOWEST)..end
}

/// Returns a port of the loopback address on which nothing listens, and which this function has not returned before.
///
/// It is for servers that have no `--port 0`, or whose address others must know before they start.
///
/// # Panics
///
/// Panics if all ports are in use.
#[must_use]
pub fn free_port() -> u16 {
    for _ in 0..RANGE.len() {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % RANGE.len();
        let port = RANGE.start + u16::try_from(offset).unwrap();
        if is_free(port) {
            return port;
        }
    }
    panic!("no port of {:?} is free", *RANGE);
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Returns several different ports like [`free_port`].
#[must_use]
pub fn free_ports(count: usize) -> Vec<u16> {
    (0..count).map(|_| free_port()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_differ() {
        let ports = free_ports(50);
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 50);
        for port in ports {
            assert!(RANGE.contains(&port), "{port}");
        }
    }

    #[test]
    fn port_of_a_listener_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
    }

    #[test]
    fn candidates_are_below_the_ports_that_the_system_chooses() {
        assert_eq!(range_below(32_768), 12_768..32_768);
        assert_eq!(range_below(16_000), 4_000..16_000);
        assert_eq!(range_below(1_024), 12_768..32_768);
    }
}

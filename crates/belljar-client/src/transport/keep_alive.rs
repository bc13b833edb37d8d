//! Connections that are kept between the requests to a server, and the detection of servers on this machine that answer
//! slowly on kept ones.
//!
//! A server that writes the head of a response and its body separately, and does not disable Nagle's algorithm (the
//! defaults of axum and of Python's `http.server`), delays the body on a kept connection by 40 ms: it waits for an
//! acknowledgement, which the client's kernel delays. On a new connection the kernel acknowledges at once. A new
//! connection to this machine costs 0.1 ms, so that such servers get one for each request.

use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;

/// The time of a request from which it may have been delayed: the kernel's shortest delay of an acknowledgement. Beyond
/// the maximum another reason is more probable.
const MIN_DELAYED: Duration = Duration::from_millis(38);
const MAX_DELAYED: Duration = Duration::from_millis(200);

/// The time within which the next request must be answered on a new connection for the delay to be due to the kept one.
const MAX_PROMPT: Duration = Duration::from_millis(20);

/// The number of delays, each confirmed by a prompt answer on a new connection, after which no connection is kept.
const DELAYS: u32 = 2;

/// The HTTP clients for one server.
pub(super) struct HttpClients {
    pooled: reqwest::Client,
    /// The client that does not keep connections, for a server on this machine; created when it is first needed.
    fresh: Option<LazyClient>,
    detection: Mutex<Detection>,
}

type LazyClient = LazyLock<Option<reqwest::Client>, fn() -> Option<reqwest::Client>>;

impl HttpClients {
    pub(super) fn new(pooled: reqwest::Client, fresh: Option<fn() -> Option<reqwest::Client>>) -> Self {
        Self { pooled, fresh: fresh.map(LazyLock::new), detection: Mutex::default() }
    }

    /// Returns the client for the next request, and the kind of its connections.
    pub(super) fn next(&self) -> (&reqwest::Client, ConnectionKind) {
        let kind = self.detection.lock().next();
        let fresh = self.fresh.as_ref().filter(|_| kind == ConnectionKind::New);
        match fresh.and_then(|fresh| LazyLock::force(fresh).as_ref()) {
            Some(fresh) => (fresh, ConnectionKind::New),
            None => (&self.pooled, ConnectionKind::Pooled),
        }
    }

    /// Records the time until the first data of a response.
    pub(super) fn record(&self, kind: ConnectionKind, time: Duration) {
        if self.fresh.is_some() {
            self.detection.lock().record(kind, time);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionKind {
    Pooled,
    New,
}

/// The state of the detection.
#[derive(Default)]
struct Detection {
    phase: Phase,
    delays: u32,
}

#[derive(Default, PartialEq)]
enum Phase {
    #[default]
    Keeping,
    /// A response on a kept connection was slow: the next request uses a new one, for comparison.
    Comparing,
    /// The server delays responses on kept connections.
    NotKeeping,
}

impl Detection {
    fn next(&self) -> ConnectionKind {
        if self.phase == Phase::Keeping { ConnectionKind::Pooled } else { ConnectionKind::New }
    }

    fn record(&mut self, kind: ConnectionKind, time: Duration) {
        match (&self.phase, kind) {
            (Phase::Keeping, ConnectionKind::Pooled) if (MIN_DELAYED..=MAX_DELAYED).contains(&time) => {
                self.phase = Phase::Comparing;
            }
            (Phase::Comparing, ConnectionKind::New) => {
                self.delays = if time <= MAX_PROMPT { self.delays + 1 } else { 0 };
                self.phase = if self.delays >= DELAYS { Phase::NotKeeping } else { Phase::Keeping };
                if self.phase == Phase::NotKeeping {
                    tracing::debug!("the server delays responses on kept connections: each request gets a new one");
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records times in milliseconds, each on the kind of connection that is next, and returns these kinds.
    fn kinds(kept: u64, new: u64, count: usize) -> Vec<ConnectionKind> {
        let mut detection = Detection::default();
        let mut kinds = Vec::new();
        for _ in 0..count {
            let kind = detection.next();
            let time = if kind == ConnectionKind::Pooled { kept } else { new };
            detection.record(kind, Duration::from_millis(time));
            kinds.push(kind);
        }
        kinds
    }

    #[test]
    fn server_that_delays_on_kept_connections_gets_new_ones() {
        use ConnectionKind::{New, Pooled};
        assert_eq!(kinds(40, 1, 6), [Pooled, New, Pooled, New, New, New]);
    }

    #[test]
    fn fast_and_slow_servers_keep_their_connections() {
        assert!(kinds(1, 1, 9).iter().all(|kind| *kind == ConnectionKind::Pooled));
        // A tool that takes this long does so on any connection.
        assert!(kinds(45, 45, 9).iter().filter(|kind| **kind == ConnectionKind::Pooled).count() >= 5);
        assert!(kinds(900, 900, 9).iter().all(|kind| *kind == ConnectionKind::Pooled));
    }
}

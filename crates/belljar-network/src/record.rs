//! The record of one request or connection, which is passed on when it is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use belljar_core::ConnectionRecord;

use crate::connections::Connections;
use crate::limits::count;
use crate::policy::Host;

/// The most bytes of a path.
const MAX_PATH: usize = 500;

/// The most bytes of an error.
const MAX_ERROR: usize = 1_000;

/// A record that is being made.
pub(crate) struct RecordGuard {
    connections: Arc<Connections>,
    started: Instant,
    record: ConnectionRecord,
    /// The access came to its end.
    finished: bool,
    /// The access is recorded elsewhere.
    cancelled: bool,
}

impl RecordGuard {
    /// Begins the record of an access that is allowed so far.
    pub(crate) fn new(connections: &Arc<Connections>, host: &Host, port: u16) -> Self {
        let record = ConnectionRecord {
            host: host.to_string(),
            port: Some(port),
            allowed: true,
            rule: connections.policy().rule_name(host, port),
            ..ConnectionRecord::default()
        };
        Self {
            connections: Arc::clone(connections),
            started: Instant::now(),
            record,
            finished: false,
            cancelled: false,
        }
    }

    /// Sets the method and the path, without secrets.
    pub(crate) fn set_request(&mut self, method: &str, target: &str) {
        if self.record.method.is_none() {
            self.connections.requests.fetch_add(1, Ordering::AcqRel);
        }
        let scrubber = &self.connections.network.scrubber;
        self.record.method = Some(method.chars().take(40).collect());
        self.record.path = Some(cut(&scrubber.scrub_text(target), MAX_PATH));
    }

    pub(crate) fn set_rule(&mut self, rule: String) {
        self.record.rule = Some(rule);
    }

    pub(crate) fn set_status(&mut self, status: u16) {
        self.record.status = Some(status);
    }

    pub(crate) fn add_sent(&mut self, bytes: usize) {
        self.record.bytes_sent += bytes as u64;
    }

    pub(crate) fn add_received(&mut self, bytes: usize) {
        self.record.bytes_received += bytes as u64;
    }

    /// Sets the reason of a failure, unless there is one already.
    pub(crate) fn fail(&mut self, reason: &str) {
        if self.record.error.is_none() {
            self.record.error = Some(cut(&self.connections.network.scrubber.scrub_text(reason), MAX_ERROR));
        }
    }

    /// Marks the access as complete.
    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }

    /// Drops the record: the access has others.
    pub(crate) fn cancel(&mut self) {
        self.cancelled = true;
    }

    /// Sets the reason of a refusal.
    pub(crate) fn refuse(&mut self, reason: &str) {
        self.record.allowed = false;
        self.fail(reason);
    }
}

impl Drop for RecordGuard {
    fn drop(&mut self) {
        if !self.cancelled {
            self.pass_on();
        }
        if self.record.method.is_some() {
            self.connections.requests.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl RecordGuard {
    fn pass_on(&mut self) {
        if !self.finished {
            self.fail("the connection was closed before its end");
        }
        let elapsed = self.started.elapsed().as_millis();
        self.record.duration_ms = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let limit = self.connections.limits().refusals;
        if self.record.allowed || count(&self.connections.counts.refusals, 1, limit) {
            self.connections.record(&self.record);
        }
    }
}

fn cut(text: &str, length: usize) -> String {
    text.get(..text.floor_char_boundary(length)).unwrap_or_default().to_owned()
}

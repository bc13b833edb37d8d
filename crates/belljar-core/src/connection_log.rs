//! The records of the connections of one run or cell.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::connection::ConnectionRecord;

/// The maximum number of records of one run or cell.
const MAX_RECORDS: usize = 200;

/// Collects the connections of a run or cell, from any thread.
#[derive(Debug, Default)]
pub struct ConnectionLog(Mutex<RecordedConnections>);

/// The connections of a run or cell that were recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecordedConnections {
    /// The first connections and HTTP requests, in the order in which they ended.
    pub connections: Vec<ConnectionRecord>,
    /// The number of connections that were not recorded.
    #[serde(rename = "omitted_connections", default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ConnectionLog {
    /// Adds a record.
    pub fn push(&self, record: ConnectionRecord) {
        let mut recorded = self.0.lock();
        if recorded.connections.len() < MAX_RECORDS {
            recorded.connections.push(record);
        } else {
            recorded.omitted += 1;
        }
    }

    /// Returns the records so far, and forgets them.
    pub fn take(&self) -> RecordedConnections {
        std::mem::take(&mut self.0.lock())
    }
}

impl RecordedConnections {
    /// Returns the records within a size of JSON in bytes: refused and failed ones first, then the others.
    #[must_use]
    pub fn within(mut self, max_bytes: usize) -> Self {
        let all = self.connections.len();
        let mut order: Vec<(usize, ConnectionRecord)> = self.connections.into_iter().enumerate().collect();
        order.sort_by_key(|(at, record)| (record.error.is_none(), *at));
        let mut bytes = 0;
        order.retain(|(_, record)| {
            bytes += serde_json::to_string(record).map_or(0, |text| text.len());
            bytes <= max_bytes
        });
        order.sort_by_key(|(at, _)| *at);
        self.omitted += (all - order.len()) as u64;
        self.connections = order.into_iter().map(|(_, record)| record).collect();
        self
    }

    /// Returns whether the code used no network.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.omitted == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_connections_are_reported_before_others() {
        let log = ConnectionLog::default();
        for number in 0..250 {
            let error = (number == 150).then(|| "refused".to_owned());
            log.push(ConnectionRecord { host: format!("host{number}"), error, ..ConnectionRecord::default() });
        }
        let all = log.take();
        assert_eq!((all.connections.len(), all.omitted), (200, 50));
        assert!(log.take().is_empty());
        let within = all.within(400);
        let hosts: Vec<&str> = within.connections.iter().map(|record| record.host.as_str()).collect();
        assert_eq!(hosts.last(), Some(&"host150"));
        assert_eq!(within.connections.len() as u64 + within.omitted, 250);
    }
}

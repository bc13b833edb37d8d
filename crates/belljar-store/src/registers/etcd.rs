//! Registers as keys of etcd: linearizable reads, transactions on revisions, and leases.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::etcd_client::{EtcdClient, Failure};
use super::{Answer, Entry, RegisterValue, Version, unstamp};
use crate::address::{EtcdUrl, Variables};
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::names;
use crate::objects::Counters;
use crate::protocol::NodeId;

/// The time for a transaction.
const WRITE_TIMEOUT: Duration = Duration::from_millis(2500);
/// The number of keys on a page of a listing.
const PAGE_SIZE: usize = 500;

/// The keys under the prefix of an etcd cluster.
pub(crate) struct Etcd {
    client: EtcdClient,
    prefix: String,
}

impl Etcd {
    pub(crate) fn open(url: &EtcdUrl, variables: &Variables, counters: Arc<Counters>) -> Result<Self, StoreError> {
        Ok(Self { client: EtcdClient::new(url, variables, counters)?, prefix: format!("{}/", url.prefix) })
    }

    fn key(&self, name: &str) -> String {
        STANDARD.encode(format!("{}{name}", self.prefix))
    }

    pub(super) async fn read(&self, name: &str, deadline: Deadline) -> Result<Option<RegisterValue>, StoreError> {
        let answer = self.client.read("/v3/kv/range", &json!({ "key": self.key(name) }), deadline).await?;
        match answer["kvs"].get(0) {
            Some(found) => decode(name, found).map(Some),
            None if answer["header"].is_object() => Ok(None),
            None => Err(StoreError::unavailable(format!("read {name}"), "the answer is not etcd's")),
        }
    }

    pub(super) async fn write(
        &self,
        name: &str,
        version: Option<&Version>,
        bytes: &Bytes,
        guard: Option<NodeId>,
        deadline: Deadline,
    ) -> Answer {
        let revision = match version {
            None => 0,
            Some(Version::Revision(revision)) => *revision,
            Some(Version::Object(_)) => {
                return Answer::Refused(StoreError::Invalid("a version of the store for etcd".to_owned()));
            }
        };
        let key = self.key(name);
        let mut compare =
            vec![json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() })];
        if let Some(node) = guard {
            let key = self.key(&names::node(node));
            compare.push(json!({ "key": key, "target": "VERSION", "result": "GREATER", "version": "0" }));
        }
        let body = json!({
            "compare": compare,
            "success": [{ "requestPut": { "key": key, "value": STANDARD.encode(bytes) } }],
            "failure": [{ "requestRange": { "key": key, "keys_only": true } }],
        });
        let operation = || format!("write {name}");
        if deadline.is_over() {
            return Answer::Unknown(StoreError::unavailable(operation(), "no time is left"));
        }
        match self.client.write("/v3/kv/txn", &body, WRITE_TIMEOUT).await {
            Ok(answer) if answer["succeeded"] == true => match number(&answer["header"]["revision"]) {
                Some(revision) => Answer::Written(Version::Revision(revision)),
                None => Answer::Unknown(StoreError::unavailable(operation(), "the answer has no revision")),
            },
            Ok(answer) if answer["header"].is_object() => {
                let found = &answer["responses"][0]["response_range"]["kvs"][0]["mod_revision"];
                match guard {
                    // The record is the expected one, so that it is the lease that has ended.
                    Some(node) if number(found).unwrap_or(0) == revision => {
                        Answer::Refused(StoreError::Fenced { node })
                    }
                    _ => Answer::Conflict,
                }
            }
            Ok(_) => Answer::Unknown(StoreError::unavailable(operation(), "the answer is not etcd's")),
            Err(Failure::Refused(reason)) => Answer::Refused(StoreError::Refused { operation: operation(), reason }),
            Err(Failure::Harmless(reason) | Failure::Unknown(reason)) => {
                Answer::Unknown(StoreError::unavailable(operation(), reason))
            }
        }
    }

    pub(super) async fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.client.read("/v3/kv/deleterange", &json!({ "key": self.key(name) }), Deadline::new()).await.map(drop)
    }

    pub(super) async fn list(&self, folder: &str) -> Result<Vec<Entry>, StoreError> {
        let end = STANDARD.encode(range_end(&format!("{}{folder}", self.prefix)));
        let mut start = format!("{}{folder}", self.prefix).into_bytes();
        let mut entries = Vec::new();
        loop {
            let body = json!({ "key": STANDARD.encode(&start), "range_end": end, "limit": PAGE_SIZE.to_string() });
            let answer = self.client.read("/v3/kv/range", &body, Deadline::for_size(PAGE_SIZE << 14)).await?;
            let none = Vec::new();
            let found = answer["kvs"].as_array().unwrap_or(&none);
            for entry in found {
                let key = bytes(&entry["key"]).unwrap_or_default();
                start = [key.as_slice(), b"\0"].concat();
                let name = String::from_utf8_lossy(&key).into_owned();
                let Some(name) = name.strip_prefix(&self.prefix) else { continue };
                let stamped = decode(name, entry)?;
                let tag = stamped.write.to_string();
                entries.push(Entry { name: name.to_owned(), modified: None, tag, stamped: Some(stamped) });
            }
            if answer["more"] != true || found.is_empty() {
                return Ok(entries);
            }
        }
    }

    /// Grants a lease and writes the record of a replica with it. Returns the lease.
    pub(crate) async fn join(&self, node: NodeId, record: &Bytes, length: Duration) -> Result<i64, StoreError> {
        let deadline = Deadline::new();
        let seconds = length.as_millis().div_ceil(1000).max(1);
        let operation = "obtain a lease of etcd";
        let granted = self.client.read("/v3/lease/grant", &json!({ "TTL": seconds.to_string() }), deadline).await?;
        let id = number(&granted["ID"]).ok_or_else(|| StoreError::unavailable(operation, "the answer has no lease"))?;
        let put = json!({
            "key": self.key(&names::node(node)), "value": STANDARD.encode(record), "lease": id.to_string(),
        });
        let answer = self.client.read("/v3/kv/put", &put, deadline).await?;
        if answer["is_missing"] == true {
            return Err(StoreError::unavailable(operation, "it ended before it was used"));
        }
        Ok(id)
    }

    /// Renews a lease. Returns false if it has ended, and `None` if that is unknown.
    pub(crate) async fn renew(&self, lease: i64, limit: Duration) -> Option<bool> {
        match self.client.write("/v3/lease/keepalive", &json!({ "ID": lease.to_string() }), limit).await {
            Ok(answer) if answer["is_missing"] == true => Some(false),
            Ok(answer) if answer["result"].is_object() => {
                Some(number(&answer["result"]["TTL"]).is_some_and(|seconds| seconds > 0))
            }
            _ => None,
        }
    }

    /// Ends a lease.
    pub(crate) async fn revoke(&self, lease: i64) -> Result<(), StoreError> {
        let body = json!({ "ID": lease.to_string() });
        self.client.read("/v3/lease/revoke", &body, Deadline::within(Duration::from_secs(5))).await.map(drop)
    }

    /// Returns a text that identifies the cluster and the prefix.
    pub(crate) async fn identity(&self) -> Result<String, StoreError> {
        let answer = self.client.read("/v3/kv/range", &json!({ "key": self.key("probe") }), Deadline::new()).await?;
        let id = answer["header"]["cluster_id"].as_str().unwrap_or_default();
        Ok(format!("etcd {id} {}", self.prefix))
    }

    /// Returns the version of each member, or why it does not answer.
    pub(crate) async fn versions(&self) -> Vec<(String, Result<String, String>)> {
        self.client.versions().await
    }
}

fn decode(name: &str, entry: &Value) -> Result<RegisterValue, StoreError> {
    let revision = number(&entry["mod_revision"]).ok_or_else(|| StoreError::damaged(name, "it has no revision"))?;
    let value = bytes(&entry["value"]).ok_or_else(|| StoreError::damaged(name, "its value is not base64"))?;
    unstamp(name, value.into(), Version::Revision(revision))
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str()?).ok()
}

/// Returns a number of 64 bits, which the gateway sends as a string.
fn number(value: &Value) -> Option<i64> {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_i64())
}

/// Returns the first key after all keys with a prefix that ends with an ASCII character.
fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

//! The formats of stored records: `stored/` has records and objects of each kind as an earlier version has written
//! them, which is what a replica finds after an upgrade. Replicas of both versions run during the upgrade, so that the
//! earlier one also has to read what this one writes.
//!
//! Do not change the files when a format changes: add others, and keep reading these.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path as FilePath;
use std::sync::Arc;

use belljar_store::object_store::memory::InMemory;
use belljar_store::object_store::path::Path;
use belljar_store::object_store::{ObjectStoreExt as _, PutPayload};
use belljar_store::protocol::NodeId;
use belljar_store::{
    Activation, Changes, Cluster, ClusterUrl, Digest, Ownership, Replica, ReplicaOptions, SessionKey, Variables,
};
use serde_json::{Value, json};

/// The replica that owns the session `owned`, whose lease has ended, and one whose lease runs.
const GONE: u128 = 0x0000_abc0_0000_0000_0000_0000_0000_000a;
const ALIVE: u128 = 0x0000_abc0_0000_0000_0000_0000_0000_000b;

/// Paths to all fields of a session's record.
const FIELDS: [&str; 18] = [
    "/write",
    "/status",
    "/status/is",
    "/epoch",
    "/sequence",
    "/recent",
    "/recent/0",
    "/payload/facts/owner",
    "/payload/facts/last_used",
    "/payload/facts/expires",
    "/payload/facts/images/0",
    "/payload/facts/metadata",
    "/payload/blobs",
    "/payload/parts",
    "/payload/parts/state/0/blob",
    "/payload/parts/state/0/offset",
    "/payload/parts/state/0/length",
    "/payload/parts/state/0/digest",
];

/// Copies the files of a folder into a store.
async fn copy(folder: &FilePath, prefix: &Path, store: &InMemory) {
    let mut folders = vec![(folder.to_owned(), prefix.clone())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = Path::from_iter(prefix.parts().chain(Path::from(name.as_str()).parts()));
            if entry.file_type().unwrap().is_dir() {
                folders.push((entry.path(), path));
            } else {
                store.put(&path, PutPayload::from(fs::read(entry.path()).unwrap())).await.unwrap();
            }
        }
    }
}

/// Returns a store with what the earlier version has stored, and a replica of this version.
async fn upgrade() -> (Arc<InMemory>, Replica) {
    let store = Arc::new(InMemory::new());
    let folder = FilePath::new("tests/stored");
    copy(folder, &Path::from("prefix"), &store).await;
    let cluster =
        Cluster::with_object_store(store.clone(), "prefix", &ClusterUrl::Store, &Variables::default()).unwrap();
    cluster.probe().await.unwrap();
    let replica = Replica::join(&cluster, "http://new", ReplicaOptions::default()).await.unwrap();
    (store, replica)
}

async fn activate(replica: &Replica, id: &str) -> Ownership {
    match replica.activate(SessionKey::from_id(id)).await.unwrap() {
        Activation::Owned(ownership) => ownership,
        other => panic!("{id}: {other:?}"),
    }
}

#[tokio::test]
async fn sessions_of_an_earlier_version_are_activated() {
    let (_, replica) = upgrade().await;
    let listed = replica.cluster().sessions().list().await.unwrap();
    assert_eq!(listed.len(), 3, "{listed:?}");

    let session = activate(&replica, "asleep").await;
    assert_eq!((session.epoch().await, session.sequence().await), (3, 3));
    let facts = session.facts().await;
    let image = Digest::from_content(b"the image of a session");
    assert_eq!((facts.owner.as_deref(), facts.last_used), (Some("alice"), 1_760_000_000_000));
    assert_eq!((facts.expires, facts.images), (Some(1_860_000_000_000), vec![image]));
    assert_eq!(facts.metadata, json!({ "title": "first" }));
    let parts = session.read_all().await.unwrap();
    assert_eq!(parts.keys().collect::<Vec<_>>(), ["cells.jsonl", "empty", "state"]);
    assert_eq!((&parts["state"][..], &parts["empty"][..]), (&b"the state"[..], &b""[..]));
    assert_eq!(&parts["cells.jsonl"][..], b"cell 1\ncell 2\n");

    // Its owner has lost its lease.
    assert_eq!(activate(&replica, "owned").await.epoch().await, 2);
    let deleted = replica.activate(SessionKey::from_id("deleted")).await.unwrap();
    assert!(matches!(deleted, Activation::Missing), "{deleted:?}");
}

#[tokio::test]
async fn fields_of_a_later_version_are_ignored() {
    let (_, replica) = upgrade().await;
    let session = activate(&replica, "later").await;
    assert_eq!(session.epoch().await, 8);
    session.release(Some(Changes::new().put("state", "1"))).await.unwrap();
    assert_eq!(activate(&replica, "later").await.read("state").await.unwrap().unwrap(), "1");
}

#[tokio::test]
async fn leases_images_and_shared_records_of_an_earlier_version_are_read() {
    let (_, replica) = upgrade().await;
    assert_eq!(replica.find(NodeId(ALIVE)).await.unwrap().as_deref(), Some("http://10.0.0.8:3001"));
    assert_eq!(replica.find(NodeId(GONE)).await.unwrap(), None);
    let images = replica.cluster().images();
    for image in [&b"the image of a session"[..], b"an image without a session"] {
        assert_eq!(images.get(Digest::from_content(image)).await.unwrap().unwrap(), image);
    }
    let records = replica.cluster().records("runs").unwrap();
    assert_eq!(records.list("").await.unwrap(), ["run-1"]);
    assert_eq!(records.get("run-1").await.unwrap().unwrap().value, "a record");
    let content = "run-1/0000abc000000000000000000000001f";
    assert_eq!(records.content(content, 9).await.unwrap().unwrap(), "a content");
}

#[tokio::test]
async fn an_earlier_version_finds_the_fields_that_it_needs() {
    let (store, replica) = upgrade().await;
    let path = Path::from(format!("prefix/sessions/{}", SessionKey::from_id("asleep")));
    let before = record(&store, &path).await;
    let session = activate(&replica, "asleep").await;
    session.release(Some(Changes::new().put("state", "another"))).await.unwrap();
    let after = record(&store, &path).await;
    assert_ne!(before["write"], after["write"]);
    for field in FIELDS {
        let kind = |record: &Value| record.pointer(field).map(kind_of);
        assert!(kind(&before).is_some(), "{field}: {before}");
        assert_eq!(kind(&before), kind(&after), "{field}: {after}");
    }
}

/// Reads the record of a session: JSON after a line with the ID of its write.
async fn record(store: &InMemory, path: &Path) -> Value {
    let bytes = store.get(path).await.unwrap().bytes().await.unwrap();
    let text = std::str::from_utf8(&bytes).unwrap();
    let (write, value) = text.split_once('\n').unwrap();
    let record: Value = serde_json::from_str(value).unwrap();
    assert_eq!(record["write"], write);
    record
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

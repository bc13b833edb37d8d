//! Tests of the store with complete, damaged and lost snapshots.

use super::*;

fn snapshot() -> KernelSnapshot {
    KernelSnapshot { metadata: serde_json::json!({ "a": 1 }), data: b"pages".repeat(10_000) }
}

fn stored() -> (tempfile::TempDir, Store, SessionId) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let id = SessionId::random().unwrap();
    store.write(&id, None, &snapshot(), Duration::from_secs(7)).unwrap().unwrap().sync().unwrap();
    (directory, store, id)
}

/// Writes a snapshot with this time of last use.
fn write(store: &Store, id: &SessionId, seconds: u64) -> PendingSync {
    store.write(id, None, &snapshot(), Duration::from_secs(seconds)).unwrap().unwrap()
}

#[test]
fn snapshot_is_compressed_and_read_back() {
    let (directory, store, id) = stored();
    let read = store.read(&id).unwrap();
    assert_eq!((read.snapshot.data, read.last_used), (snapshot().data, Duration::from_secs(7)));
    assert_eq!(store.header(&id).unwrap().last_used, 7000);
    assert!(fs::metadata(directory.path().join(id.as_str()).join(STATE)).unwrap().len() < 2000);
    assert_eq!(store.list().unwrap(), std::slice::from_ref(&id));
    store.remove(&id).unwrap();
    assert!(matches!(store.read(&id), Err(StoreError::Missing)));
}

#[test]
fn snapshot_with_a_wrong_or_missing_byte_is_refused() {
    let (directory, store, id) = stored();
    let path = directory.path().join(id.as_str()).join(STATE);
    let complete = fs::read(&path).unwrap();
    for at in 0..complete.len() {
        let mut damaged = complete.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(matches!(store.read(&id), Err(StoreError::Damaged(_))), "byte {at}");
        fs::write(&path, &complete[..at]).unwrap();
        assert!(matches!(store.read(&id), Err(StoreError::Damaged(_))), "cut at {at}");
    }
}

#[test]
fn lost_snapshot_leaves_the_previous_one() {
    let (directory, store, id) = stored();
    let path = |name| directory.path().join(id.as_str()).join(name);
    let last_used = || store.read(&id).unwrap().last_used.as_secs();
    // The process reads a snapshot that is not synced.
    let pending_sync = write(&store, &id, 8);
    assert_eq!(last_used(), 8);
    // Simulates a power failure: a file that was renamed before its sync is empty.
    fs::write(path(STATE), b"").unwrap();
    assert_eq!(store.header(&id).unwrap().last_used, 7000);
    assert!(store.export(&id).is_ok());
    assert_eq!(last_used(), 7);
    drop(pending_sync);
    // The restored snapshot is kept until the next one is synced.
    let pending_sync = write(&store, &id, 9);
    fs::write(path(STATE), &fs::read(path(STATE)).unwrap()[..100]).unwrap();
    assert_eq!(last_used(), 7);
    drop(pending_sync);
    write(&store, &id, 10).sync().unwrap();
    assert_eq!(last_used(), 10);
    assert!(!path(OLD_STATE).exists());
}

#[test]
fn next_write_syncs_a_snapshot_that_is_not_synced() {
    let (directory, store, id) = stored();
    let old = directory.path().join(id.as_str()).join(OLD_STATE);
    drop(write(&store, &id, 8));
    assert!(old.exists());
    drop(write(&store, &id, 9));
    assert_eq!(decode(&fs::read(&old).unwrap()).unwrap().last_used.as_secs(), 8);
    assert_eq!(store.read(&id).unwrap().last_used.as_secs(), 9);
}

#[test]
fn lease_is_exclusive() {
    let (_directory, store, id) = stored();
    let lease = store.lease(&id, false).unwrap();
    assert!(matches!(store.lease(&id, false), Err(StoreError::InUse)));
    drop(lease);
    store.lease(&id, false).unwrap();
    assert!(matches!(store.lease(&SessionId::random().unwrap(), false), Err(StoreError::Missing)));
}

#[test]
fn incomplete_line_of_the_cell_file_is_skipped() {
    let (directory, store, id) = stored();
    store.append_cell(&id, &serde_json::json!({ "n": 1 })).unwrap();
    let mut file = OpenOptions::new().append(true).open(directory.path().join(id.as_str()).join(CELLS)).unwrap();
    file.write_all(b"{\"n\": ").unwrap();
    assert_eq!(store.cells(&id).unwrap(), [serde_json::json!({ "n": 1 })]);
}

//! States that are written, damaged, lost and mended.

use super::*;

fn saved() -> Saved {
    Saved { about: serde_json::json!({ "a": 1 }), body: b"pages".repeat(10_000) }
}

fn stored() -> (tempfile::TempDir, Store, SessionId) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let id = SessionId::random().unwrap();
    store.write(&id, &saved(), Duration::from_secs(7)).unwrap().unwrap().settle().unwrap();
    (directory, store, id)
}

/// A state that says when it was used.
fn write(store: &Store, id: &SessionId, seconds: u64) -> Unsettled {
    store.write(id, &saved(), Duration::from_secs(seconds)).unwrap().unwrap()
}

#[test]
fn what_is_written_is_read_and_small() {
    let (directory, store, id) = stored();
    let read = store.read(&id).unwrap();
    assert_eq!((read.saved.body, read.used), (saved().body, Duration::from_secs(7)));
    assert_eq!(store.head(&id).unwrap().used, 7000);
    assert!(fs::metadata(directory.path().join(id.as_str()).join(STATE)).unwrap().len() < 2000);
    assert_eq!(store.list().unwrap(), std::slice::from_ref(&id));
    store.remove(&id).unwrap();
    assert!(matches!(store.read(&id), Err(StoreError::Missing)));
}

#[test]
fn a_state_in_which_a_byte_is_wrong_or_missing_is_refused() {
    let (directory, store, id) = stored();
    let path = directory.path().join(id.as_str()).join(STATE);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(matches!(store.read(&id), Err(StoreError::Damaged(_))), "byte {at}");
        fs::write(&path, &whole[..at]).unwrap();
        assert!(matches!(store.read(&id), Err(StoreError::Damaged(_))), "cut at {at}");
    }
}

#[test]
fn a_state_that_did_not_reach_the_disk_leaves_the_one_before() {
    let (directory, store, id) = stored();
    let path = |name| directory.path().join(id.as_str()).join(name);
    let used = || store.read(&id).unwrap().used.as_secs();
    // It is the process's own as soon as it is written.
    let unsettled = write(&store, &id, 8);
    assert_eq!(used(), 8);
    // What a power failure leaves of a file that was renamed before the disk had it.
    fs::write(path(STATE), b"").unwrap();
    assert_eq!(store.head(&id).unwrap().used, 7000);
    assert!(store.export(&id).is_ok());
    assert_eq!(used(), 7);
    drop(unsettled);
    // The one that was mended is kept as long as the next one is not settled.
    let unsettled = write(&store, &id, 9);
    fs::write(path(STATE), &fs::read(path(STATE)).unwrap()[..100]).unwrap();
    assert_eq!(used(), 7);
    drop(unsettled);
    write(&store, &id, 10).settle().unwrap();
    assert_eq!(used(), 10);
    assert!(!path(OLD_STATE).exists());
}

#[test]
fn what_a_process_did_not_settle_is_settled_by_the_next() {
    let (directory, store, id) = stored();
    let old = directory.path().join(id.as_str()).join(OLD_STATE);
    drop(write(&store, &id, 8));
    assert!(old.exists());
    drop(write(&store, &id, 9));
    assert_eq!(decode(&fs::read(&old).unwrap()).unwrap().used.as_secs(), 8);
    assert_eq!(store.read(&id).unwrap().used.as_secs(), 9);
}

#[test]
fn one_at_a_time_has_the_lease() {
    let (_directory, store, id) = stored();
    let lease = store.lease(&id, false).unwrap();
    assert!(matches!(store.lease(&id, false), Err(StoreError::InUse)));
    drop(lease);
    store.lease(&id, false).unwrap();
    assert!(matches!(store.lease(&SessionId::random().unwrap(), false), Err(StoreError::Missing)));
}

#[test]
fn a_line_that_was_cut_off_is_left_out() {
    let (directory, store, id) = stored();
    store.record(&id, &serde_json::json!({ "n": 1 })).unwrap();
    let mut file = OpenOptions::new().append(true).open(directory.path().join(id.as_str()).join(CELLS)).unwrap();
    file.write_all(b"{\"n\": ").unwrap();
    assert_eq!(store.records(&id).unwrap(), [serde_json::json!({ "n": 1 })]);
}

//! Tests of the store with complete, damaged, lost and planted files.

use std::fs::OpenOptions;
#[cfg(unix)]
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn snapshot() -> KernelSnapshot {
    KernelSnapshot {
        metadata: serde_json::json!({ "a": 1 }),
        data: b"pages".repeat(10_000),
        is_copy: false,
        base: None,
    }
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
    assert_eq!(store.header(&id).unwrap().last_used(), Duration::from_secs(7));
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
    assert_eq!(store.header(&id).unwrap().last_used(), Duration::from_secs(7));
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
    assert_eq!(state_file::decode(&fs::read(&old).unwrap(), &id).unwrap().last_used.as_secs(), 8);
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

/// Returns the path of a file of a session.
fn path(directory: &tempfile::TempDir, id: &SessionId, name: &str) -> PathBuf {
    directory.path().join(id.as_str()).join(name)
}

/// Returns whether an operation was refused because of the type of this file.
#[cfg(unix)]
fn is_wrong_type<T>(result: Result<T, StoreError>, wanted: &str, wanted_type: &str) -> bool {
    matches!(result, Err(StoreError::WrongType { name, found }) if name == wanted && found == wanted_type)
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    let (directory, store, id) = stored();
    let victim = directory.path().join("victim");
    let unharmed = || fs::read_to_string(&victim).unwrap() == "unharmed";
    fs::write(&victim, "unharmed").unwrap();
    symlink(&victim, path(&directory, &id, NEW_STATE)).unwrap();
    write(&store, &id, 8).sync().unwrap();
    assert!(unharmed(), "the new state was written to the target of a link");
    assert_eq!(store.read(&id).unwrap().last_used.as_secs(), 8);
    symlink(&victim, path(&directory, &id, CELLS)).unwrap();
    let cell = serde_json::json!({ "n": 1 });
    assert!(is_wrong_type(store.append_cell(&id, &cell), CELLS, "a symbolic link") && unharmed());
    assert!(is_wrong_type(store.cells(&id), CELLS, "a symbolic link"));
    assert!(is_wrong_type(store.export(&id), CELLS, "a symbolic link"));
    symlink(&victim, path(&directory, &id, LEASE)).unwrap();
    assert!(is_wrong_type(store.lease(&id, true), LEASE, "a symbolic link") && unharmed());
    fs::rename(path(&directory, &id, STATE), directory.path().join("moved")).unwrap();
    symlink("../moved", path(&directory, &id, STATE)).unwrap();
    assert!(is_wrong_type(store.read(&id), STATE, "a symbolic link"));
    assert!(is_wrong_type(store.header(&id), STATE, "a symbolic link"));
    let other = SessionId::random().unwrap();
    symlink(id.as_str(), directory.path().join(other.as_str())).unwrap();
    assert!(is_wrong_type(store.header(&other), "directory", "a symbolic link"));
    assert!(is_wrong_type(store.lease(&other, true), "directory", "a symbolic link"));
    store.remove(&other).unwrap();
    assert!(path(&directory, &id, LEASE).symlink_metadata().is_ok(), "the target of a link was deleted");
}

#[cfg(unix)]
#[test]
fn files_of_other_types_are_refused_without_blocking() {
    let (directory, store, id) = stored();
    for name in [STATE, LEASE, CELLS] {
        let _ = fs::remove_file(path(&directory, &id, name));
        assert!(std::process::Command::new("mkfifo").arg(path(&directory, &id, name)).status().unwrap().success());
    }
    assert!(is_wrong_type(store.read(&id), STATE, "a FIFO"));
    assert!(is_wrong_type(store.header(&id), STATE, "a FIFO"));
    assert!(is_wrong_type(store.lease(&id, false), LEASE, "a FIFO"));
    assert!(is_wrong_type(store.cells(&id), CELLS, "a FIFO"));
    assert!(is_wrong_type(store.append_cell(&id, &serde_json::json!({})), CELLS, "a FIFO"));
    assert_eq!(store.list().unwrap(), std::slice::from_ref(&id), "the error must be found");
    fs::create_dir(path(&directory, &id, NEW_STATE)).unwrap();
    assert!(is_wrong_type(store.write(&id, None, &snapshot(), Duration::ZERO), NEW_STATE, "a directory"));
}

#[test]
fn state_of_another_session_is_refused() {
    let (directory, store, id) = stored();
    let other = SessionId::random().unwrap();
    write(&store, &other, 9).sync().unwrap();
    fs::copy(path(&directory, &other, STATE), path(&directory, &id, STATE)).unwrap();
    assert!(matches!(store.read(&id), Err(StoreError::OtherSession)));
    assert!(matches!(store.header(&id), Err(StoreError::OtherSession)));
    assert!(matches!(store.export(&id), Err(StoreError::OtherSession)));
    // A session that is moved on purpose is bound to its new ID.
    let (state, cells) = store.export(&other).unwrap();
    store.import(&id, &state, &cells).unwrap();
    assert_eq!(store.read(&id).unwrap().last_used.as_secs(), 9);
    assert!(store.read(&other).is_ok());
}

#[test]
fn state_of_the_previous_version_is_bound_by_the_next_write() {
    let (directory, store, id) = stored();
    let state = path(&directory, &id, STATE);
    let bound = fs::read(&state).unwrap();
    fs::write(&state, state_file::tests::unbound(&bound)).unwrap();
    assert_eq!(store.header(&id).unwrap().last_used(), Duration::from_secs(7));
    assert_eq!(store.read(&id).unwrap().snapshot.data, snapshot().data);
    write(&store, &id, 7).sync().unwrap();
    assert_eq!(fs::read(&state).unwrap(), bound);
}

#[cfg(unix)]
#[test]
fn files_are_accessible_to_their_owner_only() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("data");
    let store = Store::open(&root).unwrap();
    let id = SessionId::random().unwrap();
    let _lease = store.lease(&id, true).unwrap();
    write(&store, &id, 1).sync().unwrap();
    // Leaves the previous state.
    drop(write(&store, &id, 2));
    store.append_cell(&id, &serde_json::json!({})).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let session = root.join(id.as_str());
    assert_eq!((mode(&root), mode(&session)), (0o700, 0o700));
    for name in [STATE, OLD_STATE, LEASE, CELLS] {
        assert_eq!(mode(&session.join(name)), 0o600, "{name}");
    }
}

#[test]
fn file_beyond_every_limit_is_refused_unread() {
    let (directory, store, id) = stored();
    let huge = OpenOptions::new().write(true).open(path(&directory, &id, STATE)).unwrap();
    huge.set_len(1 << 43).unwrap();
    assert!(matches!(store.read(&id), Err(StoreError::Damaged("it is too long"))));
}

#[cfg(unix)]
#[test]
fn links_in_place_of_bases_are_not_followed() {
    let elsewhere = tempfile::tempdir().unwrap();
    let (outside, name) = (elsewhere.path().join("0123abcd"), "0123abcd");
    fs::create_dir(&outside).unwrap();

    let (directory, store, _id) = stored();
    symlink(elsewhere.path(), directory.path().join("bases")).unwrap();
    let refused = store.clean_up();
    assert!(matches!(refused, Err(StoreError::WrongType { found: "a symbolic link", .. })), "{refused:?}");
    assert!(store.bases().unwrap().find(name).is_none());
    assert!(outside.is_dir());

    let (directory, store, _id) = stored();
    let bases = directory.path().join("bases");
    fs::create_dir(&bases).unwrap();
    symlink(&outside, bases.join(name)).unwrap();
    assert!(store.bases().unwrap().find(name).is_none());
    fs::remove_file(bases.join(name)).unwrap();
    fs::create_dir(bases.join(name)).unwrap();
    assert!(store.bases().unwrap().find(name).is_some());
    store.clean_up().unwrap();
    assert!(!bases.join(name).exists());
}

#[test]
fn waiting_run_of_an_earlier_build_has_no_origin() {
    let info = serde_json::json!({
        "id": "0123456789abcdef", "code": "1", "arguments": null, "began": 1, "is_new_session": false,
    });
    let earlier = serde_json::json!({
        "info": info, "questions": [], "wake_at": null, "calls": null, "has_sent_calls": false, "files": [],
    });
    let run = waiting::parse_run(Some(earlier.clone())).unwrap();
    assert!(run.origin.is_empty());
    assert_eq!(serde_json::to_value(&run).unwrap().get("origin"), None);
    let mut later = earlier;
    later["origin"] = serde_json::json!({ "protocol": "admin", "traceparent": "not valid", "added": "later" });
    let run = waiting::parse_run(Some(later)).unwrap();
    assert_eq!(serde_json::to_value(&run.origin).unwrap()["protocol"], "admin");
}

//! Failures between the steps of ownership, clean-up, and the records of runs, with a store in memory.

use belljar_core::kernel::KernelSnapshot;
use belljar_store::{ClusterUrl, CommitError, HeaderCache, Variables};
use serde_json::{Value, json};

use super::*;
use crate::runs::{Run, RunInfo, RunOutcome, RunState};
use crate::store::{Store, StoreError};

const HOUR: Duration = Duration::from_secs(3600);
/// A time after which sessions expire in a test.
const BRIEF: Duration = Duration::from_millis(50);

fn join(session_timeout: Duration) -> (Arc<Cluster>, Store) {
    let cluster = Cluster::join(ClusterOptions {
        store: "memory:///tests".parse().unwrap(),
        coordinator: ClusterUrl::Store,
        variables: Variables::default(),
        address: "http://tests".to_owned(),
        durability: Durability::Store,
        session_timeout,
        run_ttl: HOUR,
        max_wait: HOUR,
    });
    let cluster = Arc::new(cluster.unwrap());
    let store = Store::in_cluster(cluster.clone()).unwrap();
    (cluster, store)
}

/// Creates a session that is active.
fn create(cluster: &Cluster, store: &Store) -> SessionId {
    let id = SessionId::random().unwrap();
    let snapshot = KernelSnapshot { metadata: json!({}), data: b"data".to_vec(), is_copy: false, base: None };
    store.write(&id, None, &snapshot, Duration::ZERO).unwrap().unwrap().sync().unwrap();
    cluster.commit(store, &id).unwrap();
    assert!(cluster.owns(&id));
    id
}

fn key(id: &SessionId) -> SessionKey {
    SessionKey::from_id(id.as_str())
}

/// Returns whether a session has an owner by its record, and `None` if it does not exist.
fn has_owner(cluster: &Cluster, id: &SessionId) -> Option<bool> {
    let header = wait(&cluster.handle, cluster.services.sessions().header(key(id))).unwrap();
    header.map(|header| header.owner.is_some())
}

fn activate(cluster: &Cluster, store: &Store, id: &SessionId) -> Result<Place, StoreError> {
    wait(&cluster.handle, cluster.activate(store, id, false))
}

fn clean_up(cluster: &Cluster) {
    wait(&cluster.handle, cluster.clean_up(&mut HeaderCache::default()));
}

#[test]
fn session_that_cannot_be_fetched_is_given_up() {
    let (cluster, store) = join(HOUR);
    let id = create(&cluster, &store);
    let directory = std::fs::read_link(store.directory(&id).unwrap().path()).unwrap();
    assert!(cluster.release(&store, &id, None, || false).unwrap());
    // In the way of its directory.
    std::fs::write(&directory, "").unwrap();
    assert!(activate(&cluster, &store, &id).is_err());
    assert_eq!((cluster.owns(&id), has_owner(&cluster, &id)), (false, Some(false)));
    std::fs::remove_file(&directory).unwrap();
    assert_eq!(activate(&cluster, &store, &id).unwrap(), Place::Here);
    assert!(store.header(&id).is_ok());
}

#[test]
fn session_that_is_here_by_its_record_only_is_given_up() {
    let (cluster, store) = join(HOUR);
    let id = create(&cluster, &store);
    assert!(cluster.release(&store, &id, None, || false).unwrap());
    drop(wait(&cluster.handle, cluster.replica.activate(key(&id))).unwrap());
    assert_eq!((cluster.owns(&id), has_owner(&cluster, &id)), (false, Some(true)));
    wait(&cluster.handle, cluster.release_record(&id)).unwrap();
    assert_eq!(has_owner(&cluster, &id), Some(false));
    // One that is used here stays.
    assert_eq!(activate(&cluster, &store, &id).unwrap(), Place::Here);
    wait(&cluster.handle, cluster.release_record(&id)).unwrap();
    assert_eq!((cluster.owns(&id), has_owner(&cluster, &id)), (true, Some(true)));
}

#[test]
fn session_that_was_lost_is_activated_again() {
    let (cluster, store) = join(HOUR);
    let id = create(&cluster, &store);
    // Ends the ownership of before.
    drop(wait(&cluster.handle, cluster.replica.activate(key(&id))).unwrap());
    let lost = cluster.release(&store, &id, None, || false).unwrap_err();
    assert!(matches!(lost, StoreError::Commit(CommitError::Lost)), "{lost}");
    assert!(!cluster.owns(&id) && matches!(store.header(&id), Err(StoreError::Missing)));
    assert_eq!(activate(&cluster, &store, &id).unwrap(), Place::Here);
    assert!(cluster.release(&store, &id, None, || false).unwrap());
    assert_eq!(has_owner(&cluster, &id), Some(false));
}

#[test]
fn session_that_is_here_is_not_cleaned_up() {
    let (cluster, store) = join(BRIEF);
    let id = create(&cluster, &store);
    std::thread::sleep(BRIEF * 2);
    // Its record has the last use that was stored.
    clean_up(&cluster);
    assert_eq!((cluster.owns(&id), has_owner(&cluster, &id)), (true, Some(true)));
    assert!(cluster.release(&store, &id, None, || false).unwrap());
    std::thread::sleep(BRIEF * 2);
    clean_up(&cluster);
    assert_eq!(has_owner(&cluster, &id), None);
    assert_eq!(activate(&cluster, &store, &id).unwrap(), Place::Nowhere);
}

#[test]
fn use_that_changes_nothing_prolongs_a_session() {
    let (cluster, store) = join(HOUR);
    let id = create(&cluster, &store);
    let facts = || wait(&cluster.handle, cluster.services.sessions().header(key(&id))).unwrap().unwrap().facts;
    let before = facts();
    let last_used = Duration::from_millis(before.last_used) + HOUR;
    assert!(cluster.release(&store, &id, Some(last_used), || false).unwrap());
    let milliseconds = u64::try_from(HOUR.as_millis()).unwrap();
    assert_eq!(facts().last_used, before.last_used + milliseconds);
    assert_eq!(facts().expires, before.expires.map(|time| time + milliseconds));
    assert_eq!(activate(&cluster, &store, &id).unwrap(), Place::Here);
    assert_eq!(cluster.last_used(&id), Some(last_used));
}

fn run() -> Arc<Run> {
    let info = RunInfo {
        id: RunId::random().unwrap(),
        code: "1 + 1".to_owned(),
        arguments: Value::Null,
        began: 1,
        is_new_session: false,
        is_program: false,
    };
    let run = Run::new(info, SessionId::random().unwrap(), None, RunState::Pending);
    run.detach();
    Arc::new(run)
}

/// Ends a run with a result and an error, and waits until this is stored.
fn complete(cluster: &Arc<Cluster>, run: &Arc<Run>, result: Value) {
    cluster.complete_run(run.clone(), result, RunOutcome::Error);
    wait(&cluster.handle, cluster.finish_results());
    assert!(run.result().is_some());
}

#[test]
fn runs_are_found_until_they_are_forgotten() {
    let (cluster, _store) = join(HOUR);
    let find = |run: &Run| wait(&cluster.handle, cluster.find_run(&run.info.id)).unwrap();
    // Within the record, and too large for it.
    for size in [10, 100_000] {
        let run = run();
        assert!(find(&run).is_none());
        wait(&cluster.handle, cluster.publish_run(&run)).unwrap();
        assert!(matches!(find(&run), Some(FoundRun::Active(session)) if session == run.session));
        let listed = || wait(&cluster.handle, cluster.remote_runs(&[], |_| true)).unwrap();
        assert_eq!((listed()[0].state, listed()[0].outcome), (RunState::Running, None));
        let result = json!({ "text": "x".repeat(size) });
        run.set_call_count(Some(2));
        complete(&cluster, &run, result.clone());
        let Some(FoundRun::Completed(found)) = find(&run) else { panic!("the result is not found") };
        assert_eq!((&*found.result().unwrap(), &*found.info.code), (&result, "1 + 1"));
        let end = (Some(RunOutcome::Error), Some(2));
        assert_eq!((found.outcome(), found.call_count()), end);
        assert_eq!((listed()[0].state, (listed()[0].outcome, listed()[0].call_count)), (RunState::Completed, end));
        // A result that its client has is not listed any more.
        run.set_fetched();
        cluster.update_result(&run);
        until(|| listed().is_empty());
        assert!(find(&run).is_some());
        cluster.forget_run(&run.info.id);
        until(|| find(&run).is_none());
    }
}

#[test]
fn end_that_an_earlier_build_has_written_is_found() {
    let (cluster, _store) = join(HOUR);
    let (run, records) = (run(), cluster.services.records("runs").unwrap());
    let record = json!({
        "session": run.session.as_str(), "node": cluster.node(), "owner": null, "code": "1 + 1", "began": 1,
        "is_new_session": false, "is_program": false, "is_waiting": false, "questions": [],
        "end": { "ended": 2, "is_fetched": false, "result": { "here": "result" } },
    });
    wait(&cluster.handle, records.put(run.info.id.as_str(), None, record.to_string().as_bytes())).unwrap().unwrap();
    let found = wait(&cluster.handle, cluster.find_run(&run.info.id)).unwrap();
    let Some(FoundRun::Completed(found)) = found else { panic!("the result is not found") };
    assert_eq!((&*found.result().unwrap(), found.outcome(), found.call_count()), (&json!("result"), None, None));
    let listed = wait(&cluster.handle, cluster.remote_runs(&[], |_| true)).unwrap();
    assert_eq!((listed[0].state, listed[0].outcome), (RunState::Completed, None));
}

fn until(holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn end_of_a_run_does_not_replace_the_record_of_another_replica() {
    let (cluster, _store) = join(HOUR);
    let (run, records) = (run(), cluster.services.records("runs").unwrap());
    let name = run.info.id.as_str();
    let read = || wait(&cluster.handle, records.get(name)).unwrap().unwrap();
    wait(&cluster.handle, cluster.publish_run(&run)).unwrap();
    wait(&cluster.handle, records.put(name, Some(&read().version), b"{}")).unwrap().unwrap();
    complete(&cluster, &run, json!("result"));
    assert_eq!(read().value, "{}");
    // Nor is it deleted.
    cluster.forget_run(&run.info.id);
    until(|| cluster.forgotten_runs.lock().is_empty());
    assert_eq!(read().value, "{}");
}

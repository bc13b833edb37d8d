//! Ownership: activation, commits, take-over, deletion and listing.

use std::time::Duration;

use belljar_store::{Activation, Changes, CommitError, Deletion, HeaderCache, Ownership, Replica, StoreError};
use bytes::Bytes;

use crate::backends::{Backend, facts, key};
use crate::block_on;

pub(crate) fn owned(activation: Activation) -> Ownership {
    match activation {
        Activation::Owned(ownership) => ownership,
        other => panic!("{other:?}"),
    }
}

async fn create(replica: &Replica, id: &str) -> Ownership {
    replica.create(key(id), facts("alice")).await.unwrap().unwrap()
}

pub(crate) fn a_session_moves_with_its_state(backend: Backend) {
    block_on(async {
        let (first, second) = (backend.join("http://a").await, backend.join("http://b").await);
        let state: Bytes = (0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into();
        let session = create(&first, "one").await;
        assert!(second.create(key("one"), facts("bob")).await.unwrap().is_none());
        assert_eq!(session.commit(Changes::new().put("state", state.clone()).put("cells", "1")).await.unwrap(), 1);
        assert_eq!(session.commit(Changes::new().put("cells", "1 2")).await.unwrap(), 2);
        let last = Changes::new().put("empty", "").facts(facts("carol"));
        session.release(Some(last)).await.unwrap();
        assert!(matches!(session.commit(Changes::new()).await, Err(CommitError::Lost)));

        let session = owned(second.activate(key("one")).await.unwrap());
        assert_eq!((session.epoch().await, session.sequence().await), (2, 3));
        let parts = session.read_all().await.unwrap();
        assert_eq!(parts.keys().collect::<Vec<_>>(), ["cells", "empty", "state"]);
        assert_eq!(parts["state"], state);
        assert_eq!(session.read("cells").await.unwrap().unwrap(), "1 2");
        assert_eq!(session.read("empty").await.unwrap().unwrap(), "");
        assert!(session.read("other").await.unwrap().is_none());
        assert_eq!(session.facts().await, facts("carol"));
        assert!(matches!(first.activate(key("two")).await.unwrap(), Activation::Missing));
    });
}

pub(crate) fn an_owned_session_is_elsewhere(backend: Backend) {
    block_on(async {
        let (first, second) = (backend.join("http://a").await, backend.join("http://b").await);
        let session = create(&first, "one").await;
        let Activation::Elsewhere(owner) = second.activate(key("one")).await.unwrap() else { panic!() };
        assert_eq!((owner.node, &*owner.address), (first.node(), "http://a"));
        assert_eq!(second.delete(key("one")).await.unwrap(), Deletion::Elsewhere(owner));
        session.commit(Changes::new().put("state", "1")).await.unwrap();
        // Without changes: one write.
        session.release(None).await.unwrap();
        let moved = owned(second.activate(key("one")).await.unwrap());
        assert_eq!(moved.read("state").await.unwrap().unwrap(), "1");
        assert!(matches!(session.commit(Changes::new().put("state", "2")).await, Err(CommitError::Lost)));
    });
}

pub(crate) fn one_of_several_replicas_activates(backend: Backend) {
    block_on(async {
        let mut replicas = Vec::new();
        for number in 0..5 {
            replicas.push(backend.join(&format!("http://{number}")).await);
        }
        for round in 0..4 {
            let id = format!("session {round}");
            create(&replicas[0], &id).await.release(None).await.unwrap();
            let attempts = replicas.iter().map(|replica| {
                let (replica, key) = (replica.clone(), key(&id));
                tokio::spawn(async move { replica.activate(key).await.unwrap() })
            });
            let mut winners = Vec::new();
            for attempt in attempts.collect::<Vec<_>>() {
                if let Activation::Owned(session) = attempt.await.unwrap() {
                    winners.push(session);
                }
            }
            assert_eq!(winners.len(), 1);
            winners[0].commit(Changes::new().put("state", "1")).await.unwrap();
        }
    });
}

pub(crate) fn a_session_is_deleted_once(backend: Backend) {
    block_on(async {
        let mut replicas = Vec::new();
        for number in 0..4 {
            replicas.push(backend.join(&format!("http://{number}")).await);
        }
        let session = create(&replicas[0], "one").await;
        session.release(Some(Changes::new().put("state", "1"))).await.unwrap();
        let deletions: Vec<_> = replicas
            .iter()
            .map(|replica| {
                let replica = replica.clone();
                tokio::spawn(async move { replica.delete(key("one")).await.unwrap() })
            })
            .collect();
        let mut found = Vec::new();
        for deletion in deletions {
            found.push(deletion.await.unwrap());
        }
        assert_eq!(found.iter().filter(|deletion| **deletion == Deletion::Deleted).count(), 1, "{found:?}");
        assert!(matches!(replicas[1].activate(key("one")).await.unwrap(), Activation::Missing));
        assert!(replicas[1].create(key("one"), facts("alice")).await.unwrap().is_none());
        assert!(replicas[1].cluster().sessions().list().await.unwrap().is_empty());
        let own = create(&replicas[2], "two").await;
        assert_eq!(own.delete().await.unwrap(), Deletion::Deleted);
        assert!(matches!(own.commit(Changes::new()).await, Err(CommitError::Lost)));
    });
}

/// Runs a replica that owns a session in a thread of its own, which then stops for a time, as a process that is frozen.
fn freeze<T: Send + 'static>(
    backend: &Backend,
    time: Duration,
    then: impl AsyncFnOnce(Replica, Ownership) -> T + Send + 'static,
) -> (std::sync::mpsc::Receiver<()>, std::thread::JoinHandle<T>) {
    let (cluster, options) = (backend.connect(), backend.brief());
    let (sender, is_frozen) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let replica = Replica::join(&cluster, "http://frozen", options).await.unwrap();
            let session = replica.create(key("one"), facts("alice")).await.unwrap().unwrap();
            session.commit(Changes::new().put("state", "1")).await.unwrap();
            sender.send(()).unwrap();
            // Blocks the renewal, too.
            std::thread::sleep(time);
            then(replica, session).await
        })
    });
    (is_frozen, thread)
}

pub(crate) fn a_crashed_owner_is_replaced(backend: Backend) {
    // The thread ends without a farewell.
    let (is_frozen, thread) = freeze(&backend, Duration::ZERO, async |_, _| ());
    is_frozen.recv().unwrap();
    thread.join().unwrap();
    block_on(async {
        let replica = backend.join_briefly("http://b").await;
        let session = owned(replica.activate_within(key("one"), Duration::from_secs(120)).await.unwrap());
        assert_eq!(session.epoch().await, 2);
        assert_eq!(session.read("state").await.unwrap().unwrap(), "1");
        session.commit(Changes::new().put("state", "2")).await.unwrap();
    });
}

pub(crate) fn a_frozen_owner_cannot_commit(backend: Backend) {
    let time = backend.brief().lease * 2;
    let (is_frozen, thread) = freeze(&backend, time, async |replica, session| {
        let result = session.commit(Changes::new().put("state", "stale")).await;
        // The watch fires, and everything else is refused.
        let mut fenced = replica.fenced();
        fenced.wait_for(|fenced| *fenced).await.unwrap();
        assert!(matches!(replica.activate(key("one")).await, Err(StoreError::Fenced { .. })));
        assert!(matches!(replica.create(key("two"), facts("alice")).await, Err(StoreError::Fenced { .. })));
        assert!(!session.is_owned().await);
        result
    });
    is_frozen.recv().unwrap();
    block_on(async {
        let replica = backend.join_briefly("http://b").await;
        let session = owned(replica.activate_within(key("one"), Duration::from_secs(120)).await.unwrap());
        session.commit(Changes::new().put("state", "2")).await.unwrap();
        let result = thread.join().unwrap();
        assert!(matches!(result, Err(CommitError::Fenced(_) | CommitError::Lost)), "{result:?}");
        assert_eq!(session.read("state").await.unwrap().unwrap(), "2");
        assert_eq!(session.commit(Changes::new().put("state", "3")).await.unwrap(), 3);
    });
}

pub(crate) fn a_replica_that_has_left_is_replaced_at_once(backend: Backend) {
    block_on(async {
        let (first, second) = (backend.join("http://a").await, backend.join("http://b").await);
        let session = create(&first, "one").await;
        first.leave().await.unwrap();
        assert!(*first.fenced().borrow());
        assert!(matches!(session.commit(Changes::new()).await, Err(CommitError::Fenced(_))));
        let session = owned(second.activate(key("one")).await.unwrap());
        assert_eq!(session.epoch().await, 2);
    });
}

pub(crate) fn parts_are_appended_and_removed(backend: Backend) {
    block_on(async {
        let replica = backend.join("http://a").await;
        let session = create(&replica, "one").await;
        let mut expected = Vec::new();
        for number in 0..25_usize {
            let line = format!("cell {number}\n");
            expected.extend_from_slice(line.as_bytes());
            let mut changes = Changes::new().append("cells", line);
            if number % 4 == 0 {
                changes = changes.put("state", vec![u8::try_from(number).unwrap(); 100_000]);
            }
            session.commit(changes).await.unwrap();
        }
        assert_eq!(session.read("cells").await.unwrap().unwrap(), expected);
        session.release(Some(Changes::new().remove("state"))).await.unwrap();
        let session = owned(replica.activate(key("one")).await.unwrap());
        let parts = session.read_all().await.unwrap();
        assert_eq!(parts.keys().collect::<Vec<_>>(), ["cells"]);
        assert_eq!(parts["cells"], expected);
        let refused = session.commit(Changes::new().put("../other", "1")).await;
        assert!(matches!(refused, Err(CommitError::NotStored(StoreError::Invalid(_)))), "{refused:?}");
        // The refusal has written nothing, and the session goes on.
        assert_eq!(session.commit(Changes::new().put("state", "1")).await.unwrap(), 27);
    });
}

pub(crate) fn sessions_are_listed(backend: Backend) {
    block_on(async {
        let replica = backend.join("http://a").await;
        for number in 0..12 {
            let session = create(&replica, &format!("session {number}")).await;
            if number % 2 == 0 {
                session.release(Some(Changes::new().put("state", vec![0; 1000 + number]))).await.unwrap();
            }
        }
        let sessions = replica.cluster().sessions();
        let headers = sessions.list().await.unwrap();
        assert_eq!(headers.len(), 12);
        assert!(headers.is_sorted_by_key(|header| header.key));
        assert_eq!(headers.iter().filter(|header| header.owner.is_some()).count(), 6);
        assert_eq!(headers.iter().map(|header| header.size).sum::<u64>(), 6 * 1000 + 30);
        assert!(headers.iter().all(|header| header.facts == facts("alice")));
        let one = sessions.header(key("session 3")).await.unwrap().unwrap();
        assert_eq!(one.owner.unwrap().node, replica.node());
        assert!(sessions.header(key("other")).await.unwrap().is_none());
        // Only stores know when records were written.
        let mut cache = HeaderCache::default();
        sessions.list_unused_for(Duration::from_secs(3600), &mut cache).await.unwrap();
        assert_eq!(cache.headers().count(), if backend.etcd.is_some() { 12 } else { 0 });
        // Records that have not changed are not read again.
        sessions.list_unused_for(Duration::ZERO, &mut cache).await.unwrap();
        assert!(cache.headers().eq(&headers));
        let reads = replica.cluster().requests().reads;
        let other = backend.join("http://b").await;
        owned(other.activate(key("session 4")).await.unwrap());
        sessions.list_unused_for(Duration::ZERO, &mut cache).await.unwrap();
        let activated = cache.headers().find(|header| header.key == key("session 4")).unwrap();
        assert_eq!(activated.owner.as_ref().unwrap().node, other.node());
        assert!(replica.cluster().requests().reads - reads < 10, "{:?}", replica.cluster().requests());
    });
}

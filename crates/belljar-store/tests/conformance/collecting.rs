//! Images, and the deletion of what nothing refers to.

use std::time::Duration;

use belljar_store::{Changes, CollectOptions, Digest, Facts, StoreError};
use bytes::Bytes;

use crate::backends::{Backend, facts, key};
use crate::block_on;
use crate::ownership::owned;

/// Ages of nothing: what may be deleted is.
const AT_ONCE: CollectOptions = CollectOptions { tombstone_age: Duration::ZERO, image_age: Duration::ZERO };

/// Waits until the clocks, which count milliseconds, have gone on.
async fn wait() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

pub(crate) fn images_are_stored_once_and_collected(backend: Backend) {
    block_on(async {
        let (replica, other) = (backend.join("http://a").await, backend.connect().images());
        let images = replica.cluster().images();
        let (used, unused) = (Bytes::from(vec![1; 2 << 20]), Bytes::from_static(b"unused"));
        let (first, second) = (Digest::from_content(&used), Digest::from_content(&unused));
        assert!(matches!(images.put(first, unused.clone()).await, Err(StoreError::Invalid(_))));
        let (one, two) = tokio::join!(images.put(first, used.clone()), other.put(first, used.clone()));
        one.unwrap();
        two.unwrap();
        images.put(second, unused.clone()).await.unwrap();
        assert_eq!(other.get(first).await.unwrap().unwrap(), used);
        assert!(!other.contains(Digest::from_content(b"other")).await.unwrap());

        let session =
            replica.create(key("one"), Facts { images: vec![first], ..facts("alice") }).await.unwrap().unwrap();
        // The first phase marks, and use removes the mark.
        assert_eq!(replica.collect(AT_ONCE).await.unwrap().marked_images, 1);
        assert!(other.contains(second).await.unwrap());
        wait().await;
        assert_eq!(replica.collect(AT_ONCE).await.unwrap().images, 0);
        wait().await;
        assert_eq!(replica.collect(AT_ONCE).await.unwrap().images, 1);
        assert!(other.get(second).await.unwrap().is_none());
        assert_eq!(other.get(first).await.unwrap().unwrap(), used);
        // It can be stored again.
        other.put(second, unused.clone()).await.unwrap();
        assert_eq!(images.get(second).await.unwrap().unwrap(), unused);
        session.delete().await.unwrap();
        for _ in 0..2 {
            wait().await;
            replica.collect(AT_ONCE).await.unwrap();
        }
        assert!(images.get(first).await.unwrap().is_none());
    });
}

pub(crate) fn what_nothing_refers_to_is_collected(backend: Backend) {
    block_on(async {
        let (replica, other) = (backend.join("http://a").await, backend.join("http://b").await);
        for number in 0..4 {
            let session = replica.create(key(&format!("session {number}")), facts("alice")).await.unwrap().unwrap();
            for commit in 0..5 {
                session.commit(Changes::new().put("state", format!("{number} {commit}"))).await.unwrap();
            }
            session.release(None).await.unwrap();
        }
        assert_eq!(replica.delete(key("session 0")).await.unwrap(), belljar_store::Deletion::Deleted);
        wait().await;
        // Sessions are used while others collect.
        let busy = owned(replica.activate(key("session 1")).await.unwrap());
        let work = async {
            for commit in 0..20 {
                busy.commit(Changes::new().put("state", format!("busy {commit}")).append("log", "x")).await.unwrap();
            }
        };
        let collect = async {
            let mut tombstones = 0;
            for _ in 0..5 {
                tombstones += other.collect(AT_ONCE).await.unwrap().tombstones;
            }
            tombstones
        };
        let (tombstones, ()) = tokio::join!(collect, work);
        assert!(tombstones >= 1);
        let collected = other.collect(CollectOptions::default()).await.unwrap();
        assert_eq!((collected.sessions, collected.damaged, collected.tombstones), (3, 0, 0));
        busy.release(None).await.unwrap();
        for number in 1..4 {
            let session = owned(other.activate(key(&format!("session {number}"))).await.unwrap());
            let expected = if number == 1 { "busy 19".to_owned() } else { format!("{number} 4") };
            assert_eq!(session.read("state").await.unwrap().unwrap(), expected);
        }
    });
}

pub(crate) fn contents_without_a_record_are_collected(backend: Backend) {
    block_on(async {
        let replica = backend.join("http://a").await;
        let records = replica.cluster().records("runs").unwrap();
        let bytes = Bytes::from(vec![7; 700_000]);
        let content = records.put_content("a", bytes.clone()).await.unwrap();
        records.put("a", None, content.as_bytes()).await.unwrap().unwrap();
        let unused = records.put_content("b", bytes.clone()).await.unwrap();
        wait().await;
        assert_eq!(replica.collect(CollectOptions::default()).await.unwrap().contents, 0);
        assert_eq!(replica.collect(AT_ONCE).await.unwrap().contents, 1);
        assert!(records.content(&unused, bytes.len()).await.unwrap().is_none());
        assert_eq!(records.content(&content, bytes.len()).await.unwrap().unwrap(), bytes);
        records.delete_contents("a").await.unwrap();
        assert!(records.content(&content, bytes.len()).await.unwrap().is_none());
    });
}

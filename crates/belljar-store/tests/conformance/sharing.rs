//! Small records that replicas share.

use belljar_store::RecordCache;

use crate::backends::Backend;
use crate::block_on;

pub(crate) fn records_are_written_by_version(backend: Backend) {
    block_on(async {
        let (first, second) = (backend.connect().records("runs").unwrap(), backend.connect().records("runs").unwrap());
        assert!(first.get("a/1").await.unwrap().is_none());
        let created = first.put("a/1", None, b"waiting").await.unwrap().unwrap();
        assert!(second.put("a/1", None, b"other").await.unwrap().is_none());
        let found = second.get("a/1").await.unwrap().unwrap();
        assert_eq!((found.value.as_ref(), &found.version), (&b"waiting"[..], &created));
        // Two replicas answer: one is first.
        let answers =
            tokio::join!(first.put("a/1", Some(&created), b"yes"), second.put("a/1", Some(&found.version), b"no"),);
        let (yes, no) = (answers.0.unwrap(), answers.1.unwrap());
        assert_ne!(yes.is_some(), no.is_some());
        let expected: &[u8] = if yes.is_some() { b"yes" } else { b"no" };
        assert_eq!(first.get("a/1").await.unwrap().unwrap().value, expected);
        // The same content again is another version.
        let same = second.put("a/1", yes.or(no).as_ref(), expected).await.unwrap().unwrap();
        assert!(first.put("a/1", Some(&created), b"late").await.unwrap().is_none());
        assert!(first.put("a/1", Some(&same), b"end").await.unwrap().is_some());

        first.put("a/2", None, b"").await.unwrap().unwrap();
        first.put("b", None, b"").await.unwrap().unwrap();
        assert_eq!(second.list("").await.unwrap(), ["a/1", "a/2", "b"]);
        assert_eq!(second.list("a").await.unwrap(), ["a/1", "a/2"]);
        second.delete("a/1").await.unwrap();
        second.delete("a/1").await.unwrap();
        assert_eq!(first.list("a").await.unwrap(), ["a/2"]);
        assert!(first.put("c", None, &vec![0; 1 << 20]).await.is_err());
        assert!(first.get("../nodes").await.is_err());
    });
}

pub(crate) fn records_are_removed_by_version(backend: Backend) {
    block_on(async {
        let records = backend.connect().records("runs").unwrap();
        let first = records.put("a", None, b"1").await.unwrap().unwrap();
        let second = records.put("a", Some(&first), b"2").await.unwrap().unwrap();
        assert!(!records.remove("a", &first).await.unwrap());
        assert_eq!(records.get("a").await.unwrap().unwrap().value, "2");
        assert!(records.remove("a", &second).await.unwrap());
        assert!(records.get("a").await.unwrap().is_none());
        assert!(!records.remove("a", &second).await.unwrap());
        assert!(records.put("a", None, b"3").await.unwrap().is_some());
    });
}

pub(crate) fn records_that_have_not_changed_are_read_once(backend: Backend) {
    block_on(async {
        let cluster = backend.connect();
        let (records, other) = (cluster.records("runs").unwrap(), backend.connect().records("runs").unwrap());
        for number in 0..30 {
            other.put(&format!("r{number:02}"), None, b"1").await.unwrap().unwrap();
        }
        let mut cache = RecordCache::default();
        let found = records.read_all(&mut cache).await.unwrap();
        assert_eq!(found.len(), 30);
        assert!(found.is_sorted_by_key(|(name, _)| name.clone()));
        let before = cluster.requests().reads;
        assert_eq!(records.read_all(&mut cache).await.unwrap().len(), 30);
        assert_eq!(cluster.requests().reads, before);
        other.put("r07", Some(&found[7].1.version), b"2").await.unwrap().unwrap();
        other.delete("r08").await.unwrap();
        let found = records.read_all(&mut cache).await.unwrap();
        assert_eq!(found.len(), 29);
        assert!(found.iter().all(|(name, record)| record.value == if name == "r07" { "2" } else { "1" }));
        // One read, which is repeated if the store fails; etcd's list has the content.
        assert!(cluster.requests().reads - before < 10, "{:?}", cluster.requests());
    });
}

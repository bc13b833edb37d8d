//! Small records that replicas share.

use std::time::Duration;

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

pub(crate) fn an_answer_reaches_another_replica(backend: Backend) {
    block_on(async {
        let (owner, other) = (backend.connect().records("runs").unwrap(), backend.connect().records("runs").unwrap());
        let question = owner.put("run/1", None, b"?").await.unwrap().unwrap();
        let mut watch = owner.watch("run").unwrap();
        let waiting = tokio::spawn(async move {
            loop {
                assert!(watch.changed().await);
                let found = owner.get("run/1").await.unwrap().unwrap();
                if found.value != "?" {
                    return found.value;
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished());
        other.put("run/1", Some(&question), b"yes").await.unwrap().unwrap();
        // The bound is for failures: the answer arrives within a second otherwise.
        let answer = tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap();
        assert_eq!(answer, "yes");
    });
}

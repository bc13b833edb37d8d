//! Failures of one kind each: a store that is gone, lost answers, missing objects, revoked leases.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use belljar_store::{Changes, CommitError, Replica, ReplicaOptions, StoreError};
use belljar_testing::{Trial, trial};

use crate::backends::{Backend, Kind, facts, key};
use crate::{ETCD, block_on};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("failures::a_commit_with_a_lost_answer_is_done_once", &[], a_commit_with_a_lost_answer_is_done_once),
        trial("failures::a_commit_to_moto_with_a_lost_answer_is_done_once", &[], || done_once_behind(Kind::LinkedMoto)),
        trial("failures::a_commit_to_etcd_with_a_lost_answer_is_done_once", ETCD, || {
            done_once_behind(Kind::LinkedEtcdAndS3);
        }),
        trial("failures::a_replica_without_its_store_stops_itself", &[], a_replica_without_its_store_stops_itself),
        trial("failures::a_replica_without_etcd_stops_itself", ETCD, a_replica_without_etcd_stops_itself),
        trial("failures::a_commit_without_its_store_fails_in_time", ETCD, a_commit_without_its_store_fails_in_time),
        trial("failures::sleeping_sessions_cost_no_requests", &[], sleeping_sessions_cost_no_requests),
    ]
}

fn a_commit_with_a_lost_answer_is_done_once() {
    let backend = Backend::new(Kind::S3);
    let faults = &backend.s3.as_ref().unwrap().faults;
    block_on(expect_commits_once(&backend, |thousandths| faults.lost.store(thousandths, Ordering::Relaxed)));
}

/// Does the same with links, which lose answers after the service has carried the requests out.
fn done_once_behind(kind: Kind) {
    let backend = Backend::new(kind);
    let links = &backend.links;
    block_on(expect_commits_once(&backend, |thousandths| {
        links.iter().for_each(|link| link.lose_answers(thousandths));
    }));
    assert!(backend.lost_answers() > 0);
}

/// Checks that each commit is done once while answers are lost with a probability in thousandths.
async fn expect_commits_once(backend: &Backend, lose: impl Fn(u64)) {
    let replica = backend.join("http://a").await;
    let session = replica.create(key("one"), facts("alice")).await.unwrap().unwrap();
    lose(400);
    for commit in 1..=20 {
        let stored = session.commit(Changes::new().append("log", "x")).await.unwrap();
        assert_eq!(stored, commit);
    }
    lose(0);
    assert_eq!(session.read("log").await.unwrap().unwrap(), "x".repeat(20));
}

/// Checks that a replica stops itself within its lease once its coordinator is gone.
async fn expect_stop(backend: &Backend, cut: impl FnOnce()) {
    // Longer than the pauses of a busy machine, which would stop the replica before its coordinator is gone.
    let options = ReplicaOptions { lease: Duration::from_secs(8) };
    let replica = Replica::join(&backend.connect(), "http://a", options).await.unwrap();
    let session = replica.create(key("one"), facts("alice")).await.unwrap().unwrap();
    let mut fenced = replica.fenced();
    assert!(!*fenced.borrow());
    cut();
    tokio::time::timeout(Duration::from_secs(60), fenced.wait_for(|fenced| *fenced)).await.unwrap().unwrap();
    let error = session.commit(Changes::new().put("state", "1")).await.unwrap_err();
    assert!(matches!(error, CommitError::Fenced(StoreError::Fenced { .. })), "{error}");
}

fn a_replica_without_its_store_stops_itself() {
    let backend = Backend::new(Kind::S3);
    let faults = &backend.s3.as_ref().unwrap().faults;
    block_on(expect_stop(&backend, || faults.unavailable.store(1000, Ordering::Relaxed)));
}

fn a_replica_without_etcd_stops_itself() {
    let backend = Backend::new(Kind::EtcdAndS3);
    let etcd = backend.etcd.as_ref().unwrap();
    block_on(expect_stop(&backend, || (0..3).for_each(|member| etcd.stop(member))));
    (0..3).for_each(|member| etcd.resume(member));
}

fn a_commit_without_its_store_fails_in_time() {
    let backend = Backend::new(Kind::EtcdAndS3);
    let faults = &backend.s3.as_ref().unwrap().faults;
    block_on(async {
        // With etcd, the lease runs while the store is gone.
        let replica = backend.join("http://a").await;
        let session = replica.create(key("one"), facts("alice")).await.unwrap().unwrap();
        session.commit(Changes::new().put("state", "1")).await.unwrap();
        faults.unavailable.store(1000, Ordering::Relaxed);
        let commit = session.commit(Changes::new().put("state", "2"));
        // Less than the 30 s that other operations may take.
        let result = tokio::time::timeout(Duration::from_secs(29), commit).await.unwrap();
        assert!(matches!(result, Err(CommitError::NotStored(StoreError::Unavailable { .. }))), "{result:?}");
        faults.unavailable.store(0, Ordering::Relaxed);
        assert_eq!(session.commit(Changes::new().put("state", "2")).await.unwrap(), 2);
    });
}

fn sleeping_sessions_cost_no_requests() {
    let backend = Backend::new(Kind::S3);
    let faults = &backend.s3.as_ref().unwrap().faults;
    block_on(async {
        let mut replicas = Vec::new();
        for number in 0..4 {
            replicas.push(backend.join(&format!("http://{number}")).await);
        }
        for number in 0..40 {
            let session = replicas[0].create(key(&format!("session {number}")), facts("alice")).await.unwrap().unwrap();
            session.release(None).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (before, begin) = (faults.requests.load(Ordering::Relaxed), Instant::now());
        tokio::time::sleep(Duration::from_secs(10)).await;
        let requests = faults.requests.load(Ordering::Relaxed) - before;
        // Four replicas renew every 3.3 s, or a little later on a busy machine.
        let time = begin.elapsed();
        let most = 4 * (time.as_secs() * 10 / 33 + 2);
        assert!((4..=most).contains(&requests), "{requests} requests in {time:?}");
    });
}

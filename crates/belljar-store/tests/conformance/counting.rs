//! Replicas that count in sessions while requests, connections and members of etcd fail: no increment is lost or done
//! twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_store::{Activation, Changes, CommitError, Replica};
use belljar_testing::{Trial, trial};

use crate::backends::{Backend, Kind, facts, key};
use crate::peer_links::PeerLinks;
use crate::{ETCD, block_on};

const REPLICAS: usize = 4;
const SESSIONS: usize = 6;
const SECONDS: u64 = 15;
/// The longest time until a session has counted.
const MAX_TIME: Duration = Duration::from_secs(120);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("counting::on_a_store_with_failures", &[], on_a_store_with_failures),
        trial("counting::on_moto_behind_a_link_that_fails", &[], on_moto_behind_a_link_that_fails),
        trial("counting::with_etcd_whose_members_fail", ETCD, with_etcd_whose_members_fail),
        trial("counting::with_etcd_behind_links_that_fail", ETCD, with_etcd_behind_links_that_fail),
        trial("counting::with_etcd_whose_leader_is_cut_off", ETCD, with_etcd_whose_leader_is_cut_off),
    ]
}

/// The results of a counter: the increments that were acknowledged, and those of which it is unknown.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    acknowledged: u64,
    unknown: u64,
}

/// Increments the counter of a session on any of the replicas until the time is over.
async fn count(replicas: Vec<Replica>, session: usize, is_over: Arc<AtomicBool>) -> Tally {
    let (key, mut tally, mut turn) = (key(&format!("counter {session}")), Tally::default(), session);
    let begin = Instant::now();
    // On a busy machine, the first increment may take longer.
    let is_late = |tally: &Tally| tally.acknowledged == 0 && begin.elapsed() < MAX_TIME;
    while !is_over.load(Ordering::Relaxed) || is_late(&tally) {
        turn += 1;
        let replica = &replicas[turn % REPLICAS];
        let Ok(Activation::Owned(owned)) = replica.activate(key).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        for increment in 0..=turn % 3 {
            // An owner that was lost is lost for good: its state in memory is dropped.
            let Ok(Some(state)) = owned.read("state").await else { break };
            let value: u64 = std::str::from_utf8(&state).unwrap().parse().unwrap();
            let changes = Changes::new().put("state", (value + 1).to_string());
            let is_last = increment == turn % 3;
            let result = match is_last {
                true => owned.release(Some(changes)).await,
                false => owned.commit(changes).await.map(drop),
            };
            match result {
                Ok(()) => tally.acknowledged += 1,
                Err(CommitError::Unknown) => tally.unknown += 1,
                Err(_) => break,
            }
            if !owned.is_owned().await {
                break;
            }
        }
    }
    tally
}

fn run(backend: &Backend, disturb: impl AsyncFnOnce()) {
    block_on(async {
        let mut replicas = Vec::new();
        for number in 0..REPLICAS {
            replicas.push(backend.join(&format!("http://{number}")).await);
        }
        for session in 0..SESSIONS {
            let owned = replicas[0].create(key(&format!("counter {session}")), facts("alice")).await.unwrap().unwrap();
            owned.release(Some(Changes::new().put("state", "0"))).await.unwrap();
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let counters: Vec<_> =
            (0..SESSIONS).map(|session| tokio::spawn(count(replicas.clone(), session, is_over.clone()))).collect();
        disturb().await;
        is_over.store(true, Ordering::Relaxed);
        let mut tallies = Vec::new();
        for counter in counters {
            tallies.push(counter.await.unwrap());
        }
        // A replica of its own finds out what was stored.
        let replica = backend.join("http://checker").await;
        for replica in replicas {
            let _ = replica.leave().await;
        }
        for (session, tally) in tallies.into_iter().enumerate() {
            let found = replica.activate_within(key(&format!("counter {session}")), Duration::from_secs(120)).await;
            let owned = crate::ownership::owned(found.unwrap());
            let state = owned.read("state").await.unwrap().unwrap();
            let value: u64 = std::str::from_utf8(&state).unwrap().parse().unwrap();
            let allowed = tally.acknowledged..=tally.acknowledged + tally.unknown;
            assert!(allowed.contains(&value), "session {session} counts {value}: {tally:?}");
            assert!(tally.acknowledged > 0, "session {session}");
        }
    });
}

fn on_a_store_with_failures() {
    let backend = Backend::new(Kind::S3);
    let faults = backend.s3.as_ref().unwrap().faults.clone();
    run(&backend, async || {
        faults.set(80);
        tokio::time::sleep(Duration::from_secs(SECONDS)).await;
        faults.set(0);
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
}

/// Counts while requests are reset, answers are lost, and both are late on the links of a backend.
fn run_with_faulty_links(kind: Kind) {
    let backend = Backend::new(kind);
    run(&backend, async || {
        backend.set_link_faults(60);
        tokio::time::sleep(Duration::from_secs(SECONDS)).await;
        backend.set_link_faults(0);
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
    assert!(backend.lost_answers() > 0);
}

fn on_moto_behind_a_link_that_fails() {
    run_with_faulty_links(Kind::LinkedMoto);
}

fn with_etcd_behind_links_that_fail() {
    run_with_faulty_links(Kind::LinkedEtcdAndS3);
}

fn with_etcd_whose_members_fail() {
    let mut backend = Backend::new(Kind::EtcdAndS3);
    let mut etcd = backend.etcd.take().unwrap();
    // The connections need the URL of the cluster.
    let url = etcd.url("test");
    backend.reconnect_to(url);
    run(&backend, async || {
        for member in 0..3 {
            etcd.kill(member);
            tokio::time::sleep(Duration::from_secs(4)).await;
            etcd.restart(member);
            tokio::time::sleep(Duration::from_secs(3)).await;
            etcd.stop((member + 1) % 3);
            tokio::time::sleep(Duration::from_secs(4)).await;
            etcd.resume((member + 1) % 3);
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    });
}

/// The leader that is cut off answers its clients, but can commit nothing, and learns of no lease that has run out.
fn with_etcd_whose_leader_is_cut_off() {
    let mut backend = Backend::new(Kind::S3);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (etcd, links) = runtime.block_on(PeerLinks::start());
    backend.reconnect_to(etcd.url("test"));
    run(&backend, async || {
        for _ in 0..2 {
            links.cut_leader_off().await;
            // Longer than a lease.
            tokio::time::sleep(Duration::from_secs(12)).await;
            links.restore();
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    });
}

//! Sessions whose time is over by their records: those that are used are kept, and the others deleted once.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use belljar_store::{Cluster, ClusterUrl, Facts, Replica, ReplicaOptions, SessionKey};
use serde_json::json;

use super::{RUNTIME, Shared, awake, cell, open, value};
use crate::harness::Belljar;
use crate::serve::http::Listening;
use crate::sessions::durable::{self, fields, kill, question, reply, run, runs, send_cell, wait_for};

/// A time in the far future, in milliseconds since 1970.
const FAR: u64 = 4_102_444_800_000;
/// The time without use after which a session ends that a test uses, in seconds.
const SESSION_TIMEOUT: &str = "10";
/// The time for which such a session is used: that in its record is over meanwhile, and replicas look for it twice.
const USE_TIME: Duration = Duration::from_secs(24);

impl Shared {
    /// Starts a replica whose sessions end four seconds after their last use.
    fn brief(&self, arguments: &[&str]) -> Listening {
        let usual = ["--toolset", "interpreter", "--session-timeout", "4"];
        self.replica_with("streamable-http-stateless", &[&usual[..], arguments].concat())
    }

    /// Starts a replica whose sessions end [`SESSION_TIMEOUT`] seconds after their last use: longer than the pauses
    /// between two uses on a busy machine.
    fn patient(&self, arguments: &[&str]) -> Listening {
        let usual = ["--toolset", "interpreter", "--session-timeout", SESSION_TIMEOUT];
        self.replica_with("streamable-http-stateless", &[&usual[..], arguments].concat())
    }

    fn deletions(&self) -> u64 {
        self.server.faults.deletions.load(Ordering::Relaxed)
    }
}

#[test]
fn session_in_use_outlives_the_time_in_its_record() {
    let shared = Shared::new();
    let (one, _two) = (shared.patient(&["--durability", "memory", "--sleep-after", "1"]), shared.patient(&[]));
    let session = open(&one, "x = 0");
    // From now on it has a record.
    wait_for(|| awake(&one) == 0);
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < USE_TIME {
        count += 1;
        assert_eq!(value(&one, &session, "x += 1\nx"), count.to_string());
        std::thread::sleep(Duration::from_millis(200));
    }
    wait_for(|| awake(&one) == 0);
    assert_eq!(value(&one, &session, "x"), count.to_string());
    assert_eq!(shared.deletions(), 0);
}

#[test]
fn session_that_is_only_read_is_used() {
    let shared = Shared::new();
    let [one, two] = [(); 2].map(|()| shared.patient(&["--sleep-after", "1"]));
    let session = open(&one, "x = 1\nopen('notes.txt', 'w').write('first')");
    let begin = Instant::now();
    while begin.elapsed() < USE_TIME {
        let files = one.tool("list_session_files", &json!({ "session_id": session }));
        assert!(files.to_string().contains("notes.txt"), "{files:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
    wait_for(|| awake(&one) == 0);
    assert_eq!(value(&two, &session, "x"), "1");
    assert_eq!(shared.deletions(), 0);
}

#[test]
fn waiting_cell_outlives_the_time_of_its_session() {
    let shared = Shared::new();
    let mut one = shared.wire(Belljar::new(), &["--session-timeout", SESSION_TIMEOUT]);
    let session = durable::open(&mut one);
    let sent = send_cell(&mut one, &session, "import asyncio\nawait asyncio.sleep(24)\nx = 'slept'\nx");
    assert_eq!(fields(&one.answer(sent)["result"])["result"], "'slept'");
    assert_eq!(run(&mut one, &session, "x")["result"], "'slept'");
    assert_eq!(shared.deletions(), 0);
}

#[test]
fn waiting_cell_outlives_a_cluster_that_is_down() {
    let shared = Shared::new();
    let options = ["--session-timeout", SESSION_TIMEOUT];
    let mut one = shared.wire(Belljar::new(), &options);
    let session = durable::open(&mut one);
    run(&mut one, &session, "x = 1");
    send_cell(&mut one, &session, "(x, input('Go on? '))");
    question(&mut one);
    wait_for(|| shared.server.names("/records/runs/").len() == 1);
    kill(one);
    // The time of the session is over.
    std::thread::sleep(Duration::from_secs(12));
    let mut two = shared.wire(Belljar::new(), &options);
    let [listed] = &runs(&mut two)[..] else { panic!("not one run") };
    let resumed = two.send("tools/call", json!({ "name": "resume_run", "arguments": { "run_id": listed["run_id"] } }));
    let asked = question(&mut two);
    reply(&mut two, &asked, "yes");
    let answer = fields(&two.answer(resumed)["result"]);
    assert_eq!(answer["result"], "(1, 'yes')", "{answer:#}");
    assert_eq!(shared.deletions(), 0);
}

#[test]
fn idle_session_of_a_dead_replica_is_deleted_once() {
    let shared = Shared::new();
    let [mut one, two, three] = [(); 3].map(|()| shared.brief(&[]));
    let session = open(&one, "x = 1");
    one.child.kill().unwrap();
    one.child.wait().unwrap();
    wait_for(|| shared.deletions() >= 1);
    // The others look again.
    std::thread::sleep(Duration::from_secs(9));
    assert_eq!(shared.deletions(), 1);
    for replica in [&two, &three] {
        let answer = cell(replica, Some(&session), "x");
        assert!(answer["error"].to_string().contains("not found or has expired"), "{answer:#}");
    }
}

#[test]
fn one_replica_reads_each_sleeping_session_once() {
    const SLEEPING: u64 = 60;
    let shared = Shared::new();
    RUNTIME.block_on(async {
        let url = shared.server.url("tests");
        let cluster = Cluster::open(&url, &ClusterUrl::Store, &shared.server.variables()).unwrap();
        let replica = Replica::join(&cluster, "http://tests", ReplicaOptions::default()).await.unwrap();
        for number in 0..SLEEPING {
            let (key, expires) = (SessionKey::from_id(&format!("session {number}")), Some(FAR));
            let session = replica.create(key, Facts { expires, ..Facts::default() }).await.unwrap().unwrap();
            session.release(None).await.unwrap();
        }
        replica.leave().await.unwrap();
    });
    let _replicas = [(); 4].map(|()| shared.brief(&[]));
    let reads = || shared.server.faults.record_reads.load(Ordering::Relaxed);
    wait_for(|| reads() >= SLEEPING);
    // Each of the others looks several times.
    std::thread::sleep(Duration::from_secs(14));
    // A read whose answer is late is repeated. A second look, or one of another replica, would read all of them.
    assert!((SLEEPING..2 * SLEEPING).contains(&reads()), "{}", reads());
    assert_eq!(shared.deletions(), 0);
}

//! The costs of ownership on an S3 server in this process: a commit against the store's own two writes, activation,
//! take-over after a crash, and requests while idle.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and fails by panicking")]

#[path = "../tests/support/s3_server.rs"]
mod s3_server;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use belljar_store::{Activation, Changes, Cluster, ClusterUrl, Facts, Replica, ReplicaOptions, SessionKey};
use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::{ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions};

use s3_server::S3Server;

const ROUNDS: usize = 200;
/// The size of a small session's state.
const STATE: usize = 150_000;

fn main() {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(run());
}

async fn run() {
    let server = S3Server::start().await;
    let replica = join(&server, ReplicaOptions::default()).await;
    let writes = two_writes(&server).await;
    report("the store's own two writes", writes);
    report("commit of 150 KB", commits(&replica).await);
    let (activations, reads) = activations(&replica).await;
    report("activation of a sleeping session", activations);
    report("reading its state of 150 KB", reads);
    println!("{:40} {:>8.1} s", "take-over after a crash, lease 10 s", take_over(&server).await.as_secs_f64());
    drop(replica);
    println!("{:40} {:>8.2} a second", "requests of 4 idle replicas", idle(&server).await);
}

async fn join(server: &S3Server, options: ReplicaOptions) -> Replica {
    let cluster = Cluster::open(&server.url("prefix"), &ClusterUrl::Store, &server.variables()).unwrap();
    Replica::join(&cluster, "http://replica", options).await.unwrap()
}

fn key(number: usize) -> SessionKey {
    SessionKey::from_id(&format!("session {number}"))
}

fn state(number: usize) -> Bytes {
    (0..STATE).map(|index| u8::try_from((index * 31 + number * 7) % 251).unwrap()).collect::<Vec<_>>().into()
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1000.0;
    println!("{name:40} {:>8.2} ms p50 {:>8.2} ms p95", at(50), at(95));
}

/// Writes an object and updates another one, as a commit does, without this crate.
async fn two_writes(server: &S3Server) -> Vec<Duration> {
    let mut builder = AmazonS3Builder::new().with_url("s3://bucket/plain");
    let names = ["AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    for (name, value) in server.pairs().into_iter().filter(|(name, _)| names.contains(&name.as_str())) {
        builder = builder.with_config(name.to_ascii_lowercase().parse().unwrap(), value);
    }
    let store = builder.build().unwrap();
    let record = "plain/record".into();
    let mut version = store.put(&record, vec![0; 1000].into()).await.unwrap();
    let mut times = Vec::new();
    for number in 0..ROUNDS {
        let state = state(number);
        let start = Instant::now();
        store.put(&format!("plain/{number}").into(), state.into()).await.unwrap();
        let options = PutOptions::from(PutMode::Update(version.into()));
        version = store.put_opts(&record, vec![0; 1000].into(), options).await.unwrap();
        times.push(start.elapsed());
    }
    times
}

async fn commits(replica: &Replica) -> Vec<Duration> {
    let session = replica.create(key(0), Facts::default()).await.unwrap().unwrap();
    let mut times = Vec::new();
    for number in 0..ROUNDS {
        let changes = Changes::new().put("state", state(number)).append("cells", "x += 1\n");
        let start = Instant::now();
        session.commit(changes).await.unwrap();
        times.push(start.elapsed());
    }
    times
}

async fn activations(replica: &Replica) -> (Vec<Duration>, Vec<Duration>) {
    let (mut activations, mut reads) = (Vec::new(), Vec::new());
    for number in 1..=ROUNDS {
        let session = replica.create(key(number), Facts::default()).await.unwrap().unwrap();
        session.release(Some(Changes::new().put("state", state(number)))).await.unwrap();
        let start = Instant::now();
        let Activation::Owned(session) = replica.activate(key(number)).await.unwrap() else {
            return Default::default();
        };
        activations.push(start.elapsed());
        let start = Instant::now();
        session.read_all().await.unwrap();
        reads.push(start.elapsed());
    }
    (activations, reads)
}

/// Returns the time until a session can be used whose owner has crashed just before.
async fn take_over(server: &S3Server) -> Duration {
    let key = SessionKey::from_id("crashed");
    let cluster = Cluster::open(&server.url("prefix"), &ClusterUrl::Store, &server.variables()).unwrap();
    // The runtime of the owner ends, and with it the renewal of its lease.
    let owner = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let replica = Replica::join(&cluster, "http://crashed", ReplicaOptions::default()).await.unwrap();
            let session = replica.create(key, Facts::default()).await.unwrap().unwrap();
            session.commit(Changes::new().put("state", "1")).await.unwrap();
        });
    });
    tokio::task::spawn_blocking(move || owner.join().unwrap()).await.unwrap();
    let replica = join(server, ReplicaOptions::default()).await;
    let start = Instant::now();
    let found = replica.activate_within(key, Duration::from_secs(60)).await.unwrap();
    assert!(matches!(found, Activation::Owned(_)), "{found:?}");
    start.elapsed()
}

async fn idle(server: &S3Server) -> f64 {
    let mut replicas = Vec::new();
    for _ in 0..4 {
        replicas.push(join(server, ReplicaOptions::default()).await);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = server.faults.requests.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let requests = server.faults.requests.load(Ordering::Relaxed) - before;
    drop(replicas);
    requests as f64 / 20.0
}

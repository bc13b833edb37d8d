//! The links between the members of a cluster of etcd: a proxy before each member, which can cut a member off from the
//! others in both directions. Its clients still reach it.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_testing::free_ports;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::etcd_cluster::EtcdCluster;

/// The header by which a member names itself in requests to others, in hexadecimal digits (etcd's `rafthttp`).
const FROM: &str = "x-server-from:";
/// The maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// A member that is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CutMember {
    /// Its place in the cluster.
    index: usize,
    /// Its ID.
    id: u64,
}

/// The proxies before all members. They end with their runtime.
pub(crate) struct PeerLinks {
    /// The ports of the members for clients.
    clients: Vec<u16>,
    cut: watch::Sender<Option<CutMember>>,
}

impl PeerLinks {
    /// Starts a cluster whose members reach each other through proxies.
    pub(crate) async fn start() -> (EtcdCluster, Self) {
        let ports = free_ports(6);
        let (cut, state) = watch::channel(None);
        let mut advertised = Vec::new();
        for (index, port) in ports[3..].iter().copied().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            advertised.push(listener.local_addr().unwrap().port());
            tokio::spawn(serve(listener, Arc::new(Target { index, port }), state.clone()));
        }
        let cluster = EtcdCluster::start_at(&ports, &advertised).await;
        (cluster, Self { clients: ports[..3].to_vec(), cut })
    }

    /// Cuts the leader off from the other members, in both directions. Waits until these have another leader.
    pub(crate) async fn cut_leader_off(&self) {
        let led = |status: (u64, u64)| status.0 == status.1;
        let leader = self.find(led).await;
        self.cut.send_replace(Some(leader));
        let elected = |status: (u64, u64)| led(status) && status.0 != leader.id;
        self.find(elected).await;
    }

    /// Lets all members reach each other.
    pub(crate) fn restore(&self) {
        self.cut.send_replace(None);
    }

    /// Waits until the IDs of a member and of its leader are as they should be.
    async fn find(&self, is_wanted: impl Fn((u64, u64)) -> bool) -> CutMember {
        let start = Instant::now();
        loop {
            for (index, port) in self.clients.iter().enumerate() {
                if let Ok((id, leader)) = status(*port)
                    && is_wanted((id, leader))
                {
                    return CutMember { index, id };
                }
            }
            assert!(start.elapsed() < Duration::from_secs(60), "etcd has no other leader");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Returns the IDs of a member and of its leader, which is 0 without one.
fn status(port: u16) -> io::Result<(u64, u64)> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    // Numbers of 64 bits are strings in this JSON.
    let number = |name: &str| -> Option<u64> {
        let (_, after) = answer.split_once(&format!("\"{name}\":\""))?;
        after.split_once('"')?.0.parse().ok()
    };
    let id = number("member_id").ok_or(io::ErrorKind::InvalidData)?;
    Ok((id, number("leader").unwrap_or(0)))
}

struct Target {
    index: usize,
    port: u16,
}

async fn serve(listener: TcpListener, target: Arc<Target>, cut: watch::Receiver<Option<CutMember>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (target, cut) = (target.clone(), cut.clone());
        tokio::spawn(async move { pass_on(stream, &target, cut).await });
    }
}

/// Passes one connection on until it ends or its link is cut. A member uses a connection for its own requests only.
async fn pass_on(
    mut stream: TcpStream,
    target: &Target,
    mut cut: watch::Receiver<Option<CutMember>>,
) -> io::Result<()> {
    let (head, from) = read_head(&mut stream).await?;
    let is_cut = |cut: &Option<CutMember>| {
        cut.is_some_and(|member| member.index == target.index || from.is_some_and(|from| from == member.id))
    };
    if is_cut(&cut.borrow()) {
        return Ok(());
    }
    let mut member = TcpStream::connect(("127.0.0.1", target.port)).await?;
    member.write_all(&head).await?;
    tokio::select! {
        passed = tokio::io::copy_bidirectional(&mut stream, &mut member) => passed.map(drop),
        _ = cut.wait_for(is_cut) => Ok(()),
    }
}

/// Reads the head of the first request, and what has arrived with it. Returns the ID of the member that sends it.
async fn read_head(stream: &mut TcpStream) -> io::Result<(Vec<u8>, Option<u64>)> {
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 || head.len() > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let from = text.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(FROM)?.trim(), 16).ok());
    Ok((head, from))
}

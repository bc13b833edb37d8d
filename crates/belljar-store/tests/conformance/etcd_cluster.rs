//! A cluster of three members of etcd, which tests kill, stop and continue.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use belljar_testing::free_ports;

/// A running cluster. Dropping it ends the members.
pub(crate) struct EtcdCluster {
    members: Vec<Member>,
    _directory: tempfile::TempDir,
}

struct Member {
    process: Child,
    client: u16,
    arguments: Vec<String>,
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

pub(crate) fn spawn(arguments: &[String]) -> Child {
    let mut command = Command::new("etcd");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Returns whether a member answers that it is healthy.
fn is_healthy(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.0 200"))
}

impl EtcdCluster {
    pub(crate) async fn start() -> Self {
        let ports = free_ports(6);
        Self::start_at(&ports, &ports[3..]).await
    }

    /// Starts a cluster whose members listen at these ports: three for clients, and three for other members, which use
    /// the advertised ports instead.
    pub(crate) async fn start_at(ports: &[u16], advertised: &[u16]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let initial: Vec<String> = (0..3).map(|index| format!("m{index}={}", url(advertised[index]))).collect();
        let members = (0..3).map(|index| {
            let client = url(ports[index]);
            let options = [
                ("--name", format!("m{index}")),
                ("--data-dir", directory.path().join(format!("m{index}")).to_str().unwrap().to_owned()),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", url(ports[3 + index])),
                ("--initial-advertise-peer-urls", url(advertised[index])),
                ("--initial-cluster", initial.join(",")),
            ];
            let arguments: Vec<String> =
                options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
            Member { process: spawn(&arguments), client: ports[index], arguments }
        });
        let cluster = Self { members: members.collect(), _directory: directory };
        cluster.wait_until_ready().await;
        cluster
    }

    /// Returns the ports of the members for clients.
    pub(crate) fn client_ports(&self) -> Vec<u16> {
        self.members.iter().map(|member| member.client).collect()
    }

    /// Returns the URL of the cluster for a prefix.
    pub(crate) fn url(&self, prefix: &str) -> belljar_store::ClusterUrl {
        self.address(prefix).parse().unwrap()
    }

    /// Does the same as text.
    pub(crate) fn address(&self, prefix: &str) -> String {
        let members: Vec<String> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.client)).collect();
        format!("etcd://{}/{prefix}", members.join(","))
    }

    async fn wait_until_ready(&self) {
        let start = Instant::now();
        for member in &self.members {
            while !is_healthy(member.client).unwrap_or_default() {
                assert!(start.elapsed() < Duration::from_secs(180), "etcd has not started");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    pub(crate) fn kill(&mut self, index: usize) {
        self.members[index].process.kill().unwrap();
        self.members[index].process.wait().unwrap();
    }

    pub(crate) fn restart(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.process = spawn(&member.arguments);
    }

    /// Stops a member as `SIGSTOP` does: its connections stay open.
    pub(crate) fn stop(&self, index: usize) {
        self.signal(index, "-STOP");
    }

    pub(crate) fn resume(&self, index: usize) {
        self.signal(index, "-CONT");
    }

    fn signal(&self, index: usize, signal: &str) {
        let process = self.members[index].process.id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }
}

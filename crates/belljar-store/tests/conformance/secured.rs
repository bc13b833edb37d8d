//! A member of etcd with TLS, certificates of clients, users and passwords.

use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_store::{Activation, Changes, Cluster, ClusterUrl, Replica, ReplicaOptions, Variables};
use belljar_testing::{Trial, free_ports, trial};
use object_store::memory::InMemory;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use serde_json::{Value, json};

use crate::backends::{facts, key};
use crate::etcd_cluster::spawn;
use crate::{ETCD, block_on};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("secured::etcd_with_tls_and_users", ETCD, etcd_with_tls_and_users)]
}

struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes the certificates of an authority, a server and a client.
fn write_certificates(directory: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
    for (name, purpose) in
        [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
    {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        // A gateway refuses common names once there are users.
        params.distinguished_name = DistinguishedName::new();
        // The gateway of etcd is a client of its own server.
        params.extended_key_usages = vec![purpose, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        std::fs::write(directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

async fn start(directory: &Path) -> (Member, u16, reqwest::Client) {
    let ports = free_ports(2);
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (client, peer) = (format!("https://127.0.0.1:{}", ports[0]), format!("http://127.0.0.1:{}", ports[1]));
    let options = [
        ("--data-dir", path("data")),
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client.clone()),
        ("--listen-peer-urls", peer.clone()),
        ("--initial-advertise-peer-urls", peer.clone()),
        ("--initial-cluster", format!("default={peer}")),
        ("--cert-file", path("server.pem")),
        ("--key-file", path("server.key")),
        ("--trusted-ca-file", path("ca.pem")),
    ];
    let mut arguments: Vec<String> = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    arguments.push("--client-cert-auth".to_owned());
    let member = Member(spawn(&arguments));
    let read = |name: &str| std::fs::read(directory.join(name)).unwrap();
    let identity = [read("client.pem"), read("client.key")].concat();
    let http = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&read("ca.pem")).unwrap()])
        .identity(reqwest::Identity::from_pem(&identity).unwrap())
        .build()
        .unwrap();
    let begin = Instant::now();
    while !http.get(format!("{client}/health")).send().await.is_ok_and(|answer| answer.status().is_success()) {
        assert!(begin.elapsed() < Duration::from_secs(180), "etcd has not started");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    (member, ports[0], http)
}

/// Creates the user root with a password, and makes etcd ask for it.
async fn enable_users(http: &reqwest::Client, port: u16) {
    let root = json!({ "name": "root" });
    let steps: [(&str, Value); 4] = [
        ("user/add", json!({ "name": "root", "password": "secret" })),
        ("role/add", root.clone()),
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("enable", json!({})),
    ];
    for (path, body) in steps {
        let request = http.post(format!("https://127.0.0.1:{port}/v3/auth/{path}")).body(body.to_string());
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
    }
}

fn etcd_with_tls_and_users() {
    let directory = tempfile::tempdir().unwrap();
    write_certificates(directory.path());
    block_on(async {
        let (_member, port, http) = start(directory.path()).await;
        enable_users(&http, port).await;
        let path = |name: &str| directory.path().join(name).display().to_string();
        let text = format!(
            "etcd://127.0.0.1:{port}/x?ca={}&cert={}&key={}",
            path("ca.pem"),
            path("client.pem"),
            path("client.key")
        );
        let url: ClusterUrl = text.parse().unwrap();
        let store = Arc::new(InMemory::new());
        let open =
            |variables: &Variables| Cluster::with_object_store(store.clone(), "prefix", &url, variables).unwrap();
        let user = Variables::default().with("ETCD_USERNAME", "root");
        let cluster = open(&user.clone().with("ETCD_PASSWORD", "secret"));
        cluster.probe().await.unwrap();
        let replica = Replica::join(&cluster, "http://a", ReplicaOptions::default()).await.unwrap();
        let session = replica.create(key("one"), facts("alice")).await.unwrap().unwrap();
        session.release(Some(Changes::new().put("state", "1"))).await.unwrap();
        assert!(matches!(replica.activate(key("one")).await.unwrap(), Activation::Owned(_)));
        let records = cluster.records("runs").unwrap();
        records.put("a", None, b"1").await.unwrap().unwrap();
        assert_eq!(records.list("").await.unwrap(), ["a"]);

        for refused in [Variables::default(), user.with("ETCD_PASSWORD", "wrong")] {
            let error = open(&refused).probe().await.unwrap_err();
            assert!(error.hint().contains("credentials"), "{error}");
        }
        let without = ClusterUrl::Etcd(belljar_store::EtcdUrl {
            members: vec![format!("127.0.0.1:{port}")],
            prefix: "x".to_owned(),
            tls: None,
        });
        let cluster = Cluster::with_object_store(store, "prefix", &without, &Variables::default()).unwrap();
        let error = cluster.probe().await.unwrap_err();
        assert!(matches!(error, belljar_store::ProbeError::Version { .. }), "{error}");
    });
}

//! TLS, with a certificate that openssl makes and clients that others wrote.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use super::clients;
use super::http::Listening;
use crate::harness::Belljar;
use belljar_testing::install::run;

/// A certificate for the loopback address, and its key.
pub(crate) struct Certificate(tempfile::TempDir);

impl Certificate {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(&directory)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self(directory)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn server(&self) -> Listening {
        let (certificate, key) = (self.path("cert.pem"), self.path("key.pem"));
        Listening::start("streamable-http", ["--no-install", "--tls-cert", &certificate, "--tls-key", &key])
    }
}

#[test]
fn node_and_curl_connect_over_tls_with_http_1_and_2() {
    let certificate = Certificate::new();
    let server = certificate.server();
    assert!(server.url.starts_with("https://"), "{}", server.url);
    // A silent connection does not block others.
    let _silent = TcpStream::connect(&server.address).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/tls_client.mjs");
    run(Command::new("node").arg(script).arg(&server.url).arg(certificate.path("cert.pem")));
    let (status, _) = {
        let output = Command::new("curl").args(["--silent", "--max-time", "120"]).arg(&server.url).output().unwrap();
        (output.status.code(), output.stdout)
    };
    assert_eq!(status, Some(60), "curl trusts an unsigned certificate");
}

#[test]
fn python_sdk_connects_over_tls() {
    let certificate = Certificate::new();
    let server = certificate.server();
    let mut client = clients::sdk(&server.url);
    run(client.env("SSL_CERT_FILE", certificate.path("cert.pem")).env_remove("SSL_CERT_DIR"));
}

#[test]
fn certificate_errors_are_reported_at_startup() {
    let (one, other) = (Certificate::new(), Certificate::new());
    std::fs::write(one.path("empty.pem"), "nothing\n").unwrap();
    for (certificate, key, wanted) in [
        ("/nonexistent".to_owned(), one.path("key.pem"), "failed to read /nonexistent"),
        (one.path("empty.pem"), one.path("key.pem"), "empty.pem does not contain a certificate"),
        (one.path("cert.pem"), one.path("cert.pem"), "cert.pem does not contain a private key"),
        (one.path("cert.pem"), other.path("key.pem"), "failed to use the certificate and its key"),
    ] {
        let arguments = ["sse", "--port", "0", "--tls-cert", &certificate, "--tls-key", &key];
        let run = Belljar::new().args(arguments).run();
        assert!(run.status == Some(2) && run.stderr.contains(wanted), "{wanted}: {run:?}");
    }
    let run = Belljar::new().args(["sse", "--tls-cert", "x"]).run();
    assert!(run.status == Some(2) && run.stderr.contains("--tls-key"), "{run:?}");
}

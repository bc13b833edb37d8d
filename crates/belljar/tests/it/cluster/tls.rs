//! Replicas that pass requests on over TLS.

use std::process::Command;

use serde_json::{Value, json};

use super::Shared;
use crate::serve::http::Listening;
use crate::serve::tls::Certificate;

/// Starts a replica with a certificate. It accepts those of `trusted` in place of the machine's.
fn replica(shared: &Shared, certificate: &Certificate, trusted: &Certificate) -> Listening {
    let (chain, key) = (certificate.path("cert.pem"), certificate.path("key.pem"));
    let arguments = ["--toolset", "interpreter", "--tls-cert", &chain, "--tls-key", &key];
    let belljar = shared.belljar("streamable-http-stateless", &arguments);
    Listening::spawn(belljar.env("SSL_CERT_FILE", trusted.path("cert.pem")))
}

/// Runs a cell by curl, and returns the answer.
fn cell(replica: &Listening, certificate: &Certificate, session: &str, code: &str) -> String {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "execute_code", "arguments": { "code": code, "session_id": session } } });
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "180", "--cacert", &certificate.path("cert.pem")])
        .args(["--header", "Content-Type: application/json"])
        .args(["--header", "Accept: application/json, text/event-stream"])
        .args(["--data", &call.to_string(), &replica.url])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn content(answer: &str) -> Value {
    let message: Value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    message["result"]["structuredContent"].clone()
}

#[test]
fn requests_are_passed_on_to_certificates_that_are_trusted() {
    let shared = Shared::new();
    let (ours, other) = (Certificate::new(), Certificate::new());
    let [one, two] = [replica(&shared, &ours, &ours), replica(&shared, &ours, &ours)];
    let opened = content(&cell(&one, &ours, "", "x = 1"));
    let session = opened["session_info"]["session_id"].as_str().unwrap_or_else(|| panic!("{opened:#}"));
    assert_eq!(content(&cell(&two, &ours, session, "x += 1\nx"))["result"], "2");
    let three = replica(&shared, &ours, &other);
    let refused = cell(&three, &ours, session, "x");
    assert!(refused.contains("certificate"), "{refused}");
    assert_eq!(content(&cell(&one, &ours, session, "x"))["result"], "2");
}

//! The answer to a request for TLS, which precedes the plain text of the server: a length and JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::{CipherSuite, ProtocolVersion};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::TlsFailure;

/// Returns the answer for an established connection.
pub(crate) fn success_answer(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    let connection = stream.get_ref().1;
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLSv1.3",
    };
    let (name, bits) = connection.negotiated_cipher_suite().map_or(("", 0), |suite| cipher(suite.suite()));
    let certificates = connection.peer_certificates().unwrap_or_default();
    framed(&json!({
        "version": version,
        "cipher": [name, version, bits],
        "alpn": connection.alpn_protocol().map(String::from_utf8_lossy),
        "certificates": certificates.iter().map(|der| STANDARD.encode(der)).collect::<Vec<_>>(),
    }))
}

/// Returns the answer for a handshake that failed.
pub(crate) fn failure_answer(failure: &TlsFailure) -> Vec<u8> {
    let error = match failure {
        TlsFailure::Certificate(failure) => json!({
            "kind": "certificate",
            "message": format!("certificate verify failed: {}", failure.message),
            "verify_code": failure.code,
            "verify_message": failure.message,
        }),
        TlsFailure::Protocol(message) => json!({ "kind": "tls", "message": message }),
        TlsFailure::Refused(message) => json!({ "kind": "refused", "message": message }),
    };
    framed(&json!({ "error": error }))
}

fn framed(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

/// Returns OpenSSL's name of a cipher and the bits of its key.
fn cipher(suite: CipherSuite) -> (&'static str, u32) {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => ("TLS_AES_128_GCM_SHA256", 128),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => ("TLS_AES_256_GCM_SHA384", 256),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => ("TLS_CHACHA20_POLY1305_SHA256", 256),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-ECDSA-AES128-GCM-SHA256", 128),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-ECDSA-AES256-GCM-SHA384", 256),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-ECDSA-CHACHA20-POLY1305", 256),
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-RSA-AES128-GCM-SHA256", 128),
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-RSA-AES256-GCM-SHA384", 256),
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-RSA-CHACHA20-POLY1305", 256),
        _ => ("", 0),
    }
}

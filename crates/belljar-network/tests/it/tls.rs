//! TLS that the code asks for within its connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::client::{Setup, World, policy, verified, world};
use crate::server::{Certificate, Server, authority_pem, http, pem, response, tls, tls_with};

fn https(names: &[&str]) -> Server {
    Server::start_tls(tls(names), http(|_| response(b"hello")))
}

/// Returns the error of a handshake.
fn error(kind: Certificate, names: &[&str]) -> (i64, String) {
    let server = Server::start_tls(tls_with(kind, names, &[]).0, |_, _| {});
    let world = world(server.port);
    let client = world.connect("a.test", server.port);
    let answer = client.start_tls(&verified("a.test"));
    assert_eq!(answer["error"]["kind"], "certificate", "{answer}");
    assert_eq!(client.read_rest(), b"");
    drop(client);
    assert!(world.records.wait(1)[0].error.as_deref().unwrap().starts_with("certificate verify failed: "));
    (answer["error"]["verify_code"].as_i64().unwrap(), answer["error"]["verify_message"].as_str().unwrap().to_owned())
}

#[test]
fn the_answer_describes_the_connection() {
    let (config, leaf) = tls_with(Certificate::Valid, &["a.test"], &["http/1.1"]);
    let server = Server::start_tls(config, http(|_| response(b"hello")));
    let client = world(server.port).connect("a.test", server.port);
    let answer = client.start_tls(&verified("A.test"));
    assert_eq!(answer["version"], "TLSv1.3");
    assert_eq!(answer["cipher"][1], "TLSv1.3");
    assert_eq!(answer["alpn"], "http/1.1");
    assert_eq!(
        pem(&leaf),
        format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            answer["certificates"][0].as_str().unwrap()
        )
    );
    assert_eq!(client.get("/", "").text(), "hello");
}

#[test]
fn certificates_that_are_not_valid_have_the_errors_of_openssl() {
    assert_eq!(error(Certificate::Expired, &["a.test"]), (10, "certificate has expired".to_owned()));
    assert_eq!(error(Certificate::NotYetValid, &["a.test"]), (9, "certificate is not yet valid".to_owned()));
    assert_eq!(error(Certificate::SelfSigned, &["a.test"]), (18, "self-signed certificate".to_owned()));
    assert_eq!(error(Certificate::SelfSignedAuthority, &["a.test"]), (18, "self-signed certificate".to_owned()));
    let in_chain = "self-signed certificate in certificate chain".to_owned();
    assert_eq!(error(Certificate::UnknownAuthority, &["a.test"]), (19, in_chain));
    assert_eq!(
        error(Certificate::MissingAuthority, &["a.test"]),
        (20, "unable to get local issuer certificate".to_owned())
    );
    assert_eq!(
        error(Certificate::Valid, &["b.test"]),
        (62, "Hostname mismatch, certificate is not valid for 'a.test'.".to_owned())
    );
}

#[test]
fn an_address_has_to_be_in_the_certificate() {
    let server = https(&["127.0.0.1"]);
    let world = Setup::new(&format!("allow = ['127.0.0.1:{}', '127.0.0.2:{}']", server.port, server.port)).build();
    let client = world.connect_address("127.0.0.1", server.port);
    assert_eq!(client.start_tls(&verified("127.0.0.1"))["error"], Value::Null);
    let client = world.connect_address("127.0.0.1", server.port);
    let answer = client.start_tls(&verified("127.0.0.2"));
    assert_eq!(answer["error"]["verify_code"], 64);
    assert_eq!(answer["error"]["verify_message"], "IP address mismatch, certificate is not valid for '127.0.0.2'.");
}

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut request = verified("a.test");
    change(&mut request);
    request
}

#[test]
fn the_code_may_accept_less_or_trust_its_own_authority() {
    let (config, leaf) = tls_with(Certificate::SelfSignedAuthority, &["b.test"], &[]);
    let server = Server::start_tls(config, http(|_| response(b"hello")));
    let world = world(server.port);
    let start = |request: &Value| world.connect("a.test", server.port).start_tls(request)["error"].clone();
    assert_eq!(start(&with(|request| request["verify"] = json!(false))), Value::Null);
    let ca = pem(&leaf);
    assert_eq!(start(&with(|request| request["ca"] = json!(ca)))["verify_code"], 62);
    let without_name = with(|request| {
        request["ca"] = json!(ca);
        request["check_hostname"] = json!(false);
    });
    assert_eq!(start(&without_name), Value::Null);
    assert_eq!(start(&with(|request| request["ca"] = json!("no certificate")))["kind"], "tls");
    // The authority of the code replaces those of the host.
    let server = https(&["a.test"]);
    let world = crate::client::world(server.port);
    let answer = world.connect("a.test", server.port).start_tls(&with(|request| request["ca"] = json!(ca)));
    assert_eq!(answer["error"]["kind"], "certificate");
    let answer =
        world.connect("a.test", server.port).start_tls(&with(|request| request["ca"] = json!(authority_pem())));
    assert_eq!(answer["error"], Value::Null);
}

#[test]
fn versions_and_protocols_are_negotiated() {
    let (config, _) = tls_with(Certificate::Valid, &["a.test"], &["h2", "http/1.1", "postgresql"]);
    let mut old = (*config).clone();
    old.alpn_protocols.clear();
    let server = Server::start_tls(config, |_, _| {});
    let world = world(server.port);
    let alpn = |offer: &[&str]| {
        let request = with(|request| request["alpn"] = json!(offer));
        world.connect("a.test", server.port).start_tls(&request)["alpn"].clone()
    };
    assert_eq!(alpn(&["h2", "http/1.1"]), "http/1.1");
    assert_eq!(alpn(&["h2"]), "http/1.1");
    assert_eq!(alpn(&["postgresql"]), "postgresql");
    assert_eq!(alpn(&[]), Value::Null);
    let answer = world.connect("a.test", server.port).start_tls(&with(|request| request["minimum"] = json!("TLSv1.3")));
    assert_eq!(answer["version"], "TLSv1.3");
    let answer = world.connect("a.test", server.port).start_tls(&with(|request| request["minimum"] = json!("x")));
    assert_eq!(answer["error"]["kind"], "tls");
}

#[test]
fn an_old_version_is_reported_with_its_cipher() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let server = Server::start_tls(Arc::new(config), |_, _| {});
    let world = world(server.port);
    let answer = world.connect("a.test", server.port).start_tls(&with(|request| request["verify"] = json!(false)));
    assert_eq!(answer["version"], "TLSv1.2");
    assert!(answer["cipher"][0].as_str().unwrap().starts_with("ECDHE-ECDSA-"), "{answer}");
    let only_new = with(|request| request["minimum"] = json!("TLSv1.3"));
    assert_eq!(world.connect("a.test", server.port).start_tls(&only_new)["error"]["kind"], "tls");
}

/// Attack: domain fronting.
#[test]
fn the_name_in_tls_has_to_be_that_of_the_connection() {
    let server = https(&["a.test", "b.test"]);
    let policy = format!(
        "allow = ['a.test:*', 'b.test:*', '127.0.0.1:{}']\nresolve = {{ 'a.test' = '127.0.0.1' }}",
        server.port
    );
    let world = Setup::new(&policy).build();
    for name in ["b.test", "evil.test", "127.0.0.1", "a.test\0.evil.test", ""] {
        let answer = world.connect("a.test", server.port).start_tls(&verified(name));
        assert_eq!(answer["error"]["kind"], "refused", "{name}: {answer}");
    }
    let answer = world.connect_address("127.0.0.1", server.port).start_tls(&verified("evil.test"));
    assert_eq!(answer["error"]["kind"], "refused");
    assert!(answer["error"]["message"].as_str().unwrap().contains("network access to evil.test:"));
    let client = world.connect_address("127.0.0.1", server.port);
    assert_eq!(client.start_tls(&verified("b.test"))["error"], Value::Null);
    assert_eq!(client.request("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n").text(), "hello");
    assert_eq!(server.seen().matches("GET").count(), 1);
}

#[test]
fn a_server_without_tls_is_an_error() {
    let server = Server::start(|stream, _| drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")));
    let answer = world(server.port).connect("a.test", server.port).start_tls(&verified("a.test"));
    assert_eq!(answer["error"]["kind"], "tls", "{answer}");
    let server = Server::start(|_, _| {});
    let answer = world(server.port).connect("a.test", server.port).start_tls(&verified("a.test"));
    assert_eq!(answer["error"]["kind"], "tls", "{answer}");
}

#[test]
fn a_request_in_single_bytes_is_understood() {
    let server = https(&["a.test"]);
    let world = world(server.port);
    let client = world.connect("a.test", server.port);
    let text = verified("a.test").to_string();
    let token = world.connections.tls_token();
    let message = [&token[..], &u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
    for byte in message {
        client.write_all(&[byte]).unwrap();
    }
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    assert_eq!(client.tls_answer()["error"], Value::Null);
    assert_eq!(client.response().unwrap().text(), "hello");
}

/// Attack: the request for TLS of one process as a way into another: the token is random.
#[test]
fn the_token_is_random() {
    let tokens: Vec<[u8; 16]> = (0..3).map(|_| world(443).connections.tls_token()).collect();
    assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2]);
}

#[test]
fn requests_for_tls_are_bounded() {
    let server = https(&["a.test"]);
    let world = world(server.port);
    let client = world.connect("a.test", server.port);
    let message = [&world.connections.tls_token()[..], &u32::MAX.to_be_bytes()].concat();
    assert_eq!(client.write_all(&message).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
}

#[test]
fn starttls_encrypts_a_connection_that_was_plain() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = tls(&["a.test"]);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 ready\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "STARTTLS\r\n");
        stream.write_all(b"220 go\r\n").unwrap();
        let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
        stream.write_all(b"secure\r\n").unwrap();
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"QUIT");
    });
    let world = world(port);
    let client = world.connect("a.test", port);
    assert_eq!(client.read_exact(11).unwrap(), b"220 ready\r\n");
    client.write_all(b"STARTTLS\r\n").unwrap();
    assert_eq!(client.read_exact(8).unwrap(), b"220 go\r\n");
    assert_eq!(client.start_tls(&verified("a.test"))["error"], Value::Null);
    assert_eq!(client.read_exact(8).unwrap(), b"secure\r\n");
    client.write_all(b"QUIT").unwrap();
    server.join().unwrap();
}

/// Attack: plain text that a man in the middle adds before TLS is not taken for encrypted text.
#[test]
fn plain_text_before_the_handshake_is_not_taken_for_encrypted_text() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 go\r\n").unwrap();
        let mut hello = [0; 1];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(b"250 injected\r\n").unwrap();
    });
    let world: World = Setup::new(&policy(port)).build();
    let client = world.connect("a.test", port);
    assert_eq!(client.read_exact(8).unwrap(), b"220 go\r\n");
    assert_eq!(client.start_tls(&verified("a.test"))["error"]["kind"], "tls");
    assert_eq!(client.read_rest(), b"");
}

/// Attack: a server, or a man in the middle, sends an answer to the request for TLS in plain text, and a page after it.
#[test]
fn an_answer_of_the_server_is_not_taken_for_that_of_the_host() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let text = json!({ "version": "TLSv1.3", "cipher": ["x", "TLSv1.3", 1], "alpn": null, "certificates": [] })
            .to_string();
        let answer =
            [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes(), b"HTTP/1.1 200 OK\r\n\r\nforged"]
                .concat();
        stream.write_all(&answer).unwrap();
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest));
    });
    let world: World = Setup::new(&policy(port)).build();
    let client = world.connect("a.test", port);
    while !client.connection.readiness().readable {
        std::thread::yield_now();
    }
    let answer = client.start_tls(&verified("a.test"));
    assert_eq!(answer["error"]["kind"], "tls", "{answer}");
    assert_eq!(client.read_rest(), b"");
}

#[test]
fn tls_is_asked_for_once() {
    let server = Server::start_tls(tls(&["a.test"]), |stream, seen| {
        let mut bytes = [0; 16];
        drop(stream.read_exact(&mut bytes));
        seen.lock().unwrap().extend(bytes);
        drop(stream.write_all(b"ok"));
    });
    let world = world(server.port);
    let client = world.connect_tls("a.test", server.port);
    client.write_all(&world.connections.tls_token()).unwrap();
    assert_eq!(client.read_exact(2).unwrap(), b"ok");
    assert_eq!(*server.seen.lock().unwrap(), world.connections.tls_token());
}

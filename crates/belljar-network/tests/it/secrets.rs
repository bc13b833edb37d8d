//! Secrets in requests: put in for their hosts over verified TLS, and nowhere else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_network::{Network, NetworkOptions, Policy, Secrets};
use serde_json::json;

use crate::client::{Client, Setup, World, verified};
use crate::server::{Certificate, Server, http, pem, response, tls, tls_with};

pub(crate) const SECRET: &str = "s3cret/valu3+with=signs";

/// A server that stores what it receives.
fn server() -> Server {
    Server::start_tls(tls(&["a.test", "b.test", "127.0.0.1"]), http(|_| response(b"ok")))
}

fn policy(port: u16) -> String {
    format!(
        "allow = ['a.test:{port}', 'b.test:{port}', '127.0.0.1:{port}']\n\
         resolve = {{ 'a.test' = '127.0.0.1', 'b.test' = '127.0.0.1' }}"
    )
}

fn world(server: &Server) -> World {
    Setup::new(&policy(server.port)).secret("TOKEN", &format!("a.test:{}", server.port), SECRET).build()
}

fn get(client: &Client, name: &str, headers: &str) {
    let answer = client.request(&format!("GET / HTTP/1.1\r\nHost: {name}\r\n{headers}\r\n"));
    assert_eq!(answer.status, 200);
}

#[test]
fn placeholders_in_headers_become_the_secret() {
    let server = server();
    let world = world(&server);
    let placeholder = world.placeholder("TOKEN");
    assert!(placeholder.len() >= 24 && !placeholder.contains(SECRET));
    let client = world.connect_tls("a.test", server.port);
    get(&client, "a.test", &format!("Authorization: Bearer {placeholder}\r\nX-Key: <{placeholder}>\r\n"));
    let seen = server.seen();
    assert!(seen.contains(&format!("Authorization: Bearer {SECRET}\r\nX-Key: <{SECRET}>\r\n")), "{seen}");
    assert!(seen.contains("Accept-Encoding: identity\r\n"));
}

#[test]
fn placeholders_in_basic_authorization_become_the_secret() {
    let server = server();
    let world = world(&server);
    let placeholder = world.placeholder("TOKEN");
    let client = world.connect_tls("a.test", server.port);
    for credentials in ["user:PLACE", "PLACE:", "PLACE:x"] {
        let encoded = STANDARD.encode(credentials.replace("PLACE", &placeholder));
        get(&client, "a.test", &format!("Authorization: Basic {encoded}\r\n"));
        let expected = STANDARD.encode(credentials.replace("PLACE", SECRET));
        assert!(server.seen().contains(&format!("Authorization: Basic {expected}\r\n")));
    }
}

#[test]
fn a_rule_sets_a_header_with_a_secret() {
    let server = server();
    let policy = format!(
        "resolve = {{ 'a.test' = '127.0.0.1' }}\n[[allow.'a.test:{}']]\nmatch = {{ method = 'GET' }}\n\
         transform = {{ headers = {{ authorization = 'Bearer ${{TOKEN}}' }} }}",
        server.port
    );
    let world = Setup::new(&policy).secret("TOKEN", &format!("a.test:{}", server.port), SECRET).build();
    let client = world.connect_tls("a.test", server.port);
    get(&client, "a.test", "Authorization: Bearer mine\r\n");
    let seen = server.seen();
    assert!(seen.contains(&format!("authorization: Bearer {SECRET}\r\n")) && !seen.contains("mine"), "{seen}");
    // Without TLS the rule cannot be followed, and the request is not sent without the header, either.
    let plain = Server::start(http(|_| response(b"ok")));
    let policy = policy.replace(&server.port.to_string(), &plain.port.to_string());
    let world = Setup::new(&policy).secret("TOKEN", &format!("a.test:{}", plain.port), SECRET).build();
    assert_eq!(world.connect("a.test", plain.port).get("/", "").status, 403);
    assert_eq!(plain.seen(), "");
}

/// Checks that a connection does not carry the secret.
fn is_never_sent(server: &Server, world: &World, client: &Client, name: &str) {
    let placeholder = world.placeholder("TOKEN");
    let basic = STANDARD.encode(format!("user:{placeholder}"));
    client.send(&format!(
        "GET /{placeholder} HTTP/1.1\r\nHost: {name}\r\nX: {placeholder}\r\nAuthorization: Basic {basic}\r\n\r\n"
    ));
    drop(client.response());
    let seen = server.seen();
    assert!(seen.contains(&placeholder) && !seen.contains(SECRET), "{seen}");
    assert!(!seen.contains(&STANDARD.encode(format!("user:{SECRET}"))));
}

/// Attack: the secret for another host.
#[test]
fn other_hosts_get_the_placeholder() {
    let server = server();
    let world = world(&server);
    is_never_sent(&server, &world, &world.connect_tls("b.test", server.port), "b.test");
    let client = world.connect_address("127.0.0.1", server.port);
    assert_eq!(client.start_tls(&verified("127.0.0.1"))["error"], serde_json::Value::Null);
    is_never_sent(&server, &world, &client, "127.0.0.1");
    // A connection to an address, with the name of the host in TLS.
    let client = world.connect_address("127.0.0.1", server.port);
    assert_eq!(client.start_tls(&verified("a.test"))["error"], serde_json::Value::Null);
    is_never_sent(&server, &world, &client, "a.test");
}

/// Attack: the secret in clear text.
#[test]
fn connections_without_tls_get_the_placeholder() {
    let server = Server::start(http(|_| response(b"ok")));
    let world = world(&server);
    is_never_sent(&server, &world, &world.connect("a.test", server.port), "a.test");
}

/// Attack: the secret for a server that the host does not trust.
#[test]
fn servers_that_the_host_does_not_trust_get_the_placeholder() {
    let (config, leaf) = tls_with(Certificate::SelfSigned, &["a.test"], &[]);
    let server = Server::start_tls(config, http(|_| response(b"ok")));
    let world = world(&server);
    for (verify, check_hostname, ca) in
        [(false, false, None), (false, false, Some(pem(&leaf))), (true, true, Some(pem(&leaf)))]
    {
        let client = world.connect("a.test", server.port);
        let answer = client.start_tls(&json!({
            "server_hostname": "a.test", "verify": verify, "check_hostname": check_hostname, "ca": ca,
        }));
        assert_eq!(answer["error"], serde_json::Value::Null);
        is_never_sent(&server, &world, &client, "a.test");
    }
    // A trusted certificate for another name.
    let server = Server::start_tls(tls(&["b.test"]), http(|_| response(b"ok")));
    let world = crate::secrets::world(&server);
    let client = world.connect("a.test", server.port);
    let answer = client.start_tls(&json!({ "server_hostname": "a.test", "verify": true, "check_hostname": false }));
    assert_eq!(answer["error"], serde_json::Value::Null);
    is_never_sent(&server, &world, &client, "a.test");
}

#[test]
fn the_authorities_of_the_code_are_no_obstacle_if_the_host_trusts_the_server() {
    let server = server();
    let world = world(&server);
    let client = world.connect("a.test", server.port);
    let ca = crate::server::authority_pem();
    let request = json!({ "server_hostname": "a.test", "verify": true, "check_hostname": true, "ca": ca });
    assert_eq!(client.start_tls(&request)["error"], serde_json::Value::Null);
    get(&client, "a.test", &format!("X: {}\r\n", world.placeholder("TOKEN")));
    assert!(server.seen().contains(&format!("X: {SECRET}")));
}

/// Attack: the secret in a place that servers store or show.
#[test]
fn paths_names_of_headers_and_bodies_keep_the_placeholder() {
    let server = server();
    let world = world(&server);
    let placeholder = world.placeholder("TOKEN");
    let client = world.connect_tls("a.test", server.port);
    let request = format!(
        "POST /{placeholder}?q={placeholder} HTTP/1.1\r\nHost: a.test\r\n{placeholder}: x\r\nContent-Length: {}\r\n\r\n{placeholder}",
        placeholder.len()
    );
    assert_eq!(client.request(&request).status, 200);
    assert_eq!(server.seen().matches(&placeholder).count(), 4);
    assert!(!server.seen().contains(SECRET));
}

/// Attack: other spellings of the placeholder, or parts of it.
#[test]
fn other_spellings_of_the_placeholder_stay() {
    let server = server();
    let world = world(&server);
    let placeholder = world.placeholder("TOKEN");
    let client = world.connect_tls("a.test", server.port);
    for value in [
        placeholder.to_ascii_lowercase() + "_",
        placeholder[1..].to_owned(),
        placeholder.chars().rev().collect(),
        STANDARD.encode(&placeholder),
        format!("{} {}", &placeholder[..10], &placeholder[10..]),
        "${TOKEN}".to_owned(),
        "TOKEN".to_owned(),
    ] {
        get(&client, "a.test", &format!("X: {value}\r\n"));
        assert!(server.seen().contains(&format!("X: {value}\r\n")));
    }
    assert!(!server.seen().contains(SECRET));
}

/// Attack: a line break within a header, to place the secret in a header or request of the code's choice.
#[test]
fn line_breaks_in_headers_do_not_reach_the_server() {
    for value in ["a\rb", "a\nb", "a\r\n\tb", "a\0b"] {
        let server = server();
        let world = world(&server);
        let client = world.connect_tls("a.test", server.port);
        client.send(&format!("GET / HTTP/1.1\r\nHost: a.test\r\nX: {value}{}\r\n\r\n", world.placeholder("TOKEN")));
        assert_eq!(client.read_rest(), b"", "{value:?}");
        assert_eq!(server.seen(), "");
    }
    // Within the credentials of Basic the break is encoded, and stays so.
    let server = server();
    let world = world(&server);
    let client = world.connect_tls("a.test", server.port);
    let encoded = STANDARD.encode(format!("a\r\nX-Injected: {}", world.placeholder("TOKEN")));
    get(&client, "a.test", &format!("Authorization: Basic {encoded}\r\n"));
    assert!(!server.seen().contains("X-Injected"));
}

#[test]
fn records_contain_no_secrets() {
    let server = server();
    let world = world(&server);
    let client = world.connect_tls("a.test", server.port);
    assert_eq!(client.get(&format!("/{SECRET}"), "").status, 200);
    let record = &world.records.wait(1)[0];
    assert_eq!(record.path.as_deref(), Some(format!("/{}", "*".repeat(SECRET.len())).as_str()));
}

#[test]
fn secrets_need_hosts_that_the_policy_allows() {
    let mut secrets = Secrets::new();
    secrets.add("TOKEN", &["c.test"], SECRET.to_owned()).unwrap();
    let policy = Policy::from_toml("allow = ['a.test']").unwrap();
    let error = Network::new(NetworkOptions { policy, secrets, ..NetworkOptions::default() }).unwrap_err();
    assert_eq!(error.to_string(), "the secret TOKEN is for c.test:443,80, which the network policy does not allow");
}

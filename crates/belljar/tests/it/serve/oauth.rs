//! Tokens of an OAuth issuer. The issuer is a small server in the test; its keys and signatures are real.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
    RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::http::{Listening, call, hello};
use crate::harness::Belljar;
use crate::monty_worker::script;

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key of the issuer.
enum Key {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Key {
    fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().unwrap())
    }

    /// Returns the public key as a JWK.
    fn public(&self, id: &str) -> Value {
        match self {
            Self::Rsa(key) => {
                // SEQUENCE { INTEGER n, INTEGER e }; n has 256 bytes and a zero before them, e has 3.
                let der = key.public_key().as_ref();
                assert_eq!(der.len(), 270, "the key has another size");
                let (n, e) = (&der[9..265], &der[267..]);
                json!({ "kty": "RSA", "kid": id, "use": "sig", "n": base64(n), "e": base64(e) })
            }
            Self::Ec(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "kid": id, "crv": "P-256", "alg": "ES256", "x": base64(x), "y": base64(y) })
            }
            Self::Ed(key) => json!({ "kty": "OKP", "kid": id, "crv": "Ed25519", "x": base64(key.public_key()) }),
        }
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                let padding = if algorithm == "PS256" { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                key.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
            Self::Ec(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
        }
    }

    /// Returns a token with this header and these claims.
    fn token(&self, id: &str, algorithm: &str, claims: &Value) -> String {
        let header = json!({ "alg": algorithm, "kid": id, "typ": "at+jwt" });
        let message = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        format!("{message}.{}", base64(self.sign(algorithm, message.as_bytes())))
    }
}

/// An issuer that listens on a loopback address until the tests end.
struct Issuer {
    url: String,
    keys: Arc<Mutex<Vec<Value>>>,
    asked: Arc<AtomicUsize>,
}

impl Issuer {
    fn start(keys: Vec<Value>) -> Self {
        Self::start_as(keys, None)
    }

    /// Starts an issuer whose metadata name `name` as the issuer.
    fn start_as(keys: Vec<Value>, name: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let issuer = Self { url: url.clone(), keys: Arc::new(Mutex::new(keys)), asked: Arc::default() };
        let name = name.unwrap_or(&url).to_owned();
        let (keys, asked) = (issuer.keys.clone(), issuer.asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                while lines.next().is_some_and(|line| !line.is_empty()) {}
                asked.fetch_add(1, Ordering::Relaxed);
                let answer = match first.split(' ').nth(1) {
                    Some("/.well-known/oauth-authorization-server") => {
                        Some(json!({ "issuer": name, "jwks_uri": format!("{url}/keys") }))
                    }
                    Some("/keys") => Some(json!({ "keys": *keys.lock().unwrap() })),
                    _ => None,
                };
                let status = if answer.is_some() { "200 OK" } else { "404 Not Found" };
                let body = answer.unwrap_or_default().to_string();
                let length = body.len();
                // The client may have disconnected.
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
                );
            }
        });
        issuer
    }

    /// Returns claims that are valid for half an hour.
    fn claims(&self) -> Value {
        json!({ "iss": self.url, "aud": "belljar", "sub": "alice", "iat": now(), "exp": now() + 1800 })
    }

    fn claims_with(&self, changes: Value) -> Value {
        let mut claims = self.claims();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => claims.as_object_mut().unwrap().remove(name),
                value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
            };
        }
        claims
    }

    fn server(&self) -> Listening {
        self.server_of("streamable-http")
    }

    fn server_of(&self, command: &str) -> Listening {
        Listening::start(command, ["--no-install", "--oauth-issuer", &self.url, "--oauth-audience", "belljar"])
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn ask(server: &Listening, token: &str) -> (u16, String) {
    server.post(&[("Authorization", &format!("Bearer {token}"))], &hello())
}

#[test]
fn every_key_type_is_accepted() {
    let (rsa, ec, ed) = (Key::rsa(), Key::ec(), Key::ed());
    // Keys of unknown types are ignored.
    let strange = json!({ "kty": "ABC", "kid": "strange" });
    let issuer = Issuer::start(vec![strange, rsa.public("r"), ec.public("e"), ed.public("d")]);
    let server = issuer.server();
    for token in [
        rsa.token("r", "RS256", &issuer.claims()),
        rsa.token("r", "PS256", &issuer.claims()),
        ec.token("e", "ES256", &issuer.claims()),
        ed.token("d", "EdDSA", &issuer.claims()),
        ec.token("e", "ES256", &issuer.claims_with(json!({ "aud": ["other", "belljar"] }))),
    ] {
        let (status, text) = ask(&server, &token);
        assert_eq!(status, 200, "{text}");
    }
}

#[test]
fn missing_token_response_names_the_issuer() {
    let issuer = Issuer::start(Vec::new());
    for (command, path) in [("streamable-http", "/mcp"), ("streamable-http-stateless", "/mcp"), ("sse", "/sse")] {
        let server = issuer.server_of(command);
        let (status, text) = server.send("GET", path, &[], "");
        let metadata = format!("/.well-known/oauth-protected-resource{path}");
        let challenge = format!("Bearer resource_metadata=\"http://{}{metadata}\"", server.address);
        assert!(status == 401 && text.contains(&challenge), "{text}");
        assert_eq!(server.send("GET", "/metrics", &[], "").0, 401);
        for place in [metadata.as_str(), "/.well-known/oauth-protected-resource"] {
            let (status, text) = server.send("GET", place, &[], "");
            assert_eq!(status, 200, "{text}");
            let metadata: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
            assert_eq!(metadata["resource"], format!("http://{}{path}", server.address));
            assert_eq!(metadata["authorization_servers"], json!([issuer.url]));
        }
        assert_eq!(server.send("GET", "/.well-known/oauth-authorization-server", &[], "").0, 404);
    }
    assert_eq!(issuer.asked.load(Ordering::Relaxed), 0, "the issuer need not be asked about no token");
}

#[test]
fn audience_that_is_a_url_is_the_resource() {
    let arguments =
        ["--oauth-issuer", "https://issuer.example", "--oauth-audience", "https://mcp.example/mcp", "--no-install"];
    let server = Listening::start("streamable-http", arguments);
    let (_, text) = server.send("POST", "/mcp", &[], "");
    assert!(text.contains("\"https://mcp.example/.well-known/oauth-protected-resource/mcp\""), "{text}");
    let (_, text) = server.send("GET", "/.well-known/oauth-protected-resource/mcp", &[], "");
    assert!(text.contains("\"resource\":\"https://mcp.example/mcp\""), "{text}");
}

#[test]
fn invalid_tokens_are_refused_with_the_reason() {
    let (rsa, ec, other) = (Key::rsa(), Key::ec(), Key::ec());
    let secret = {
        let mut key = ec.public("secret");
        key["use"] = json!("enc");
        key
    };
    let issuer = Issuer::start(vec![rsa.public("r"), ec.public("e"), secret]);
    let server = issuer.server();
    let begin = Instant::now();
    let good = ec.token("e", "ES256", &issuer.claims());
    assert_eq!(ask(&server, &good).0, 200);
    let [header, claims, signature] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let none = base64(json!({ "alg": "none", "kid": "e" }).to_string());
    let with = |changes| ec.token("e", "ES256", &issuer.claims_with(changes));
    let admin = base64(issuer.claims_with(json!({ "sub": "admin" })).to_string());
    for (token, reason) in [
        (with(json!({ "aud": "another" })), "it is for another audience"),
        (with(json!({ "aud": null })), "it lacks one of the claims"),
        (with(json!({ "iss": "https://issuer.example" })), "it is from another issuer"),
        (with(json!({ "iss": null })), "it lacks one of the claims"),
        (with(json!({ "exp": now() - 120 })), "it has expired"),
        (with(json!({ "exp": null })), "it lacks one of the claims"),
        (with(json!({ "sub": null })), "it lacks one of the claims"),
        (with(json!({ "sub": "" })), "its claim sub is empty"),
        (with(json!({ "nbf": now() + 600 })), "it is not valid yet"),
        (other.token("e", "ES256", &issuer.claims()), "its signature is not valid"),
        (format!("{header}.{admin}.{signature}"), "its signature is not valid"),
        (format!("{header}.{claims}."), "its signature is not valid"),
        (format!("{none}.{claims}."), "it is not a signed JWT"),
        (format!("{none}.{claims}.{signature}"), "it is not a signed JWT"),
        (ec.token("e", "HS256", &issuer.claims()), "its signature algorithm is not accepted"),
        (rsa.token("e", "RS256", &issuer.claims()), "a key that is not the issuer's"),
        (ec.token("r", "ES256", &issuer.claims()), "a key that is not the issuer's"),
        (ec.token("unknown", "ES256", &issuer.claims()), "a key that is not the issuer's"),
        (ec.token("secret", "ES256", &issuer.claims()), "a key that is not the issuer's"),
        ("nonsense".into(), "it is not a signed JWT"),
        ("a.b.c".into(), "it is not a signed JWT"),
        ("x".repeat(20_000), "it is too long"),
    ] {
        let (status, text) = ask(&server, &token);
        assert_eq!(status, 401, "{token}: {text}");
        assert!(text.contains("error=\"invalid_token\"") && text.contains(reason), "{reason}: {text}");
    }
    // Invalid tokens do not make the server ask the issuer each time: it waits for five seconds at least.
    let (asked, time) = (issuer.asked.load(Ordering::Relaxed), begin.elapsed());
    assert!(asked as u64 <= 4 * (1 + time.as_secs() / 5), "{asked} requests in {time:?}");
}

#[test]
fn a_new_key_is_found_and_an_old_one_ends() {
    let (first, second) = (Key::ec(), Key::rsa());
    let issuer = Issuer::start(vec![first.public("1")]);
    let server = issuer.server();
    let old = first.token("1", "ES256", &issuer.claims());
    let new = second.token("2", "RS256", &issuer.claims());
    assert_eq!([ask(&server, &old).0, ask(&server, &new).0], [200, 401]);
    *issuer.keys.lock().unwrap() = vec![second.public("2")];
    let begin = Instant::now();
    while ask(&server, &new).0 != 200 {
        assert!(begin.elapsed() < Duration::from_secs(180), "the new key is never found");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(ask(&server, &old).0, 401);
}

#[test]
fn unreachable_issuer_refuses_all_tokens() {
    let key = Key::ec();
    let impostor = Issuer::start_as(vec![key.public("1")], Some("https://issuer.example"));
    let server = impostor.server();
    let (status, text) = ask(&server, &key.token("1", "ES256", &impostor.claims()));
    assert_eq!(status, 503, "{text}");
    let gone = ["--oauth-issuer", "http://127.0.0.1:1", "--oauth-audience", "belljar", "--no-install"];
    let server = Listening::start("streamable-http", gone);
    assert_eq!(ask(&server, &key.token("1", "ES256", &impostor.claims())).0, 503);
}

#[test]
fn session_belongs_to_the_subject_that_opened_it() {
    let key = Key::ec();
    let issuer = Issuer::start(vec![key.public("1")]);
    let server = issuer.server();
    let [alice, again, bob] = ["alice", "alice", "bob"].map(|name| {
        let claims = issuer.claims_with(json!({ "sub": name, "jti": format!("{:?}", Instant::now()) }));
        format!("Bearer {}", key.token("1", "ES256", &claims))
    });
    let (_, text) = server.post(&[("Authorization", &alice)], &hello());
    let session = text.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let status = |token: &str| server.post(&[("Authorization", token), ("Mcp-Session-Id", session)], &call("1")).0;
    assert_eq!([&alice, &again, &bob].map(|token| status(token)), [200, 200, 404]);
    assert_eq!(server.send("DELETE", "/mcp", &[("Authorization", &bob), ("Mcp-Session-Id", session)], "").0, 404);
    assert_eq!(server.send("DELETE", "/mcp", &[("Authorization", &alice), ("Mcp-Session-Id", session)], "").0, 200);
}

#[test]
fn worker_of_monty_needs_a_token_of_the_issuer() {
    let key = Key::ec();
    let issuer = Issuer::start(vec![key.public("1")]);
    let options = ["--monty", "--oauth-issuer", &issuer.url, "--oauth-audience", "belljar"];
    let server = Listening::start("streamable-http", options);
    let url = server.url.replacen("http", "ws", 1).replace("/mcp", "/monty");
    let connect = |token: &str| {
        let output = script("connect.py").arg(&url).arg(token).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let valid = key.token("1", "ES256", &issuer.claims());
    assert_eq!(connect(&valid), (Some(0), "42".to_owned()));
    let of_another_server = key.token("1", "ES256", &issuer.claims_with(json!({ "aud": "other" })));
    for token in [of_another_server.as_str(), "not-a-token"] {
        let (code, text) = connect(token);
        assert!(code == Some(3) && text.contains("401"), "{code:?} {text}");
    }
}

#[test]
fn operators_need_the_scope_and_clients_need_none() {
    let key = Key::ec();
    let issuer = Issuer::start(vec![key.public("1")]);
    let options = ["--no-install", "--toolset", "all", "--console", "--admin-scope", "operate"];
    let oauth = ["--oauth-issuer", &issuer.url, "--oauth-audience", "belljar"];
    let server = Listening::start("streamable-http", options.into_iter().chain(oauth));
    for (scopes, is_operator) in [
        (json!({ "scope": "openid operate" }), true),
        (json!({ "scope": ["openid", "operate"] }), true),
        (json!({ "scp": ["operate"] }), true),
        (json!({ "scope": "belljar:admin" }), false),
        (json!({ "scope": ["openid"] }), false),
        (json!({ "scope": null }), false),
        (json!({ "scope": { "operate": true } }), false),
        (json!({}), false),
    ] {
        let mut claims = issuer.claims();
        claims.as_object_mut().unwrap().extend(scopes.as_object().unwrap().clone());
        let token = key.token("1", "ES256", &claims);
        let (status, text) = ask(&server, &token);
        assert_eq!(status, 200, "{scopes}: {text}");
        let authorization = format!("Bearer {token}");
        let (status, text) = server.send("GET", "/admin/api/v1/sessions", &[("Authorization", &authorization)], "");
        assert_eq!(status, if is_operator { 200 } else { 403 }, "{scopes}: {text}");
        assert_eq!(text.contains("error=\"insufficient_scope\""), !is_operator, "{scopes}: {text}");
    }
}

#[test]
fn subject_that_reads_like_a_static_token_is_another_owner() {
    const TOKEN: &str = "a-static-token";
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, format!("{TOKEN}\n")).unwrap();
    let key = Key::ec();
    let issuer = Issuer::start(vec![key.public("1")]);
    let arguments = ["--no-install", "--toolset", "all", "--auth-token-file", tokens.to_str().unwrap()];
    let oauth = ["--oauth-issuer", &issuer.url, "--oauth-audience", "belljar"];
    let server = Listening::start("streamable-http", arguments.into_iter().chain(oauth));
    let bearer = format!("Bearer {TOKEN}");
    let open = |authorization: &str| {
        let (status, text) = server.post(&[("Authorization", authorization)], &hello());
        assert_eq!(status, 200, "{text}");
        text.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned()
    };
    let execute = |authorization: &str, session: &str, arguments: Value| {
        let params = json!({ "name": "execute_code", "arguments": arguments });
        let message = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params });
        server.post(&[("Authorization", authorization), ("Mcp-Session-Id", session)], &message)
    };
    let session = open(&bearer);
    let (_, text) = execute(&bearer, &session, json!({ "code": "secret = 'opal-' + 'marble'" }));
    let line = text.lines().find(|line| line.contains("\"result\"")).unwrap();
    let answer: Value = serde_json::from_str(line.trim_start_matches("data: ")).unwrap();
    let opened: Value = serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    let read = json!({ "session_id": opened["session_info"]["session_id"].as_str().unwrap(), "code": "secret" });
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, TOKEN.as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    for subject in [TOKEN.to_owned(), digest.clone(), format!("token:{digest}"), format!(" token:{digest}")] {
        let claims = issuer.claims_with(json!({ "sub": subject }));
        let other = format!("Bearer {}", key.token("1", "ES256", &claims));
        let status = server.post(&[("Authorization", &other), ("Mcp-Session-Id", &session)], &call("1")).0;
        assert_eq!(status, 404, "{subject}");
        let (status, text) = execute(&other, &open(&other), read.clone());
        assert!(
            status == 200 && text.contains("SessionExpiredError") && !text.contains("opal-marble"),
            "{subject}: {text}"
        );
    }
    let (_, text) = execute(&bearer, &session, read);
    assert!(text.contains("opal-marble"), "{text}");
}

#[test]
fn sse_session_belongs_to_the_subject_that_opened_it() {
    let key = Key::ec();
    let issuer = Issuer::start(vec![key.public("1")]);
    let server = issuer.server_of("sse");
    let [alice, bob] = ["alice", "bob"]
        .map(|name| format!("Bearer {}", key.token("1", "ES256", &issuer.claims_with(json!({ "sub": name })))));
    let stream = server.open("GET", "/sse", &[("Authorization", &alice)], "");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let endpoint = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap();
    let status = |token: &str| {
        let headers = [("Authorization", token), ("Content-Type", "application/json")];
        server.send("POST", &endpoint, &headers, &hello().to_string()).0
    };
    assert_eq!([status(&bob), status(&alice), status("Bearer x")], [404, 202, 401]);
    drop(lines);
}

#[test]
fn unsafe_oauth_options_are_refused() {
    for (arguments, wanted) in [
        (&["--oauth-issuer", "https://issuer.example"][..], "--oauth-audience"),
        (&["--oauth-issuer", "http://issuer.example", "--oauth-audience", "x"], "must be an https:// address"),
        (&["--oauth-issuer", "https://issuer.example", "--oauth-audience", ""], "the audience is empty"),
    ] {
        let run = Belljar::new().arg("streamable-http").args(["--port", "0"]).args(arguments).run();
        assert!(run.status == Some(2) && run.stderr.contains(wanted), "{run:?}");
    }
}

//! Tests of access control without a server.

use axum::http::header::AUTHORIZATION;

use super::*;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

#[test]
fn only_names_of_the_local_machine_are_accepted_as_host() {
    let policy = AccessPolicy::default();
    for host in ["localhost:3001", "127.0.0.1", "[::1]:80", "LOCALHOST"] {
        assert_eq!(policy.rejection_reason(&Uri::from_static("/mcp"), &headers(&[("host", host)])), None, "{host}");
    }
    for host in ["evil.example:3001", "localhost.evil.example", "127.0.0.1.nip.io:80", "", "[::2]"] {
        assert!(policy.rejection_reason(&Uri::from_static("/mcp"), &headers(&[("host", host)])).is_some(), "{host}");
    }
    assert!(policy.rejection_reason(&Uri::from_static("/mcp"), &HeaderMap::new()).is_some());
    // HTTP/2 puts the name into the address.
    assert_eq!(policy.rejection_reason(&Uri::from_static("https://localhost:3001/mcp"), &HeaderMap::new()), None);
    assert!(policy.rejection_reason(&Uri::from_static("https://evil.example/mcp"), &HeaderMap::new()).is_some());
}

#[test]
fn requests_with_several_hosts_are_ambiguous() {
    let path = Uri::from_static("/mcp");
    assert!(!has_ambiguous_host(&path, &headers(&[("host", "localhost")])));
    assert!(!has_ambiguous_host(&Uri::from_static("https://localhost/mcp"), &HeaderMap::new()));
    assert!(!has_ambiguous_host(&Uri::from_static("https://localhost/mcp"), &headers(&[("host", "LOCALHOST")])));
    assert!(has_ambiguous_host(&Uri::from_static("https://evil.example/mcp"), &headers(&[("host", "localhost")])));
    let mut twice = headers(&[("host", "localhost")]);
    twice.append(HOST, HeaderValue::from_static("localhost"));
    assert!(has_ambiguous_host(&path, &twice));
}

#[test]
fn only_allowed_origins_are_accepted() {
    let origins = vec!["http://localhost:*".into(), "https://app.example".into()];
    let policy = AccessPolicy { origins, ..AccessPolicy::default() };
    for (origin, good) in [
        ("http://localhost:5173", true),
        ("http://localhost", true),
        ("https://app.example", true),
        ("http://localhost.evil.example", false),
        ("http://localhost:80.evil.example", false),
        ("https://app.example:444", false),
        ("null", false),
    ] {
        let got =
            policy.rejection_reason(&Uri::from_static("/mcp"), &headers(&[("host", "localhost"), ("origin", origin)]));
        assert_eq!(got.is_none(), good, "{origin}");
    }
}

#[test]
fn pages_of_the_server_itself_are_accepted() {
    let is_accepted = |policy: &AccessPolicy, host, origin| {
        policy.rejection_reason(&Uri::from_static("/mcp"), &headers(&[("host", host), ("origin", origin)])).is_none()
    };
    let policy = AccessPolicy::default();
    assert!(is_accepted(&policy, "127.0.0.1:3001", "http://127.0.0.1:3001"));
    assert!(!is_accepted(&policy, "127.0.0.1:3001", "http://127.0.0.1:3002"));
    assert!(!is_accepted(&policy, "evil.example", "http://evil.example"));
    // When any name is accepted, an attacker's name that resolves to this machine is not the server's own.
    let policy = AccessPolicy { any_host: true, ..AccessPolicy::default() };
    assert!(!is_accepted(&policy, "evil.example", "http://evil.example"));
}

#[tokio::test]
async fn requests_need_one_of_the_tokens() {
    let policy = AccessPolicy { tokens: Tokens::parse("# comment\nsecret\n\n other \n"), ..AccessPolicy::default() };
    for (header, good) in [
        ("Bearer secret", true),
        ("bearer other", true),
        ("Bearer # comment", false),
        ("Basic secret", false),
        ("secret", false),
    ] {
        let got = policy.bearer(&HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())])).await;
        assert_eq!(got.is_ok(), good, "{header}");
    }
    assert_eq!(policy.bearer(&HeaderMap::new()).await, Err(AuthError::Missing));
    assert_eq!(AccessPolicy::default().bearer(&HeaderMap::new()).await, Ok(None));
}

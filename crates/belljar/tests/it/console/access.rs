//! Authorisation for the console and the admin API.

use std::io::{BufRead, BufReader, Write as _};
use std::process::Stdio;

use tempfile::NamedTempFile;

use crate::code_execution::Backend;
use crate::harness::Belljar;
use crate::operator::{Operator, TOKEN};

const SESSIONS: &str = "/admin/api/v1/sessions";

#[test]
fn api_always_needs_a_token_of_operators() {
    for transport in ["streamable-http", "streamable-http-stateless", "sse"] {
        let operator = Operator::start_transport(transport, &[]);
        let send = |headers: &[(&str, &str)]| operator.backend.send("GET", SESSIONS, headers, b"");
        assert_eq!(send(&[]).status, 401, "{transport}");
        for wrong in ["Bearer other", "Basic x", "Bearer", "Bearer # operators", TOKEN] {
            assert_eq!(send(&[("Authorization", wrong)]).status, 401, "{transport} {wrong}");
        }
        let authorization = format!("Bearer {TOKEN}");
        let right = ("Authorization", authorization.as_str());
        assert_eq!(send(&[right]).status, 200, "{transport}");
        // A web page of another origin cannot use the token of a browser, and neither can one of another name.
        assert_eq!(send(&[right, ("Origin", "https://evil.example")]).status, 403);
        assert_eq!(send(&[right, ("Host", "evil.example")]).status, 403);
        assert_eq!(operator.backend.send("GET", &format!("{SESSIONS}?token={TOKEN}"), &[], b"").status, 401);
        let unknown = operator.backend.send("GET", "/admin/other", &[right], b"");
        assert_eq!(unknown.status, 404);
    }
}

#[test]
fn tokens_of_users_and_of_operators_differ() {
    let mut users = NamedTempFile::new().unwrap();
    writeln!(users, "user-token").unwrap();
    let mut operator = Operator::start(&["--auth-token-file", users.path().to_str().unwrap()]);
    let with = |operator: &Operator, path: &str, token: &str| {
        let authorization = format!("Bearer {token}");
        operator.backend.send("GET", path, &[("Authorization", &authorization)], b"").status
    };
    assert_eq!(with(&operator, SESSIONS, "user-token"), 401);
    assert_eq!(with(&operator, SESSIONS, TOKEN), 200);
    assert_eq!(with(&operator, "/metrics", "user-token"), 200);
    assert_eq!(with(&operator, "/metrics", TOKEN), 401);
    // An operator sees the sessions of users, by the first digits of their tokens' digests.
    operator.backend.token = Some("user-token".into());
    let session = operator.backend.create();
    operator.backend.run(&session, "x = 1");
    operator.backend.token = None;
    let listed = operator.get("/sessions");
    let owner = listed["sessions"][0]["owner"].as_str().unwrap();
    assert!(owner.starts_with("token ") && owner.len() == "token ".len() + 8, "{listed}");
    assert!(!listed.to_string().contains(&session), "{listed}");
}

#[test]
fn page_has_a_strict_policy_and_needs_no_token() {
    let operator = Operator::start(&[]);
    let mut bytes = 0;
    let page = operator.backend.get("/console");
    let text = page.text();
    let scripts = text.split('"').filter(|part| part.starts_with("/console/"));
    let mut files: Vec<String> = scripts.map(str::to_owned).collect();
    files.push("/console".into());
    assert!(files.len() > 3, "{text}");
    for file in &files {
        let answer = operator.backend.get(file);
        assert_eq!(answer.status, 200, "{file}");
        bytes += answer.body.len();
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'",
            "require-trusted-types-for 'script'; trusted-types 'none'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "x-frame-options: deny",
        ] {
            assert!(answer.head.contains(header), "{file}: {header}: {}", answer.head);
        }
        assert!(!answer.head.contains("unsafe"), "{file}: {}", answer.head);
    }
    assert!(bytes < 300_000);
    assert!(!text.contains("<style") && !text.contains("style=") && !text.contains("onload="), "{text}");
    assert_eq!(operator.backend.get("/console/missing.js").status, 404);
    assert_eq!(operator.backend.send("GET", "/console", &[("Host", "evil.example")], b"").status, 403);
    assert_eq!(operator.backend.get("/console/frame/00").status, 200);
}

#[test]
fn nothing_is_served_without_the_option() {
    let backend = Backend::start([]);
    let authorization = format!("Bearer {TOKEN}");
    for path in ["/console", "/console/main.js", SESSIONS, "/admin/api/v1/openapi.json"] {
        assert_eq!(backend.send("GET", path, &[("Authorization", &authorization)], b"").status, 404, "{path}");
    }
}

#[test]
fn token_is_made_on_a_loopback_address_only() {
    let start = |options: &[&str]| {
        let usual = ["streamable-http", "--port", "0", "--console", "--toolset", "interpreter"];
        Belljar::new().args(usual).args(options.iter().copied())
    };
    let mut command = start(&[]).into_command();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let console = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("console on ")).unwrap();
    let token = console.rsplit_once("/console#token=").unwrap().1;
    assert_eq!(token.len(), 32, "{console}");
    child.kill().unwrap();
    child.wait().unwrap();
    let refused = start(&["--host", "0.0.0.0", "--insecure-no-auth"]).run();
    assert!(refused.status == Some(2) && refused.stderr.contains("--admin-token-file"), "{refused:?}");
    let no_sessions = Belljar::new().args(["streamable-http", "--port", "0", "--console"]).run();
    assert!(no_sessions.status == Some(2) && no_sessions.stderr.contains("--toolset"), "{no_sessions:?}");
}

//! Web pages that use the server: preflight requests and CORS headers.

use super::http::{Listening, hello};

const PAGE: (&str, &str) = ("Origin", "https://app.example");

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next()?;
    head.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|it| it.1)
}

#[test]
fn allowed_origin_may_preflight_send_and_read() {
    for (command, path) in [("streamable-http", "/mcp"), ("streamable-http-stateless", "/mcp"), ("sse", "/sse")] {
        let server = Listening::start(command, ["--no-install", "--allow-origin", "https://app.example"]);
        let asked = [
            PAGE,
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "content-type,mcp-session-id,mcp-param-x"),
            ("Access-Control-Request-Private-Network", "true"),
        ];
        let (status, text) = server.send("OPTIONS", path, &asked, "");
        assert_eq!(status, 204, "{text}");
        assert_eq!(header(&text, "access-control-allow-origin"), Some("https://app.example"));
        assert_eq!(header(&text, "access-control-allow-headers"), Some("content-type,mcp-session-id,mcp-param-x"));
        assert!(header(&text, "access-control-allow-methods").is_some_and(|methods| methods.contains("DELETE")));
        assert_eq!(header(&text, "access-control-allow-private-network"), Some("true"));
        assert_eq!(header(&text, "vary"), Some("origin"));
    }
    let server = Listening::start("streamable-http", ["--no-install", "--allow-origin", "https://app.example"]);
    let (status, text) = server.post(&[PAGE], &hello());
    assert_eq!((status, header(&text, "access-control-allow-origin")), (200, Some("https://app.example")), "{text}");
    assert!(header(&text, "access-control-expose-headers").is_some_and(|names| names.contains("mcp-session-id")));
    let (_, text) = server.post(&[], &hello());
    assert_eq!(header(&text, "access-control-allow-origin"), None, "{text}");
}

#[test]
fn other_origins_get_no_cors_headers() {
    let server = Listening::start("streamable-http", ["--no-install", "--allow-origin", "https://app.example"]);
    for origin in ["https://evil.example", "https://app.example.evil.example", "null", "*"] {
        let asked = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
        let (status, text) = server.send("OPTIONS", "/mcp", &asked, "");
        assert_eq!((status, header(&text, "access-control-allow-origin")), (403, None), "{origin}: {text}");
    }
}

#[test]
fn preflight_needs_no_token_but_requests_do() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, "secret\n").unwrap();
    let arguments =
        ["--no-install", "--allow-origin", "https://app.example", "--auth-token-file", file.to_str().unwrap()];
    let server = Listening::start("streamable-http", arguments);
    let (status, _) = server.send("OPTIONS", "/mcp", &[PAGE, ("Access-Control-Request-Method", "POST")], "");
    assert_eq!(status, 204);
    let (status, text) = server.post(&[PAGE], &hello());
    assert_eq!((status, header(&text, "access-control-allow-origin")), (401, Some("https://app.example")), "{text}");
    // A request that only resembles a preflight needs a token.
    assert_eq!(server.send("OPTIONS", "/mcp", &[PAGE], "").0, 401);
}

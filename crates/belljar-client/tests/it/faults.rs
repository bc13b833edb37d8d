//! Servers that die, hang, flood, lie, and send what nobody can read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use belljar_client::{
    CallOptions, ElicitationResponse, McpError, McpServerSse, McpServerStdio, McpServerStreamableHttp, ProtocolEra,
    ToolErrorBehavior, ToolOutcome,
};
use serde_json::json;

use crate::harness::{Listening, eventually, faulty, output, script};

/// The text that a call of `act` gives.
async fn act(server: McpServerStdio) -> Result<String, McpError> {
    server.build().direct_call_tool("act", json!({})).await.map(|outcome| outcome.to_text())
}

#[tokio::test]
async fn a_child_that_dies_is_an_error_with_its_last_words() {
    let error = act(faulty("dies")).await.unwrap_err();
    assert!(matches!(error, McpError::Closed { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("exit status: 3") && text.contains("MemoryError: no more room"), "{text}");
}

#[tokio::test]
async fn a_dead_child_stays_dead_for_those_who_hold_it_and_is_started_anew_for_others() {
    let server = faulty("dies").build();
    let running = server.connect().await.unwrap();
    server.direct_call_tool("act", json!({})).await.unwrap_err();
    let error = server.direct_call_tool("fine", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("MemoryError"), "{error}");
    running.close().await.unwrap();
    assert_eq!(output(server.direct_call_tool("fine", json!({})).await.unwrap()).to_text(), "fine");
}

#[tokio::test]
async fn a_child_that_dies_at_once_says_why() {
    let error = faulty("dies_at_start").build().connect().await.err().unwrap();
    assert!(matches!(error, McpError::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("config.toml: no such file"), "{error}");
}

#[tokio::test]
async fn a_server_that_never_initializes_is_given_up() {
    let started = Instant::now();
    let server = faulty("never_initializes").timeout(Duration::from_secs(1)).build();
    let error = server.connect().await.err().unwrap();
    assert!(matches!(error, McpError::Timeout { .. }), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(!server.is_running());
}

#[tokio::test]
async fn a_server_that_ignores_the_modern_era_is_spoken_to_in_the_legacy_one() {
    let server = faulty("ignores_discover").timeout(Duration::from_secs(6)).build();
    assert_eq!(server.info().await.unwrap().protocol_version.as_str(), "2025-11-25");
}

#[tokio::test]
async fn a_server_of_the_modern_era_may_be_slow_to_say_so() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let server = faulty("slow_modern").env("NOTES", notes.path().display().to_string()).timeout(Duration::from_secs(6));
    let server = server.build();
    let running = server.connect().await.unwrap();
    assert_eq!(server.info().await.unwrap().protocol_version.as_str(), "2026-07-28");
    assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine");
    running.close().await.unwrap();
}

#[tokio::test]
async fn a_silent_call_is_given_up_and_the_server_told() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let server = faulty("hangs")
        .env("NOTES", notes.path().display().to_string())
        .read_timeout(Duration::from_millis(300))
        .build();
    let running = server.connect().await.unwrap();
    let outcome = server.direct_call_tool("act", json!({})).await.unwrap();
    assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.message.contains("did not answer")), "{outcome:?}");
    eventually("the server is told", || std::fs::read_to_string(notes.path()).unwrap() == "cancelled\n").await;
    // The connection is none the worse.
    assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine");
    running.close().await.unwrap();
}

#[tokio::test]
async fn a_silence_is_an_error_where_failures_are() {
    let server =
        faulty("hangs").read_timeout(Duration::from_millis(200)).tool_error_behavior(ToolErrorBehavior::Error).build();
    let error = server.direct_call_tool("act", json!({})).await.unwrap_err();
    assert!(matches!(error, McpError::Timeout { .. }), "{error:?}");
}

#[tokio::test]
async fn progress_keeps_a_call_alive() {
    let steps = Arc::new(AtomicUsize::new(0));
    let counter = steps.clone();
    let options = CallOptions::new().progress_handler(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let server = faulty("talks").read_timeout(Duration::from_millis(1200)).build();
    let outcome = server.call_tool_with("act", json!({}), options).await.unwrap();
    assert_eq!(outcome.to_text(), "done");
    assert_eq!(steps.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn a_call_has_a_bound_of_its_own_where_one_is_given() {
    let server = faulty("talks").build();
    let options = CallOptions::new().timeout(Duration::from_millis(600));
    let outcome = server.call_tool_with("act", json!({}), options).await.unwrap();
    assert!(matches!(outcome, ToolOutcome::Retry(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let server = faulty("hangs").env("NOTES", notes.path().display().to_string()).build();
    let running = server.connect().await.unwrap();
    let call = server.direct_call_tool("act", json!({}));
    tokio::time::timeout(Duration::from_millis(200), call).await.unwrap_err();
    eventually("the server is told", || std::fs::read_to_string(notes.path()).unwrap() == "cancelled\n").await;
    running.close().await.unwrap();
}

#[tokio::test]
async fn a_flood_of_log_messages_arrives_whole_in_order_and_before_the_result() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let server = faulty("floods").log_handler(move |message| {
        let expected = format!("line {} ", counter.fetch_add(1, Ordering::SeqCst));
        assert!(message.text().starts_with(&expected), "{} instead of {expected}", message.text());
    });
    assert_eq!(act(server).await.unwrap(), "done");
    assert_eq!(seen.load(Ordering::SeqCst), 20_000);
}

#[tokio::test]
async fn lines_that_are_no_messages_are_passed_over() {
    assert_eq!(act(faulty("babbles")).await.unwrap(), "done");
    assert_eq!(act(faulty("malformed")).await.unwrap(), "done");
    assert_eq!(act(faulty("not_text")).await.unwrap(), "done");
}

#[tokio::test]
async fn an_answer_of_the_wrong_shape_is_an_error_at_once() {
    for fault in ["malformed_result", "unknown_content", "bad_base64"] {
        let error = act(faulty(fault)).await.unwrap_err();
        assert!(matches!(error, McpError::BadAnswer { .. }), "{fault}: {error:?}");
    }
}

#[tokio::test]
async fn answers_to_what_nobody_asked_are_passed_over() {
    assert_eq!(act(faulty("wrong_ids")).await.unwrap(), "done");
    assert_eq!(act(faulty("string_ids")).await.unwrap(), "done");
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_connection_with_a_reason() {
    for fault in ["huge", "endless"] {
        let error = act(faulty(fault)).await.unwrap_err();
        assert!(error.to_string().contains("more than 16777216 bytes"), "{fault}: {error}");
    }
    assert_eq!(act(faulty("large")).await.unwrap().len(), 8 * 1024 * 1024);
}

#[tokio::test]
async fn a_child_that_closes_its_output_is_ended() {
    let server = faulty("closes_output").build();
    let running = server.connect().await.unwrap();
    let error = server.direct_call_tool("act", json!({})).await.unwrap_err();
    assert!(matches!(error, McpError::Closed { .. }), "{error:?}");
    let started = Instant::now();
    running.close().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_question_that_nobody_can_answer_is_refused() {
    assert!(act(faulty("asks")).await.unwrap().contains("sampling"));
}

#[tokio::test]
async fn a_user_is_not_sent_to_pages_for_ever() {
    let visits = Arc::new(AtomicUsize::new(0));
    let counter = visits.clone();
    let server = faulty("visits").elicitation_handler(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok(ElicitationResponse::Accept(None)) }
    });
    assert_eq!(act(server).await.unwrap(), "You must agree first.");
    assert_eq!(visits.load(Ordering::SeqCst), 3);
    // Without anybody to ask, and with one who declines, the refusal stands.
    assert_eq!(act(faulty("visits")).await.unwrap(), "You must agree first.");
    let decline = async |_| Ok(ElicitationResponse::Decline);
    assert_eq!(act(faulty("visits").elicitation_handler(decline)).await.unwrap(), "You must agree first.");
}

#[tokio::test]
async fn endless_pages_are_an_error() {
    let error = faulty("endless_pages").build().list_tools().await.unwrap_err();
    assert!(error.to_string().contains("pages"), "{error}");
}

#[tokio::test]
async fn all_pages_are_read_and_an_empty_cursor_ends_them() {
    let tools = faulty("pages").build().list_tools().await.unwrap();
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["t0", "t1", "t2", "t3", "t4"]);
}

/// A server over HTTP that misbehaves in the way that the URL's path names.
fn faulty_http() -> Listening {
    Listening::start("python3", &["-u", &script("faulty_http_server.py")])
}

#[tokio::test]
async fn that_nobody_listens_is_said() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = McpServerStreamableHttp::new(format!("http://127.0.0.1:{port}/mcp")).unwrap().build();
    let error = server.connect().await.err().unwrap();
    assert!(matches!(error, McpError::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn an_endpoint_on_another_origin_is_refused() {
    let listening = faulty_http();
    let server = McpServerSse::new(listening.url("/other-origin/sse")).unwrap().build();
    let error = server.connect().await.err().unwrap();
    assert!(error.to_string().contains("another origin"), "{error}");
}

#[tokio::test]
async fn a_redirect_to_another_host_gets_no_credentials() {
    let (listening, elsewhere) = (faulty_http(), faulty_http());
    let target = format!("/redirect/{}", elsewhere.port);
    let http = McpServerStreamableHttp::new(listening.url(&target)).unwrap().bearer_token("secret");
    http.header("x-api-key", "secret").unwrap().build().connect().await.err().unwrap();
    let sse = McpServerSse::new(listening.url(&target)).unwrap().bearer_token("secret").build();
    sse.connect().await.err().unwrap();
    let seen = reqwest::get(elsewhere.url("/seen")).await.unwrap().text().await.unwrap();
    assert_eq!(seen, "[]", "another host was asked");
    let seen = reqwest::get(listening.url("/seen")).await.unwrap().text().await.unwrap();
    assert!(seen.contains("Bearer secret"), "{seen}");
}

#[tokio::test]
async fn what_is_no_server_is_an_error_in_words() {
    let listening = faulty_http();
    for path in ["/page", "/not-found", "/broken", "/empty"] {
        let error = McpServerStreamableHttp::new(listening.url(path)).unwrap().build().connect().await.err().unwrap();
        assert!(
            matches!(error, McpError::Connect { .. } | McpError::Protocol { .. } | McpError::BadAnswer { .. }),
            "{path}: {error:?}"
        );
        McpServerSse::new(listening.url(path)).unwrap().build().connect().await.err().unwrap();
    }
}

#[tokio::test]
async fn a_server_that_wants_authorization_says_so() {
    let listening = faulty_http();
    let error = McpServerStreamableHttp::new(listening.url("/private")).unwrap().build().connect().await.err().unwrap();
    assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
    let error = McpServerSse::new(listening.url("/private")).unwrap().build().connect().await.err().unwrap();
    assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
    // Some say nothing about what they want.
    for path in ["/locked", "/locked/sse"] {
        let error = McpServerStreamableHttp::new(listening.url(path)).unwrap().build().connect().await.err().unwrap();
        assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
        let error = McpServerSse::new(listening.url(path)).unwrap().build().connect().await.err().unwrap();
        assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
    }
}

/// A server that is well until its tool `act` is called.
fn acts(listening: &Listening, fault: &str) -> McpServerStreamableHttp {
    McpServerStreamableHttp::new(listening.url(&format!("/acts/{fault}"))).unwrap().era(ProtocolEra::Legacy)
}

#[tokio::test]
async fn faults_over_http_are_errors_at_once_and_the_connection_lives() {
    let listening = faulty_http();
    let faults =
        ["dies", "dies_in_the_body", "breaks", "malformed", "wrong_id", "wrong_id_in_events", "huge", "huge_event"];
    for fault in faults {
        let server = acts(&listening, fault).build();
        let running = server.connect().await.unwrap();
        let started = Instant::now();
        let error = match server.direct_call_tool("act", json!({})).await {
            Ok(ToolOutcome::Retry(retry)) => retry.message,
            Err(error) => error.to_string(),
            other => panic!("{fault}: {other:?}"),
        };
        assert!(started.elapsed() < Duration::from_secs(20), "{fault}: {:?}", started.elapsed());
        assert!(!error.is_empty(), "{fault}");
        assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine", "{fault}");
        running.close().await.unwrap();
    }
}

#[tokio::test]
async fn events_that_are_no_messages_are_passed_over() {
    let listening = faulty_http();
    let outcome = acts(&listening, "malformed_events").build().direct_call_tool("act", json!({})).await.unwrap();
    assert_eq!(outcome.to_text(), "done");
}

#[tokio::test]
async fn a_silent_call_over_http_is_given_up() {
    let listening = faulty_http();
    let server = acts(&listening, "hangs").read_timeout(Duration::from_millis(300)).build();
    let running = server.connect().await.unwrap();
    let outcome = server.direct_call_tool("act", json!({})).await.unwrap();
    assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.message.contains("did not answer")), "{outcome:?}");
    assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine");
    running.close().await.unwrap();
}

#[tokio::test]
async fn a_flood_over_http_arrives_whole_and_in_order() {
    let listening = faulty_http();
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let server = acts(&listening, "floods").log_handler(move |message| {
        let expected = format!("line {} ", counter.fetch_add(1, Ordering::SeqCst));
        assert!(message.text().starts_with(&expected), "{} instead of {expected}", message.text());
    });
    assert_eq!(server.build().direct_call_tool("act", json!({})).await.unwrap().to_text(), "done");
    assert_eq!(seen.load(Ordering::SeqCst), 5_000);
}

#[tokio::test]
async fn a_stream_that_broke_is_resumed_where_it_was() {
    let listening = faulty_http();
    let outcome = acts(&listening, "resumes").build().direct_call_tool("act", json!({})).await.unwrap();
    assert_eq!(outcome.to_text(), "resumed");
    let seen = reqwest::get(listening.url("/seen")).await.unwrap().text().await.unwrap();
    assert!(seen.contains("\"last-event-id\": \"event-"), "{seen}");
}

#[tokio::test]
async fn a_stream_of_events_without_end_is_bounded() {
    let listening = faulty_http();
    let server = McpServerSse::new(listening.url("/endless/sse")).unwrap().timeout(Duration::from_secs(30)).build();
    let error = server.connect().await.err().unwrap();
    assert!(error.to_string().contains("before it said where"), "{error}");
}

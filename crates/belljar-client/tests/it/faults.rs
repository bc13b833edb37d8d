//! Servers that crash, hang, flood, violate the protocol, and send unreadable messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar_mcp_client::{
    CallOptions, ElicitationResponse, LogMessage, McpError, McpServerSse, McpServerStdio, McpServerStreamableHttp,
    ProtocolEra, RetryReason, RunContext, ToolCall, ToolErrorBehavior, ToolOutcome, ToolReturn, Toolset,
};
use serde_json::{Map, json};

use crate::harness::{START_TIMEOUT, TestServer, eventually, faulty, faulty_http, free_port, output};

/// Calls `act` and returns the text of its result.
async fn act(server: McpServerStdio) -> Result<String, McpError> {
    server.build().direct_call_tool("act", json!({})).await.map(|outcome| outcome.to_text())
}

#[tokio::test]
async fn crashed_child_is_an_error_with_its_standard_error() {
    let error = act(faulty("dies")).await.unwrap_err();
    assert!(matches!(error, McpError::Closed { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("exit status: 3") && text.contains("MemoryError: no more room"), "{text}");
}

#[tokio::test]
async fn crashed_child_restarts_only_after_its_guards_are_dropped() {
    let server = faulty("dies").build();
    let running = server.connect().await.unwrap();
    server.direct_call_tool("act", json!({})).await.unwrap_err();
    let error = server.direct_call_tool("fine", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("MemoryError"), "{error}");
    running.close().await.unwrap();
    assert_eq!(output(server.direct_call_tool("fine", json!({})).await.unwrap()).to_text(), "fine");
}

#[tokio::test]
async fn child_that_crashes_at_start_reports_its_standard_error() {
    let error = faulty("dies_at_start").build().connect().await.err().unwrap();
    assert!(matches!(error, McpError::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("config.toml: no such file"), "{error}");
}

#[tokio::test]
async fn server_that_never_initializes_times_out() {
    let server = faulty("never_initializes").timeout(Duration::from_secs(1)).build();
    let error = server.connect().await.err().unwrap();
    assert!(matches!(error, McpError::Timeout { .. }), "{error:?}");
    assert!(!server.is_running());
}

#[tokio::test]
async fn server_that_ignores_discover_gets_the_legacy_era() {
    let server = faulty("ignores_discover").timeout(Duration::from_secs(15)).build();
    assert_eq!(server.info().await.unwrap().protocol_version.as_str(), "2025-11-25");
}

#[tokio::test]
async fn modern_server_may_respond_late_to_discover() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let server = faulty("slow_modern").env("NOTES", notes.path().display().to_string());
    let server = server.timeout(Duration::from_secs(15)).build();
    let running = server.connect().await.unwrap();
    assert_eq!(server.info().await.unwrap().protocol_version.as_str(), "2026-07-28");
    assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine");
    running.close().await.unwrap();
}

#[tokio::test]
async fn idle_call_times_out_and_is_cancelled() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let server = faulty("hangs")
        .env("NOTES", notes.path().display().to_string())
        // Also the limit of the last call, which is answered.
        .read_timeout(Duration::from_secs(3))
        .build();
    let running = server.connect().await.unwrap();
    let outcome = server.direct_call_tool("act", json!({})).await.unwrap();
    assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.message.contains("did not respond")), "{outcome:?}");
    eventually("the call is cancelled", || std::fs::read_to_string(notes.path()).unwrap() == "cancelled\n").await;
    // The connection still works.
    assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine");
    running.close().await.unwrap();
}

#[tokio::test]
async fn idle_call_is_an_error_if_failures_are_errors() {
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
    let server = faulty("talks").read_timeout(Duration::from_secs(6)).build();
    let outcome = server.call_tool_with("act", json!({}), options).await.unwrap();
    assert_eq!(outcome.to_text(), "done");
    assert_eq!(steps.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn call_timeout_limits_a_single_call() {
    let server = faulty("talks").build();
    let options = CallOptions::new().timeout(Duration::from_millis(600));
    let outcome = server.call_tool_with("act", json!({}), options).await.unwrap();
    assert!(matches!(outcome, ToolOutcome::Retry(_)), "{outcome:?}");
}

#[tokio::test]
async fn dropped_call_is_cancelled() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let server = faulty("hangs").env("NOTES", notes.path().display().to_string()).build();
    let running = server.connect().await.unwrap();
    let call = server.direct_call_tool("act", json!({}));
    // Long enough for the request to be sent.
    tokio::time::timeout(Duration::from_secs(2), call).await.unwrap_err();
    eventually("the call is cancelled", || std::fs::read_to_string(notes.path()).unwrap() == "cancelled\n").await;
    running.close().await.unwrap();
}

/// Returns a handler that counts the lines which arrive in order.
fn counts_lines(seen: &Arc<AtomicUsize>) -> impl Fn(LogMessage) + Send + Sync + 'static {
    let seen = seen.clone();
    move |message| {
        let expected = format!("line {} ", seen.load(Ordering::SeqCst));
        if message.text().starts_with(&expected) {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn handler_that_panics_does_not_end_the_connection() {
    let steps = Arc::new(AtomicUsize::new(0));
    let counter = steps.clone();
    let options = CallOptions::new().progress_handler(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        panic!("a fault of the program");
    });
    let lines = Arc::new(AtomicUsize::new(0));
    let counter = lines.clone();
    let server = faulty("logs_and_steps")
        .message_handler(|_| panic!("a fault of the program"))
        .log_handler(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            panic!("a fault of the program");
        })
        .build();
    let running = server.connect().await.unwrap();
    assert_eq!(server.call_tool_with("act", json!({}), options).await.unwrap().to_text(), "done");
    assert_eq!([lines.load(Ordering::SeqCst), steps.load(Ordering::SeqCst)], [1, 1]);
    assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine");
    running.close().await.unwrap();
}

#[tokio::test]
async fn log_flood_arrives_in_order_before_the_result() {
    let seen = Arc::new(AtomicUsize::new(0));
    let server = faulty("floods").log_handler(counts_lines(&seen));
    assert_eq!(act(server).await.unwrap(), "done");
    assert_eq!(seen.load(Ordering::SeqCst), 20_000);
}

#[tokio::test]
async fn lines_that_are_not_messages_are_skipped() {
    assert_eq!(act(faulty("babbles")).await.unwrap(), "done");
    assert_eq!(act(faulty("malformed")).await.unwrap(), "done");
    assert_eq!(act(faulty("not_text")).await.unwrap(), "done");
}

#[tokio::test]
async fn invalid_result_is_an_error_at_once() {
    for fault in ["malformed_result", "unknown_content", "bad_base64"] {
        let error = act(faulty(fault)).await.unwrap_err();
        assert!(matches!(error, McpError::InvalidResponse { .. }), "{fault}: {error:?}");
    }
}

#[tokio::test]
async fn responses_to_unknown_requests_are_ignored() {
    assert_eq!(act(faulty("wrong_ids")).await.unwrap(), "done");
    assert_eq!(act(faulty("string_ids")).await.unwrap(), "done");
}

#[tokio::test]
async fn oversized_message_closes_the_connection_with_a_reason() {
    for fault in ["huge", "endless"] {
        let error = act(faulty(fault)).await.unwrap_err();
        assert!(error.to_string().contains("more than 16777216 bytes"), "{fault}: {error}");
    }
    assert_eq!(act(faulty("large")).await.unwrap().len(), 8 * 1024 * 1024);
}

#[tokio::test]
async fn child_that_closes_its_output_is_terminated() {
    let server = faulty("closes_output").build();
    let running = server.connect().await.unwrap();
    let error = server.direct_call_tool("act", json!({})).await.unwrap_err();
    assert!(matches!(error, McpError::Closed { .. }), "{error:?}");
    tokio::time::timeout(START_TIMEOUT, running.close()).await.unwrap().unwrap();
}

#[tokio::test]
async fn request_without_a_handler_is_rejected() {
    assert!(act(faulty("asks")).await.unwrap().contains("sampling"));
}

#[tokio::test]
async fn url_elicitations_per_call_are_limited() {
    let visits = Arc::new(AtomicUsize::new(0));
    let counter = visits.clone();
    let server = faulty("visits").elicitation_handler(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok(ElicitationResponse::Accept(None)) }
    });
    assert_eq!(act(server).await.unwrap(), "You must agree first.");
    assert_eq!(visits.load(Ordering::SeqCst), 3);
    // Without a handler, and with one that declines, the error remains.
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
async fn all_pages_are_read_until_an_empty_cursor() {
    let tools = faulty("pages").build().list_tools().await.unwrap();
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["t0", "t1", "t2", "t3", "t4"]);
}

#[tokio::test]
async fn refused_connection_is_an_error() {
    let server = McpServerStreamableHttp::new(format!("http://127.0.0.1:{}/mcp", free_port())).unwrap().build();
    let error = server.connect().await.err().unwrap();
    assert!(matches!(error, McpError::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn sse_endpoint_on_another_origin_is_rejected() {
    let listening = faulty_http();
    let server = McpServerSse::new(listening.url("/other-origin/sse")).unwrap().build();
    let error = server.connect().await.err().unwrap();
    assert!(error.to_string().contains("another origin"), "{error}");
}

#[tokio::test]
async fn urls_that_are_not_mcp_servers_are_errors() {
    let listening = faulty_http();
    for path in ["/page", "/not-found", "/broken", "/empty"] {
        let error = McpServerStreamableHttp::new(listening.url(path)).unwrap().build().connect().await.err().unwrap();
        assert!(
            matches!(error, McpError::Connect { .. } | McpError::Protocol { .. } | McpError::InvalidResponse { .. }),
            "{path}: {error:?}"
        );
        McpServerSse::new(listening.url(path)).unwrap().build().connect().await.err().unwrap();
    }
}

#[tokio::test]
async fn refused_connects_have_a_status_and_words_for_the_model() {
    let listening = faulty_http();
    let (again, without) = ("Try again later, or continue without this tool.", "Continue without this tool.");
    for (path, status, reason, words) in [
        ("/refuses/403", 403, RetryReason::Refused, without),
        ("/refuses/404", 404, RetryReason::Refused, without),
        ("/refuses/429", 429, RetryReason::Unavailable, again),
        ("/refuses/503", 503, RetryReason::Unavailable, again),
    ] {
        let url = listening.url(path);
        let servers = [McpServerStreamableHttp::new(&url).unwrap().build(), McpServerSse::new(&url).unwrap().build()];
        for server in servers {
            let error = server.connect().await.err().unwrap();
            assert!(matches!(error, McpError::Connect { .. }), "{error:?}");
            assert_eq!(error.http_status(), Some(status), "{error:?}");
            let retry_after = matches!(status, 429 | 503).then_some(Duration::from_secs(7));
            assert_eq!(error.retry_after(), retry_after, "{error:?}");
            assert!(error.hint().is_some(), "{error:?}");
            let outcome = server.call(&RunContext::new(), "act", Map::new()).await.unwrap();
            assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.reason == reason), "{outcome:?}");
            let call = ToolCall::new("c1", "act", json!({}));
            let message = ToolReturn::new(&call, outcome).message().text();
            assert!(message.ends_with(words) && message.contains(&status.to_string()), "{message}");
        }
    }
    // Callers that wait for the attempt get the status, too.
    let server = McpServerStreamableHttp::new(listening.url("/refuses/403")).unwrap().build();
    let failed = futures::future::join_all((0..3).map(|_| server.connect())).await;
    assert!(failed.into_iter().all(|failed| failed.err().unwrap().http_status() == Some(403)));
    for (path, status) in [("/private", 401), ("/locked", 401), ("/scopes", 403)] {
        let error = McpServerStreamableHttp::new(listening.url(path)).unwrap().build().connect().await.err().unwrap();
        assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
        assert_eq!(error.http_status(), Some(status), "{error:?}");
    }
}

#[tokio::test]
async fn missing_authorization_is_an_error_of_its_own() {
    let listening = faulty_http();
    let error = McpServerStreamableHttp::new(listening.url("/private")).unwrap().build().connect().await.err().unwrap();
    assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
    let error = McpServerSse::new(listening.url("/private")).unwrap().build().connect().await.err().unwrap();
    assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
    // Some servers send no challenge.
    for path in ["/locked", "/locked/sse"] {
        let error = McpServerStreamableHttp::new(listening.url(path)).unwrap().build().connect().await.err().unwrap();
        assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
        let error = McpServerSse::new(listening.url(path)).unwrap().build().connect().await.err().unwrap();
        assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
    }
}

/// Returns a server that works until its tool `act` is called.
fn acts(listening: &TestServer, fault: &str) -> McpServerStreamableHttp {
    McpServerStreamableHttp::new(listening.url(&format!("/acts/{fault}"))).unwrap().era(ProtocolEra::Legacy)
}

#[tokio::test]
async fn http_faults_are_errors_and_keep_the_connection() {
    let listening = faulty_http();
    let faults =
        ["dies", "dies_in_the_body", "breaks", "malformed", "wrong_id", "wrong_id_in_events", "huge", "huge_event"];
    for fault in faults {
        let server = acts(&listening, fault).build();
        let running = server.connect().await.unwrap();
        // Much shorter than the idle timeout of a call.
        let call = tokio::time::timeout(START_TIMEOUT, server.direct_call_tool("act", json!({})));
        let error = match call.await.unwrap_or_else(|_| panic!("{fault}: no error")) {
            Ok(ToolOutcome::Retry(retry)) => retry.message,
            Err(error) => error.to_string(),
            other => panic!("{fault}: {other:?}"),
        };
        assert!(!error.is_empty(), "{fault}");
        assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine", "{fault}");
        running.close().await.unwrap();
    }
}

#[tokio::test]
async fn events_that_are_not_messages_are_skipped() {
    let listening = faulty_http();
    let outcome = acts(&listening, "malformed_events").build().direct_call_tool("act", json!({})).await.unwrap();
    assert_eq!(outcome.to_text(), "done");
}

#[tokio::test]
async fn idle_http_call_times_out() {
    let listening = faulty_http();
    let server = acts(&listening, "hangs").read_timeout(Duration::from_secs(3)).build();
    let running = server.connect().await.unwrap();
    let outcome = server.direct_call_tool("act", json!({})).await.unwrap();
    assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.message.contains("did not respond")), "{outcome:?}");
    assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine");
    running.close().await.unwrap();
}

#[tokio::test]
async fn http_log_flood_arrives_in_order() {
    let listening = faulty_http();
    let seen = Arc::new(AtomicUsize::new(0));
    let server = acts(&listening, "floods").log_handler(counts_lines(&seen));
    assert_eq!(server.build().direct_call_tool("act", json!({})).await.unwrap().to_text(), "done");
    assert_eq!(seen.load(Ordering::SeqCst), 5_000);
}

#[tokio::test]
async fn broken_stream_is_resumed_from_the_last_event() {
    let listening = faulty_http();
    let outcome = acts(&listening, "resumes").build().direct_call_tool("act", json!({})).await.unwrap();
    assert_eq!(outcome.to_text(), "resumed");
    let seen = reqwest::get(listening.url("/seen")).await.unwrap().text().await.unwrap();
    assert!(seen.contains("\"last-event-id\": \"event-"), "{seen}");
}

#[tokio::test]
async fn endless_event_is_bounded() {
    let listening = faulty_http();
    let server = McpServerSse::new(listening.url("/endless/sse")).unwrap().timeout(Duration::from_secs(30)).build();
    let error = server.connect().await.err().unwrap();
    assert!(error.to_string().contains("before it named the URL"), "{error}");
}

//! Combined toolsets of which some are unavailable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar_mcp_client::{
    CombinedToolset, McpServerStreamableHttp, RetryReason, RunContext, ToolOutcome, Toolset, ToolsetState,
};
use serde_json::Map;

use crate::harness::{START_TIMEOUT, eventually, faulty};

fn gone() -> McpServerStreamableHttp {
    McpServerStreamableHttp::new("http://127.0.0.1:1/mcp").unwrap().id("gone")
}

async fn names(toolset: &dyn Toolset) -> Vec<String> {
    toolset.tools(&RunContext::new()).await.unwrap().names().map(str::to_owned).collect()
}

async fn call(toolset: &dyn Toolset, name: &str) -> ToolOutcome {
    toolset.call(&RunContext::new(), name, Map::new()).await.unwrap()
}

#[tokio::test]
async fn call_needs_only_the_toolset_that_has_the_tool() {
    let both = CombinedToolset::new().with(gone().build()).with(faulty("none").tool_prefix("good").build());
    both.tools(&RunContext::new()).await.unwrap_err();
    both.enter().await.unwrap_err();
    assert_eq!(call(&both, "good_fine").await.to_text(), "fine");
    let unknown = call(&both, "good_no").await;
    assert!(unknown.to_text().contains("`good_fine`") && unknown.to_text().contains("gone"), "{unknown:?}");
}

#[tokio::test]
async fn toolsets_of_an_iterator_are_combined_in_its_order() {
    let servers = ["second", "first"].map(|name| faulty("none").id(name).tool_prefix(name).build());
    let all: CombinedToolset = servers.into_iter().collect();
    assert_eq!(all.label(), "second + first");
    assert!(all.statuses().iter().all(|status| !status.is_optional), "{:?}", all.statuses());
    let guard = all.enter().await.unwrap();
    assert_eq!(names(&all).await, ["second_act", "second_fine", "first_act", "first_fine"]);
    assert_eq!(call(&all, "first_fine").await.to_text(), "fine");
    guard.close().await.unwrap();
    let none: CombinedToolset = std::iter::empty::<CombinedToolset>().collect();
    assert_eq!(names(&none).await, [""; 0]);
}

#[tokio::test]
async fn others_work_without_an_optional_toolset() {
    let reported = Arc::new(AtomicUsize::new(0));
    let counter = reported.clone();
    let all = CombinedToolset::new()
        .with(faulty("none").tool_prefix("good").build())
        .with_optional(gone().include_instructions(true).build())
        .on_unavailable(move |toolset, error| {
            assert!(toolset == "gone" && error.to_string().contains("gone"), "{toolset}: {error}");
            counter.fetch_add(1, Ordering::SeqCst);
        });
    assert_eq!(all.statuses().iter().map(|status| &status.state).collect::<Vec<_>>(), [&ToolsetState::Unknown; 2]);
    let guard = all.enter().await.unwrap();
    assert_eq!(names(&all).await, ["good_act", "good_fine"]);
    assert_eq!(all.instructions(&RunContext::new()).await.unwrap(), None);
    assert_eq!(call(&all, "good_fine").await.to_text(), "fine");
    let statuses = all.statuses();
    assert_eq!((statuses[0].is_optional, &statuses[0].state), (false, &ToolsetState::Available));
    assert!(
        matches!(&statuses[1].state, ToolsetState::Unavailable { error, .. } if error.contains("refused")),
        "{statuses:?}"
    );
    assert_eq!(reported.load(Ordering::SeqCst), 1);
    guard.close().await.unwrap();
}

/// Lists the tools until there are this many.
async fn eventually_lists(toolset: &CombinedToolset, count: usize) {
    let listed = async {
        while names(toolset).await.len() != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(START_TIMEOUT, listed).await.unwrap();
}

#[tokio::test]
async fn optional_server_comes_back() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let late =
        faulty("dies_at_first_start").env("NOTES", notes.path().display().to_string()).tool_prefix("late").build();
    let all = CombinedToolset::new().with(faulty("none").tool_prefix("good").build()).with_optional(late.clone());
    let guard = all.enter().await.unwrap();
    assert!(matches!(all.statuses()[1].state, ToolsetState::Unavailable { failures: 1, .. }), "{:?}", all.statuses());
    eventually_lists(&all, 4).await;
    assert_eq!(all.statuses()[1].state, ToolsetState::Available);
    assert_eq!(call(&all, "late_fine").await.to_text(), "fine");
    // The guard of the combination holds the new connection.
    assert!(late.is_running());
    guard.close().await.unwrap();
    eventually("the server is closed", || !late.is_running()).await;
}

#[tokio::test]
async fn optional_server_that_ends_is_started_again() {
    let server = faulty("dies").tool_prefix("p").build();
    let all = CombinedToolset::new().with_optional(server);
    let guard = all.enter().await.unwrap();
    assert_eq!(names(&all).await, ["p_act", "p_fine"]);
    let outcome = call(&all, "p_act").await;
    assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.reason == RetryReason::Disconnected), "{outcome:?}");
    assert_eq!(names(&all).await, [""; 0]);
    eventually_lists(&all, 2).await;
    assert_eq!(call(&all, "p_fine").await.to_text(), "fine");
    guard.close().await.unwrap();
}

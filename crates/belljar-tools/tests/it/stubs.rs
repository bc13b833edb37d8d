//! Stubs and searches of servers of the package index.

use std::path::Path;

use belljar_mcp_client::McpServerStdio;
use belljar_testing::install;
use belljar_tools::{ApprovalMode, ToolLimits, ToolPolicy};
use serde_json::json;

use crate::harness::{START_TIMEOUT, Session, one, runtime};

/// Versions are pinned: the tests expect the servers' exact tools.
const PACKAGES: &[&str] = &["mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19"];

fn session() -> Session {
    let folder = Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/belljar-tools-servers"));
    let python = install::pip(folder, "servers", PACKAGES).join("python").display().to_string();
    let server = |name: &str, module: &str| {
        McpServerStdio::new(&python).args(["-m", module]).id(name).timeout(START_TIMEOUT).build()
    };
    let policy = ToolPolicy::new(&[], &[], ApprovalMode::None).unwrap();
    let servers = vec![server("time", "mcp_server_time"), server("git", "mcp_server_git")];
    Session::new(&servers, policy, ToolLimits::default())
}

#[test]
fn stubs_have_types_and_descriptions() {
    let stubs = runtime().block_on(session().tools.stubs());
    for part in [
        "# from tools import time\n",
        "async def get_current_time(*, timezone: str) -> GetCurrentTimeResult:\n    \"\"\"Get current time in a specific timezone",
        "async def convert_time(*, source_timezone: str, time: str, target_timezone: str) -> ConvertTimeResult:\n",
        "# from tools import git\n",
        "async def git_log(*, repo_path: str, max_count: int = 10, ",
    ] {
        assert!(stubs.contains(part), "{part}\n{stubs}");
    }
}

#[test]
fn search_finds_the_tool_of_a_task() {
    let session = session();
    let run = session.run();
    let search = |query: &str| run.operate("search", json!([query, 1, "names"])).unwrap();
    assert!(search("convert between time zones").as_str().unwrap().starts_with("time.convert_time\n"));
    assert!(search("commit logs").as_str().unwrap().starts_with("git.git_log\n"));
    let described = run.operate("describe", json!([["time.convert_time"]])).unwrap();
    assert!(
        described
            .as_str()
            .unwrap()
            .starts_with("# from tools import time\nclass TimeResult(TypedDict):\n    timezone: str\n")
    );
}

#[test]
fn real_server_is_called() {
    let session = session();
    let run = session.run();
    let time = json!(["time", "get_current_time", r#"{"timezone": "UTC"}"#, "", false]);
    assert_eq!(one(run.operate("call", time))["timezone"], json!("UTC"));
}

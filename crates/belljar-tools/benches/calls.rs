//! Measures calls of tools through a run against the same calls by the client alone: `cargo bench -p belljar-tools`.
//!
//! The server is that of the tests. The part of the guest is not included: `belljar run` with the code that this
//! program prints measures all of a call.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints its results, and fails by panicking")]

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use belljar_core::{EncodedValue, FunctionCall, ReplySender};
use belljar_mcp_client::{CallOptions, McpServer, McpServerStdio};
use belljar_tools::{ApprovalMode, NoApprover, NoToolEvents, ToolLimits, ToolPolicy, ToolRun, ToolRunContext, Tools};
use serde_json::json;
use serde_json::value::to_raw_value;

const CALLS: usize = 1_000;

fn server() -> McpServer {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/python/tool_server.py");
    McpServerStdio::new("python3").args(["-u", &script.display().to_string()]).id("t").build()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = server();
    let (alone, at_once) = runtime.block_on(async {
        let _running = client.connect().await.unwrap();
        let call = || client.call_tool_raw("add", json!({"a": 1}), CallOptions::new());
        call().await.unwrap();
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let start = Instant::now();
            call().await.unwrap();
            times.push(start.elapsed());
        }
        let start = Instant::now();
        let calls: Vec<_> = (0..CALLS)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    client.call_tool_raw("add", json!({"a": 1}), CallOptions::new()).await.unwrap();
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        (median(times), start.elapsed())
    });
    let policy = ToolPolicy::new(&[], &[], ApprovalMode::None).unwrap();
    let limits = ToolLimits { calls: u32::MAX, concurrency: 1_000, ..ToolLimits::default() };
    let context = ToolRunContext {
        scope: belljar_core::Scope::default(),
        runtime: runtime.handle().clone(),
        approver: Arc::new(NoApprover { reason: String::new() }),
        grants: Arc::default(),
        events: Arc::new(NoToolEvents),
    };
    let run = ToolRun::new(Arc::new(Tools::new(&[server()], policy, limits)), context);
    let (sender, replies) = mpsc::channel();
    let sender = ReplySender::from(sender);
    let start_call = |id: usize| {
        let json = to_raw_value(&json!([["t", "add", r#"{"a":1}"#, "", false], {}])).unwrap();
        let arguments = EncodedValue { json, buffers: Vec::new() };
        run.start(FunctionCall { id: id as u64, name: "tools:call".into(), arguments }, &sender);
    };
    start_call(0);
    replies.recv().unwrap().result.unwrap();
    let mut times = Vec::with_capacity(CALLS);
    for id in 0..CALLS {
        let start = Instant::now();
        start_call(id);
        replies.recv().unwrap().result.unwrap();
        times.push(start.elapsed());
    }
    let start = Instant::now();
    for id in 0..CALLS {
        start_call(id);
    }
    for _ in 0..CALLS {
        replies.recv().unwrap().result.unwrap();
    }
    println!("one call, median: client {alone:.0} us, run {:.0} us", median(times));
    println!(
        "{CALLS} calls at once: client {:.1} ms, run {:.1} ms",
        at_once.as_secs_f64() * 1e3,
        start.elapsed().as_secs_f64() * 1e3
    );
    println!(
        "\nfrom tools import t\nfrom time import perf_counter as now\nawait t.add(a=1)\ntimes = []\n\
         for _ in range({CALLS}):\n    start = now()\n    await t.add(a=1)\n    times.append(now() - start)\n\
         print(sorted(times)[len(times) // 2] * 1e6, 'us')"
    );
}

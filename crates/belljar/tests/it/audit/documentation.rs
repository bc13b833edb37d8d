//! The tables of `docs/operations.md`, compared with the program.

use std::collections::BTreeSet;
use std::path::Path;

use belljar_audit::Event;
use belljar_core::activity::trace::SpanName;

use crate::serve::http::Listening;
use crate::tool_client::tool_server;

/// The page. The source distribution of the Python package does not have it.
fn operations() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md")).unwrap()
}

/// Returns the first and the last cells of the rows of the table whose heading begins with `title`.
pub(super) fn table(title: &str) -> Vec<(String, String)> {
    let page = operations();
    let begin = page.find(&format!("| {title} |")).unwrap_or_else(|| panic!("no table {title}"));
    let rows = page[begin..].lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells =
        rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
    cells.map(|cells| (cells[0].replace('`', ""), cells.last().unwrap().clone())).collect()
}

#[test]
fn every_audit_event_is_documented() {
    let events: Vec<_> = Event::ALL.iter().map(|event| (event.name().to_owned(), event.meaning().to_owned())).collect();
    assert_eq!(table("event"), events);
}

#[test]
fn every_span_is_documented() {
    let spans: Vec<_> = SpanName::ALL.iter().map(|span| (span.name().to_owned(), span.meaning().to_owned())).collect();
    assert_eq!(table("span"), spans);
}

#[test]
fn every_metric_and_every_reason_of_refusals_is_documented() {
    let tools = tool_server("t", "plain");
    let server = Listening::start("streamable-http-stateless", ["--toolset", "all", &tools]);
    // Some families have no series before the first call.
    server.tool("run_python_code", &serde_json::json!({ "python_code": "1" }));
    let (_, page) = server.send("GET", "/metrics", &[], "");
    let family = |line: &str| {
        let mut words = line.strip_prefix("# TYPE ")?.split(' ');
        let (name, kind) = (words.next()?.to_owned(), words.next()?);
        Some(match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name,
        })
    };
    let exported: BTreeSet<String> = page.lines().filter_map(family).collect();
    let documented =
        table("metric").into_iter().flat_map(|(names, _)| names.split(", ").map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(documented.collect::<BTreeSet<_>>(), exported);
    let reasons =
        page.lines().filter_map(|line| line.strip_prefix("belljar_refusals_total{reason=\"")?.split('"').next());
    let documented = table("`reason` | meaning")
        .into_iter()
        .flat_map(|(names, _)| names.split(", ").map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(documented.collect::<BTreeSet<_>>(), reasons.map(str::to_owned).collect());
}

//! The tables of `docs/operations.md`, compared with the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use belljar_audit::Event;
use belljar_core::activity::trace::SpanName;

use crate::serve::http::Listening;
use crate::tool_client::tool_server;

/// The page. The source distribution of the Python package does not have it.
fn operations() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md")).unwrap()
}

/// Returns the cells of the rows of the table whose heading begins with `title`.
fn rows(title: &str) -> Vec<Vec<String>> {
    let page = operations();
    let begin = page.find(&format!("| {title} |")).unwrap_or_else(|| panic!("no table {title}"));
    let rows = page[begin..].lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Returns the first and the last cells of the same rows.
pub(super) fn table(title: &str) -> Vec<(String, String)> {
    rows(title).into_iter().map(|cells| (cells[0].replace('`', ""), cells.last().unwrap().clone())).collect()
}

/// Returns the names that a cell lists.
fn names(cell: &str) -> BTreeSet<String> {
    cell.replace('`', "").split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
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
fn every_status_is_documented() {
    let documented: Vec<_> = table("`status` | meaning").into_iter().map(|(name, _)| name).collect();
    assert_eq!(documented, belljar_server::call_statuses().collect::<Vec<_>>());
}

/// Returns the labels of each series of a page of metrics, without the bounds of buckets.
fn labels_by_series(page: &str) -> BTreeMap<&str, BTreeSet<String>> {
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("belljar_")) {
        let name = line.split(['{', ' ']).next().unwrap();
        let given = line.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(labels, _)| labels);
        let labels = given.split(',').filter_map(|label| label.split_once('=')).map(|(label, _)| label.to_owned());
        found.entry(name).or_default().extend(labels.filter(|label| label != "le"));
    }
    found
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
    let rows = rows("metric");
    assert_eq!(rows.iter().flat_map(|cells| names(&cells[0])).collect::<BTreeSet<_>>(), exported);
    let series = labels_by_series(&page);
    for cells in &rows {
        for metric in names(&cells[0]) {
            // Histograms have no series of their own name.
            let labels = series.get(&*metric).or_else(|| series.get(&*format!("{metric}_count")));
            assert_eq!(labels, Some(&names(&cells[1])), "{metric}: {page}");
        }
    }
    let reasons =
        page.lines().filter_map(|line| line.strip_prefix("belljar_refusals_total{reason=\"")?.split('"').next());
    let documented = table("`reason` | meaning")
        .into_iter()
        .flat_map(|(names, _)| names.split(", ").map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(documented.collect::<BTreeSet<_>>(), reasons.map(str::to_owned).collect());
}

//! Metrics that are exported.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, metric};
use serde_json::json;

use super::super::documentation::table;
use super::super::end;
use super::{exporting, serve};
use crate::harness::Belljar;
use crate::otlp_receiver::{Receiver, attribute};
use crate::serve::http::Listening;
use crate::tool_client::tool_server;

#[test]
fn metrics_are_those_of_the_page() {
    let receiver = Receiver::start();
    let belljar = Belljar::new().args(["streamable-http-stateless", "--port", "0", "--toolset", "all"]);
    let server = Listening::spawn(exporting(belljar, &receiver));
    server.tool("run_python_code", &json!({ "python_code": "1" }));
    let (_, page) = server.send("GET", "/metrics", &[], "");
    server.end();
    let metrics = receiver.metrics();
    let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
    let families: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(families.len() > 15, "{page}");
    for family in families {
        let name = family.strip_suffix("_seconds").or(family.strip_suffix("_bytes")).unwrap_or(family);
        let name = name.replacen('_', ".", 1);
        assert!(names.contains(&name.as_str()), "{family} is not among {names:?}");
    }
    let metric = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap();
    let Some(metric::Data::Sum(calls)) = &metric("belljar.calls").data else { panic!("not a sum") };
    assert!(calls.is_monotonic && calls.data_points.len() == 1, "{calls:?}");
    assert_eq!(attribute(&calls.data_points[0].attributes, "status").as_deref(), Some("success"));
    let Some(metric::Data::Histogram(durations)) = &metric("mcp.server.operation.duration").data else {
        panic!("not a histogram")
    };
    let point = &durations.data_points[0];
    assert_eq!((point.count, point.bucket_counts.iter().sum::<u64>()), (1, 1));
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert_eq!(attribute(&point.attributes, "gen_ai.tool.name").as_deref(), Some("run_python_code"));
}

#[test]
fn durations_name_the_errors_of_calls_and_the_transport_of_sessions() {
    let receiver = Receiver::start();
    let mut wire = serve(exporting(Belljar::new().args(["stdio", &tool_server("t", "plain")]), &receiver));
    let code = "from tools import t, ToolException\nawait t.add(a=1)\ntry:\n    await t.fail(message='no')\nexcept \
                ToolException as error:\n    print(error)\nawait t.resources.read('test://note')";
    let answer = wire.run(code);
    assert!(answer.contains("<status>success"), "{answer}");
    wire.run("1 / 0");
    wire.ask("tools/call", json!({ "name": "run_python_code", "arguments": { "python_code": 5 } }));
    end(wire);
    let metrics = receiver.metrics();
    let points = |name: &str| {
        let metric = metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"));
        let Some(metric::Data::Histogram(histogram)) = &metric.data else { panic!("{name} is not a histogram") };
        histogram.data_points.clone()
    };
    let conventional: BTreeSet<&str> =
        metrics.iter().map(|metric| metric.name.as_str()).filter(|name| name.starts_with("mcp.")).collect();
    let documented = table("metric of the conventions");
    assert_eq!(documented.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>(), conventional);
    let errors = |point: &HistogramDataPoint| (attribute(&point.attributes, "error.type"), point.count);
    let mut found: Vec<_> = points("mcp.server.operation.duration").iter().map(errors).collect();
    found.sort();
    assert_eq!(found, [(None, 1), (Some("invalid".to_owned()), 1), (Some("tool_error".to_owned()), 1)]);
    let requests = |point: &HistogramDataPoint| {
        assert_eq!(attribute(&point.attributes, "belljar.mcp.server").as_deref(), Some("t"), "{point:?}");
        (attribute(&point.attributes, "mcp.method.name").unwrap(), errors(point))
    };
    let mut sent: Vec<_> = points("mcp.client.operation.duration").iter().map(requests).collect();
    sent.sort();
    let expected = [("resources/read", None), ("tools/call", None), ("tools/call", Some("tool_error".to_owned()))];
    assert_eq!(sent, expected.map(|(method, error)| (method.to_owned(), (error, 1))));
    let transports =
        |point: &HistogramDataPoint| (attribute(&point.attributes, "network.transport").unwrap(), point.count);
    let mut sessions: Vec<_> = points("mcp.server.session.duration").iter().map(transports).collect();
    sessions.sort();
    assert_eq!(sessions, [("pipe".to_owned(), 1), ("tcp".to_owned(), 0)]);
}

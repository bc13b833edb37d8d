//! Reports: the whole result of a call, for clients that are programs and not models, such as the Python package.
//!
//! A client asks for a report by an entry in the `_meta` of its call, and receives it in the `_meta` of the result. The
//! rest of the result is the same as for other clients.

use belljar_core::kernel::OneShotRequest;
use belljar_core::truncation::cut_middle;
use belljar_core::{EncodedValue, Exchange, REPORT_KEY, Report, ReportRequest, ReportValue, Stream};
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::CallToolResult;
use rmcp::service::RequestContext;
use serde::Deserialize as _;
use serde_json::value::RawValue;

use crate::arguments::ArgumentError;

/// The maximum length of a report as JSON, in bytes. Clients accept messages of 16 MiB.
const MAX_REPORT: usize = 12 << 20;
/// The length to which output is cut in a report that is too long.
const MAX_CUT_OUTPUT: usize = 2 << 20;

/// Returns the request for a report, if the call contains one.
///
/// # Errors
/// Fails if it has an unexpected form.
pub(crate) fn requested(context: &RequestContext<RoleServer>) -> Result<Option<ReportRequest>, ArgumentError> {
    let Some(request) = context.meta.0.0.get(REPORT_KEY) else { return Ok(None) };
    ReportRequest::deserialize(request).map(Some).map_err(ArgumentError::ReportRequest)
}

/// Returns the exchange for a request, or `None` if the backend does not support one.
///
/// # Errors
/// Fails if the variables are not JSON, or the request has variables that the backend does not support.
pub(crate) fn exchange(request: ReportRequest, is_supported: bool) -> Result<Option<Exchange>, ArgumentError> {
    let ReportRequest { variables, buffers } = request;
    if !is_supported {
        return match variables {
            None => Ok(None),
            Some(_) => Err(ArgumentError::NoCellVariables),
        };
    }
    Ok(Some(Exchange { variables: variables.map(parse).transpose()?, buffers, ..Exchange::default() }))
}

/// Adds the variables of a report's request to a run.
///
/// # Errors
/// The same as [`exchange`]. Variables that are plain JSON are supported by all backends.
pub(crate) fn add_to_run(
    request: ReportRequest,
    run: &mut OneShotRequest,
    is_supported: bool,
) -> Result<(), ArgumentError> {
    if is_supported {
        run.exchange = exchange(request, true)?;
    } else if let Some(variables) = request.variables {
        if variables.contains("\"$") {
            return Err(ArgumentError::EncodedVariables);
        }
        run.globals = Some(parse(variables)?);
    }
    Ok(())
}

fn parse(variables: String) -> Result<Box<RawValue>, ArgumentError> {
    RawValue::from_string(variables).map_err(ArgumentError::ReportRequest)
}

/// The output and the value of code whose caller wants a report.
#[derive(Default)]
pub(crate) struct Recording {
    output: Mutex<Vec<(Stream, Vec<u8>)>>,
    value: Mutex<Option<EncodedValue>>,
}

impl Recording {
    /// Adds output that the code wrote.
    pub(crate) fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        let mut output = self.output.lock();
        match output.last_mut() {
            Some((last, held)) if *last == stream => held.extend_from_slice(bytes),
            _ => output.push((stream, bytes.to_vec())),
        }
    }

    /// Keeps the value of a cell.
    pub(crate) fn on_value(&self, value: EncodedValue) {
        *self.value.lock() = Some(value);
    }

    /// Returns the output.
    pub(crate) fn take_output(&self) -> Vec<(Stream, Vec<u8>)> {
        std::mem::take(&mut *self.output.lock())
    }

    /// Moves output and value to the report of a cell.
    pub(crate) fn complete(&self, report: &mut Report) {
        let pieces = self.take_output().into_iter();
        report.output = pieces
            .map(|(stream, bytes)| (stream == Stream::Stdout, String::from_utf8_lossy(&bytes).into_owned()))
            .collect();
        report.value = self.value.lock().take().map(Into::into);
    }
}

/// Adds a report to a result. Parts for which a message has no room are left out.
pub(crate) fn attach(mut result: CallToolResult, mut report: Report) -> CallToolResult {
    let estimate = |report: &Report| {
        report
            .value
            .as_ref()
            .map_or(0, |value| value.json.len() + value.buffers.iter().map(|buffer| buffer.len()).sum::<usize>())
    };
    let size = estimate(&report);
    if size > MAX_REPORT || length(&report) > MAX_REPORT {
        report.value = report.value.as_ref().map(|_| left_out("the value", size));
    }
    if length(&report) > MAX_REPORT {
        (report.displays, report.images) = (Vec::new(), Vec::new());
        report.output = cut(&report.output);
    }
    if let Ok(json) = serde_json::to_value(&report) {
        result.meta.get_or_insert_default().0.insert(REPORT_KEY.into(), json);
    }
    result
}

fn length(report: &Report) -> usize {
    serde_json::to_string(report).map_or(usize::MAX, |text| text.len())
}

fn left_out(what: &str, size: usize) -> ReportValue {
    let note = format!("[left out: {what} takes {size} bytes, and a server returns at most {MAX_REPORT}]");
    ReportValue { json: serde_json::Value::from(note).to_string(), ..ReportValue::default() }
}

/// Cuts the middle of the output, which becomes one piece.
fn cut(output: &[(bool, String)]) -> Vec<(bool, String)> {
    let all: String = output.iter().map(|(_, text)| text.as_str()).collect();
    vec![(true, cut_middle(&all, MAX_CUT_OUTPUT, |left_out| format!("\n[… {left_out} bytes are left out]\n")))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_of(report: Report) -> Report {
        let result = attach(CallToolResult::success(Vec::new()), report);
        serde_json::from_value(result.meta.unwrap().0[REPORT_KEY].clone()).unwrap()
    }

    #[test]
    fn parts_without_room_are_left_out() {
        let value =
            ReportValue { json: "1".into(), buffers: vec![vec![0; MAX_REPORT].into()], ..ReportValue::default() };
        let output = vec![(false, "x\0".repeat(MAX_REPORT))];
        let report = report_of(Report { value: Some(value), output, ..Report::default() });
        assert!(report.value.unwrap().json.contains("left out"));
        assert!(report.output[0].1.len() < MAX_REPORT, "{}", report.output[0].1.len());
        let value = ReportValue { json: "1".into(), ..ReportValue::default() };
        assert_eq!(report_of(Report { value: Some(value.clone()), ..Report::default() }).value, Some(value));
    }

    #[test]
    fn backends_without_exchange_take_json() {
        let run = |variables: &str| {
            let mut run = OneShotRequest::default();
            let request = ReportRequest { variables: Some(variables.into()), buffers: Vec::new() };
            add_to_run(request, &mut run, false).map(|()| run.globals)
        };
        assert_eq!(run(r#"{"x":1}"#).unwrap().unwrap().get(), r#"{"x":1}"#);
        assert!(run(r#"{"x":{"$set":[]}}"#).is_err());
        assert!(run("{").is_err());
    }
}

//! `run_python_code` on a backend of sessions: each call in a kernel of its own, whose cells are the code and what we need
//! to know of it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use belljar_core::kernel::{Answer, Audience, Backend, CellRequest, End, Executed, Interrupt, Kernel, Output, Stream};
use belljar_core::progress::{Progress, Step, StepProgress};
use belljar_core::{LimitKind, Limits, Outcome, PythonError, Value};
use belljar_emscripten::console::{self, OutputSink};
use belljar_packages::Requirement;
use rmcp::model::LoggingLevel;
use serde::Deserialize;

use crate::answer::Report;
use crate::arguments::Arguments;
use crate::images::Images;
use crate::listener::{Listener, Output as Heard};

/// How long the cells before and after the code may take. One that installs may take as long as the backend gives any cell.
const ASIDE: Duration = Duration::from_secs(10);
/// The form in which a value's JSON comes out of the kernel.
const VALUE: &str = "application/vnd.belljar.value+json";

/// A call.
pub(crate) struct Call<'a> {
    pub(crate) arguments: Arguments,
    pub(crate) limits: Limits,
    pub(crate) listener: &'a Listener,
}

/// Runs the call. `begins` is given what ends the kernel, and answers whether there is still somebody who waits.
///
/// # Errors
/// When no kernel can be had, or nobody waits.
pub(crate) fn run(
    backend: &dyn Backend,
    call: Call<'_>,
    begins: impl FnOnce(Arc<dyn Interrupt>) -> bool,
) -> Result<Report, String> {
    let Call { arguments, limits, listener } = call;
    let mut report = Report {
        outcome: Outcome::Success(None),
        output: Vec::new(),
        dependencies: arguments.dependencies.iter().map(|requirement| requirement.name().to_owned()).collect(),
        images: Vec::new(),
        limits,
    };
    let mut kernel = backend.start(listener).map_err(|error| error.to_string())?;
    if !begins(kernel.interrupter()) {
        return Err("the call was cancelled".into());
    }
    if let Err(reason) = install(&mut *kernel, &arguments.dependencies, listener) {
        listener.log(LoggingLevel::Error, "belljar", reason.clone());
        report.outcome = Outcome::InstallError(reason);
        return Ok(report);
    }
    if let Some(globals) = &arguments.globals {
        // A JSON string is a Python string.
        let text = serde_json::to_string(globals.get()).map_err(|error| error.to_string())?;
        let done = aside(&mut *kernel, format!("globals().update(__import__('json').loads({text}))"), listener);
        if let End::Raised { error, .. } | End::Died(error) = done.end {
            return Err(format!("the variables cannot be set: {error}"));
        }
    }
    listener.step("running");
    let heard = Heard::new(listener);
    let audience = Arc::new(Ears { listener: listener.clone(), heard: heard.clone() });
    let cell = CellRequest { code: arguments.code, timeout: limits.wall_time, ..CellRequest::default() };
    let executed = kernel.execute(&cell, audience);
    let images = Images::default();
    let mut has_value = false;
    for output in &executed.outputs {
        if let Output::Shown(forms) | Output::Value(forms) = output {
            images.add_of(forms);
            has_value |= matches!(output, Output::Value(_));
        }
    }
    let value = if has_value { value_of(&mut *kernel, executed.count, &limits, listener) } else { None };
    report.outcome = outcome(executed.end, value);
    report.output = heard.take();
    report.images = images.take();
    if let (Some(error), false) = (report.error(), matches!(report.outcome, Outcome::Exit(_))) {
        listener.log(LoggingLevel::Error, "python", error);
    }
    Ok(report)
}

fn install(kernel: &mut dyn Kernel, requirements: &[Requirement], listener: &Listener) -> Result<(), String> {
    if requirements.is_empty() {
        return Ok(());
    }
    let wanted: Vec<String> = requirements.iter().map(|requirement| format!("'{requirement}'")).collect();
    let audience = Arc::new(Ears { listener: listener.clone(), heard: Heard::heard(listener) });
    let code = format!("%pip install {}", wanted.join(" "));
    let done = kernel.execute(&CellRequest { code, off_record: true, ..CellRequest::default() }, audience);
    let said: String = texts(&done.outputs).collect();
    match done.end {
        End::Success if !said.contains("ERROR:") => Ok(()),
        End::Success => Err(said.trim().to_owned()),
        End::Raised { error, .. } | End::Died(error) => Err(format!("{}\n{error}", said.trim()).trim().to_owned()),
    }
}

/// The JSON of a cell's value.
fn value_of(kernel: &mut dyn Kernel, count: u64, limits: &Limits, listener: &Listener) -> Option<Value> {
    #[derive(Deserialize)]
    struct Fields {
        value: Option<String>,
        text: Option<String>,
        #[serde(default)]
        strict: Option<String>,
    }
    let source = serde_json::to_string(belljar_python::VALUES).ok()?;
    let code = format!(
        "def _belljar_value():\n    module = type(__import__('sys'))('values')\n    exec({source}, module.__dict__)\n    \
         fields = module.render(Out[{count}], {})\n    \
         __import__('IPython').display.display({{'{VALUE}': fields}}, raw=True)\n_belljar_value()",
        limits.value
    );
    let done = aside(kernel, code, listener);
    let form = done.outputs.iter().find_map(|output| match output {
        Output::Shown(forms) => forms.get(VALUE),
        _ => None,
    })?;
    let Fields { value, text, strict } = serde_json::from_value(form.clone()).ok()?;
    Some(Value { json: value?, text: text?, strict })
}

/// Runs a cell of our own, which nobody hears of.
fn aside(kernel: &mut dyn Kernel, code: String, listener: &Listener) -> Executed {
    let cell = CellRequest { code, timeout: Some(ASIDE), off_record: true, ..CellRequest::default() };
    let executed = kernel.execute(&cell, Arc::new(belljar_core::kernel::Silent));
    if let End::Raised { error, .. } | End::Died(error) = &executed.end {
        listener.log(LoggingLevel::Debug, "belljar", error.clone());
    }
    executed
}

fn outcome(end: End, value: Option<Value>) -> Outcome {
    match end {
        End::Success => Outcome::Success(value),
        End::Raised { error, .. } if error.starts_with("TimeoutError: the cell ran longer") => {
            Outcome::Limit(LimitKind::WallTime)
        }
        End::Raised { error, traceback } => {
            let (kind, message) = error.split_once(": ").unwrap_or((&error, ""));
            let traceback = format!("{}\n", traceback.join("\n").trim_end());
            Outcome::Error(PythonError { kind: kind.into(), message: message.into(), traceback })
        }
        End::Died(reason) => {
            let (name, rest) = reason.split_once(':').unwrap_or((&reason, ""));
            let status = rest.rsplit_once(' ').and_then(|(_, status)| status.parse().ok());
            match (name, status) {
                ("TimeLimit", _) => Outcome::Limit(LimitKind::WallTime),
                ("CpuLimit", _) => Outcome::Limit(LimitKind::CpuTime),
                ("OutputLimit", _) => Outcome::Limit(LimitKind::Output),
                ("SystemExit", Some(status)) => Outcome::Exit(status),
                _ => Outcome::Crash(reason),
            }
        }
    }
}

fn texts(outputs: &[Output]) -> impl Iterator<Item = &str> {
    outputs.iter().filter_map(|output| match output {
        Output::Text { text, .. } => Some(text.as_str()),
        _ => None,
    })
}

/// The call's client.
struct Ears {
    listener: Listener,
    heard: Heard,
}

impl Progress for Ears {
    fn start(&self, step: Step) -> Box<dyn StepProgress> {
        self.listener.start(step)
    }
}

impl Audience for Ears {
    fn wrote(&self, stream: Stream, bytes: &[u8]) {
        let stream = match stream {
            Stream::Stdout => console::Stream::Stdout,
            Stream::Stderr => console::Stream::Stderr,
        };
        self.heard.clone().write(stream, bytes);
    }

    fn ask(&self, _: &str, _: bool) -> Result<Receiver<Answer>, String> {
        Err("input() has nobody to ask here: set the value in the code instead, or use a session".into())
    }
}

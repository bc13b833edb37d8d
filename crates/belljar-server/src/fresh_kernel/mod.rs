//! `run_python_code` on a backend of sessions: each call in a kernel of its own, whose cells are the code and what we need
//! to know of it.

mod aside;
mod packages;

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use belljar_core::kernel::{Answer, Audience, Backend, CellRequest, End, Interrupt, Kernel, Output, Stream};
use belljar_core::progress::{Progress, Step, StepProgress};
use belljar_core::{LimitKind, Limits, Outcome, PythonError, Value};
use belljar_packages::needs::{self, Known};
use rmcp::model::LoggingLevel;
use serde::Deserialize;

use crate::answer::Report;
use crate::arguments::Arguments;
use crate::images::Images;
use crate::listener::{Listener, Output as Heard};
use packages::Packages;

/// A call.
pub(crate) struct Call<'a> {
    pub(crate) arguments: Arguments,
    pub(crate) limits: Limits,
    /// The version of the kernels' Python: `3.13.1`.
    pub(crate) python: &'a str,
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
    let Call { arguments, limits, python, listener } = call;
    let mut report = Report::begin(limits);
    let mut kernel = backend.start(listener).map_err(|error| error.to_string())?;
    if !begins(kernel.interrupter()) {
        return Err("the call was cancelled".into());
    }
    let needs = needs::of_code(&arguments.code, &Known::python(python)).map_err(|error| error.to_string());
    let needs = needs.map(|needs| needs.with(arguments.dependencies));
    let packages = needs.and_then(|needs| Packages::install(&needs, &mut *kernel, listener));
    let packages = match packages {
        Ok(packages) => packages,
        Err(reason) => {
            listener.log(LoggingLevel::Error, "belljar", reason.clone());
            report.outcome = Outcome::InstallError(reason);
            return Ok(report);
        }
    };
    report.dependencies.clone_from(&packages.installed);
    if let Some(globals) = &arguments.globals {
        // A JSON string is a Python string.
        let text = serde_json::to_string(globals.get()).map_err(|error| error.to_string())?;
        let code = format!("globals().update(__import__('json').loads({text}))");
        let done = aside::run(&mut *kernel, code, listener);
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
    if let Outcome::Error(error) = &mut report.outcome {
        packages.explain(error);
    }
    report.output = heard.take();
    report.images = images.take();
    if let (Some(error), false) = (report.error(), matches!(report.outcome, Outcome::Exit(_))) {
        listener.log(LoggingLevel::Error, "python", error);
    }
    Ok(report)
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
        "def _belljar_told():\n    module = type(__import__('sys'))('values')\n    exec({source}, module.__dict__)\n    \
         return module.render(Out[{count}], {})",
        limits.value
    );
    let Fields { value, text, strict } = aside::told(kernel, &code, listener)?;
    Some(Value { json: value?, text: text?, strict })
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
        self.heard.wrote(stream, bytes);
    }

    fn ask(&self, _: &str, _: bool) -> Result<Receiver<Answer>, String> {
        Err("input() has nobody to ask here: set the value in the code instead, or use a session".into())
    }
}

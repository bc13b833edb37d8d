//! Cells of our own, before and after the code, which nobody hears of.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{CellRequest, End, Executed, Kernel, Output, Silent};
use rmcp::model::LoggingLevel;
use serde::de::DeserializeOwned;

use crate::listener::Listener;

/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The form in which an answer comes out of the kernel.
const FORM: &str = "application/vnd.belljar.answer+json";

/// Runs one.
pub(super) fn run(kernel: &mut dyn Kernel, code: String, listener: &Listener) -> Executed {
    let cell = CellRequest { code, timeout: Some(PATIENCE), off_record: true, ..CellRequest::default() };
    let executed = kernel.execute(&cell, Arc::new(Silent));
    if let End::Raised { error, .. } | End::Died(error) = &executed.end {
        listener.log(LoggingLevel::Debug, "belljar", error.clone());
    }
    executed
}

/// What the function `_belljar_told`, which `code` defines, returns: an object that JSON has words for. After the code has
/// run it is the guest's word, which may be anything, or nothing.
pub(super) fn told<T: DeserializeOwned>(kernel: &mut dyn Kernel, code: &str, listener: &Listener) -> Option<T> {
    let code = format!(
        "{code}\n__import__('IPython').display.display({{'{FORM}': _belljar_told()}}, raw=True)\ndel _belljar_told"
    );
    let executed = run(kernel, code, listener);
    let form = executed.outputs.iter().find_map(|output| match output {
        Output::Shown(forms) => forms.get(FORM),
        _ => None,
    })?;
    T::deserialize(form).ok()
}

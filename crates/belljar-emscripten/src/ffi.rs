//! libffi's four host functions: calls and callbacks for `ctypes`.

/// Table slots that libffi closures use.
#[derive(Default)]
pub(crate) struct Closures {}

//! Calls between the host and the interpreter, through CPython's C API.
//!
//! All that crosses is text: a Python function that takes and returns a `str`. What the guest answers is hostile
//! like any guest memory: lengths and encodings are checked here.

use belljar_emscripten::guest::Ptr;
use belljar_emscripten::{Errno, Instance, InstanceError};

/// An owned reference to a Python object; 0 is none. It stays valid in every copy of the instance.
pub(crate) type Object = u32;

/// Longest answer that is taken from the guest, in bytes: a value of the most that is passed on, in its three forms.
const MAX_ANSWER: u32 = 128 << 20;

/// Why a call into Python gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InteropError {
    /// The interpreter ended or crashed.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// It answered something that is not what was agreed.
    #[error("the interpreter gave a bad answer: {0}")]
    Answer(&'static str),
    /// A function of ours raised, which none of them should.
    #[error("`{0}` failed inside the interpreter; see its standard error")]
    Raised(String),
    /// It has no memory left, not even for a call.
    #[error("the interpreter has no memory left")]
    OutOfMemory,
}

impl From<Errno> for InteropError {
    fn from(_: Errno) -> Self {
        Self::Answer("a pointer outside of its memory")
    }
}

/// Copies `bytes` into newly allocated guest memory. The caller frees it.
pub(crate) fn allocate(instance: &mut Instance, bytes: &[u8]) -> Result<Ptr, InteropError> {
    let length = u32::try_from(bytes.len()).map_err(|_| InteropError::OutOfMemory)?;
    let ptr: Ptr = instance.call("malloc", length.max(1))?;
    if ptr == 0 {
        return Err(InteropError::OutOfMemory);
    }
    instance.memory().write(ptr, bytes)?;
    Ok(ptr)
}

/// A NUL-terminated copy of `text` in guest memory.
pub(crate) fn c_string(instance: &mut Instance, text: &str) -> Result<Ptr, InteropError> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    allocate(instance, &bytes)
}

/// Frees what [`allocate`] or [`c_string`] gave.
pub(crate) fn free(instance: &mut Instance, ptr: Ptr) -> Result<(), InteropError> {
    Ok(instance.call("free", ptr)?)
}

/// A new `str`.
fn text(instance: &mut Instance, value: &str) -> Result<Object, InteropError> {
    let bytes = allocate(instance, value.as_bytes())?;
    let length = u32::try_from(value.len()).map_err(|_| InteropError::OutOfMemory)?;
    let object: Object = instance.call("PyUnicode_FromStringAndSize", (bytes, length))?;
    free(instance, bytes)?;
    if object == 0 { Err(InteropError::OutOfMemory) } else { Ok(object) }
}

/// The attribute `name` of the module `module`, which is imported if it was not.
pub(crate) fn import(instance: &mut Instance, module: &str, name: &str) -> Result<Object, InteropError> {
    let raised = || InteropError::Raised(format!("import {module}"));
    let module_name = c_string(instance, module)?;
    let imported: Object = instance.call("PyImport_ImportModule", module_name)?;
    free(instance, module_name)?;
    if imported == 0 {
        instance.call::<(), ()>("PyErr_Print", ())?;
        return Err(raised());
    }
    let attribute_name = c_string(instance, name)?;
    let attribute: Object = instance.call("PyObject_GetAttrString", (imported, attribute_name))?;
    free(instance, attribute_name)?;
    instance.call::<_, ()>("Py_DecRef", imported)?;
    if attribute == 0 {
        instance.call::<(), ()>("PyErr_Print", ())?;
        return Err(raised());
    }
    Ok(attribute)
}

/// Calls a Python function that takes and returns a `str`.
pub(crate) fn call(
    instance: &mut Instance,
    function: Object,
    name: &str,
    argument: &str,
) -> Result<String, InteropError> {
    let argument = text(instance, argument)?;
    let answer: Object = instance.call("PyObject_CallOneArg", (function, argument))?;
    instance.call::<_, ()>("Py_DecRef", argument)?;
    if answer == 0 {
        instance.call::<(), ()>("PyErr_Print", ())?;
        return Err(InteropError::Raised(name.into()));
    }
    let length_at = allocate(instance, &[0; 4])?;
    let utf8: Ptr = instance.call("PyUnicode_AsUTF8AndSize", (answer, length_at))?;
    if utf8 == 0 {
        instance.call::<(), ()>("PyErr_Clear", ())?;
        return Err(InteropError::Answer("not a string that can be encoded"));
    }
    let length = instance.memory().read_u32(length_at)?;
    if length > MAX_ANSWER {
        return Err(InteropError::Answer("a string of absurd length"));
    }
    let bytes = instance.memory().slice(utf8, length)?.to_vec();
    free(instance, length_at)?;
    instance.call::<_, ()>("Py_DecRef", answer)?;
    String::from_utf8(bytes).map_err(|_| InteropError::Answer("text that is not UTF-8"))
}

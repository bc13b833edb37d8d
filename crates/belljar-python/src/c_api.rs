//! Calls from the host into the interpreter, through CPython's C API.
//!
//! Only text crosses the boundary: a Python function takes and returns a `str`. The guest's replies are as untrusted as
//! all guest memory: lengths and encodings are checked here.

use belljar_emscripten::guest_memory::Ptr;
use belljar_emscripten::{Errno, Instance, InstanceError};

/// An owned reference to a Python object, or 0 for a null pointer. It stays valid in every copy of the instance.
pub(crate) type Object = u32;

/// The maximum length of a reply of the guest, in bytes: the largest permitted value in each of its three forms.
const MAX_REPLY: u32 = 128 << 20;

/// An error of a call into Python.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CApiError {
    /// The interpreter ended or crashed.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// The reply does not follow the protocol between host and guest.
    #[error("the interpreter sent an invalid reply: {0}")]
    InvalidReply(&'static str),
    /// A function of the guest package raised, which none of them should.
    #[error("`{0}` failed inside the interpreter; see its standard error")]
    Exception(String),
    /// The guest's memory is exhausted: a call's argument cannot be allocated.
    #[error("the interpreter has no memory left")]
    OutOfMemory,
}

impl From<Errno> for CApiError {
    fn from(_: Errno) -> Self {
        Self::InvalidReply("a pointer is outside of memory")
    }
}

/// Copies `bytes` into newly allocated guest memory. The caller frees it.
pub(crate) fn allocate(instance: &mut Instance, bytes: &[u8]) -> Result<Ptr, CApiError> {
    let length = u32::try_from(bytes.len()).map_err(|_| CApiError::OutOfMemory)?;
    let ptr: Ptr = instance.call("malloc", length.max(1))?;
    if ptr == 0 {
        return Err(CApiError::OutOfMemory);
    }
    instance.memory().write(ptr, bytes)?;
    Ok(ptr)
}

/// Copies `text` into guest memory, with a terminating NUL.
pub(crate) fn c_string(instance: &mut Instance, text: &str) -> Result<Ptr, CApiError> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    allocate(instance, &bytes)
}

/// Frees memory from [`allocate`] or [`c_string`].
pub(crate) fn free(instance: &mut Instance, ptr: Ptr) -> Result<(), CApiError> {
    Ok(instance.call("free", ptr)?)
}

/// Creates a `str`.
fn text(instance: &mut Instance, value: &str) -> Result<Object, CApiError> {
    let bytes = allocate(instance, value.as_bytes())?;
    let length = u32::try_from(value.len()).map_err(|_| CApiError::OutOfMemory)?;
    let object: Object = instance.call("PyUnicode_FromStringAndSize", (bytes, length))?;
    free(instance, bytes)?;
    if object == 0 { Err(CApiError::OutOfMemory) } else { Ok(object) }
}

/// Returns the attribute `name` of the module `module`, which is imported if necessary.
pub(crate) fn import(instance: &mut Instance, module: &str, name: &str) -> Result<Object, CApiError> {
    let raised = || CApiError::Exception(format!("import {module}"));
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
pub(crate) fn call(instance: &mut Instance, function: Object, name: &str, argument: &str) -> Result<String, CApiError> {
    let argument = text(instance, argument)?;
    let reply: Object = instance.call("PyObject_CallOneArg", (function, argument))?;
    instance.call::<_, ()>("Py_DecRef", argument)?;
    if reply == 0 {
        instance.call::<(), ()>("PyErr_Print", ())?;
        return Err(CApiError::Exception(name.into()));
    }
    let length_at = allocate(instance, &[0; 4])?;
    let utf8: Ptr = instance.call("PyUnicode_AsUTF8AndSize", (reply, length_at))?;
    if utf8 == 0 {
        instance.call::<(), ()>("PyErr_Clear", ())?;
        return Err(CApiError::InvalidReply("not a string that can be encoded as UTF-8"));
    }
    let length = instance.memory().read_u32(length_at)?;
    if length > MAX_REPLY {
        return Err(CApiError::InvalidReply("the string is too long"));
    }
    let bytes = instance.memory().slice(utf8, length)?.to_vec();
    free(instance, length_at)?;
    instance.call::<_, ()>("Py_DecRef", reply)?;
    String::from_utf8(bytes).map_err(|_| CApiError::InvalidReply("the text is not UTF-8"))
}

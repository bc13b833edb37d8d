//! Calls of C functions by `ctypes`: the variadic functions of CPython and its libraries, and the exception for a call
//! that the function's type does not permit.

use belljar_emscripten::ForeignCalls;
use belljar_emscripten::guest_caller::GuestCaller;
use belljar_emscripten::wasmtime;

/// The part of CPython in calls through libffi.
pub(crate) const FOREIGN_CALLS: ForeignCalls = ForeignCalls { variadic: VARIADIC, report: raise_type_error };

/// The variadic functions of CPython 3.14, SQLite and zlib.
const VARIADIC: &[&str] = &[
    "PyArg_Parse",
    "PyArg_ParseTuple",
    "PyArg_ParseTupleAndKeywords",
    "PyArg_UnpackTuple",
    "PyBytes_FromFormat",
    "PyErr_Format",
    "PyErr_FormatUnraisable",
    "PyErr_ResourceWarning",
    "PyErr_WarnExplicitFormat",
    "PyErr_WarnFormat",
    "PyEval_CallFunction",
    "PyEval_CallMethod",
    "PyOS_snprintf",
    "PyObject_CallFunction",
    "PyObject_CallFunctionObjArgs",
    "PyObject_CallMethod",
    "PyObject_CallMethodObjArgs",
    "PySys_Audit",
    "PySys_FormatStderr",
    "PySys_FormatStdout",
    "PySys_WriteStderr",
    "PySys_WriteStdout",
    "PyTuple_Pack",
    "PyUnicodeWriter_Format",
    "PyUnicode_FromFormat",
    "Py_BuildValue",
    "_PyArg_ParseStack",
    "_PyArg_ParseStackAndKeywords",
    "_PyArg_ParseTupleAndKeywordsFast",
    "_PyArg_ParseTupleAndKeywords_SizeT",
    "_PyArg_ParseTuple_SizeT",
    "_PyArg_Parse_SizeT",
    "_PyErr_Format",
    "_PyErr_FormatFromCause",
    "_PyErr_FormatNote",
    "_PyObject_CallFunction_SizeT",
    "_PyObject_CallMethod",
    "_PyObject_CallMethodId",
    "_PyObject_CallMethod_SizeT",
    "_PyXIData_FormatNotShareableError",
    "_Py_BuildValue_SizeT",
    "gzprintf",
    "sqlite3_config",
    "sqlite3_db_config",
    "sqlite3_log",
    "sqlite3_mprintf",
    "sqlite3_snprintf",
    "sqlite3_str_appendf",
    "sqlite3_test_control",
    "sqlite3_vtab_config",
];

/// Sets a `TypeError` in the interpreter.
///
/// `ctypes` looks for it only after calls through `pythonapi`. After others it builds the result first, and the
/// interpreter, which finds a result with an exception set, raises `SystemError` with the `TypeError` as its cause.
fn raise_type_error(guest: &mut GuestCaller<'_, '_>, what: &str) -> wasmtime::Result<()> {
    let hint = "set argtypes and restype to the types that the function's declaration has in C";
    let mut message = format!("{what}; {hint}").into_bytes();
    message.retain(|byte| *byte != 0);
    message.push(0);
    // A call through `CDLL` has released the interpreter's lock.
    let state = guest.call("PyGILState_Ensure", &[])?;
    let exception_at = guest.address_of("PyExc_TypeError")?;
    let text = guest.call("malloc", &[u32::try_from(message.len())?])?;
    let exception = guest.memory()?.read_u32(exception_at);
    let written = guest.memory()?.write(text, &message);
    match exception {
        Ok(exception) if text != 0 && written.is_ok() => guest.call("PyErr_SetString", &[exception, text])?,
        _ => guest.call("PyErr_NoMemory", &[])?,
    };
    guest.call("free", &[text])?;
    guest.call("PyGILState_Release", &[state])?;
    Ok(())
}

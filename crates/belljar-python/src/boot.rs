//! Boots CPython in a new instance, through its C API and without the `main` that Pyodide's JavaScript calls.

use belljar_emscripten::host::{Call, Host};
use belljar_emscripten::program::HelperModule;
use belljar_emscripten::wasmtime::{self, ExternRef, Linker, Rooted};
use belljar_emscripten::{Instance, InstanceError};

use crate::c_api::{CApiError, allocate, c_string};
use crate::host_calls;

/// The shadow stack that CPython may use, in bytes. CPython checks this stack and raises `RecursionError` in time. The
/// native stack, which CPython cannot see, is the larger one (see `SHADOW_STACK_PADDING`).
const SHADOW_STACK: u32 = 2 << 20;

/// Extra shadow stack, in bytes, taken by functions that otherwise recurse on the native stack alone, so that CPython
/// notices the recursion. Deep deallocation is one case: its trashcan checks the shadow stack, of which `_Py_Dealloc`
/// itself uses none.
pub(crate) const SHADOW_STACK_PADDING: [(&str, u32); 1] = [("_Py_Dealloc", 256)];

/// The maximum code size, in bytes, of CPython functions that are inlined into their callers.
///
/// Measured on pure-Python programs: 100 to 140 made them 3 to 5 % faster; 40 gained little, and 250 lost the gain,
/// since the eval loop became too large to keep its values in registers.
pub(crate) const INLINE: usize = 120;

/// Returns the path of the standard library's archive in the guest.
pub(crate) fn stdlib_path((major, minor): (u8, u8)) -> String {
    format!("/lib/python{major}{minor}.zip")
}

/// Returns the directory of installed packages in the guest.
pub(crate) fn site_packages((major, minor): (u8, u8)) -> String {
    format!("/lib/python{major}.{minor}/site-packages")
}

/// The directory of the guest package `_belljar` while an image is built.
pub(crate) const GUEST_PATH: &str = "/lib/belljar";

/// The exports of CPython that the host calls or reads.
pub(crate) const EXPORTS: &[&str] = &[
    "PyErr_Clear",
    "PyErr_NoMemory",
    "PyErr_Print",
    "PyImport_ImportModule",
    "PyInitConfig_Create",
    "PyInitConfig_Free",
    "PyInitConfig_GetError",
    "PyInitConfig_SetInt",
    "PyInitConfig_SetStr",
    "PyInitConfig_SetStrList",
    "PyModule_AddFunctions",
    "PyObject_CallOneArg",
    "PyObject_GetAttrString",
    "PyUnicode_AsUTF8AndSize",
    "PyUnicode_FromStringAndSize",
    "Py_DecRef",
    "Py_EMSCRIPTEN_SIGNAL_HANDLING",
    "Py_InitializeFromInitConfig",
    "_PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET",
    "_PyRuntime",
    "__wasm_call_ctors",
    "emscripten_stack_get_base",
    "emscripten_stack_set_limits",
];

/// Returns the module with CPython's trampoline for calls of functions of unknown arity, and with the host function for
/// the guest's calls.
pub(crate) fn helper_module() -> HelperModule {
    let exports = ["trampoline_call", "host_call"].map(String::from).to_vec();
    HelperModule { module: include_bytes!(concat!(env!("OUT_DIR"), "/helpers.wasm")).to_vec(), exports }
}

/// Indexes into [`helper_module`]'s exports.
const TRAMPOLINE: u32 = 0;
const HOST_CALL: u32 = 1;

/// Defines the host functions that CPython imports, in addition to Emscripten's.
pub(crate) fn define_imports(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    // The eval loop calls this while Py_EMSCRIPTEN_SIGNAL_HANDLING is set. It returns the pending signal, or 0.
    linker.func_wrap("env", "_Py_CheckEmscriptenSignals_Helper", |call: Call<'_>| call.data().take_signal())?;
    // The name of the JavaScript engine, for `platform`: a string that Python frees. Python accepts a null pointer.
    linker.func_wrap("env", "_Py_emscripten_runtime", || 0)?;
    // Constructors of Pyodide's JavaScript bridge create two objects before anything runs. They get null: the bridge is
    // never used, and its other imports trap.
    for name in ["Jsv_GetError_import", "__hiwire_deduplicate_new"] {
        linker.func_wrap("env", name, || None::<Rooted<ExternRef>>)?;
    }
    linker.func_wrap("belljar", "host_call", host_calls::host_call)?;
    Ok(())
}

/// Boots CPython. `version` selects the paths; the archive of the standard library must be in place.
pub(crate) fn boot(instance: &mut Instance, version: (u8, u8)) -> Result<(), CApiError> {
    instance.call::<(), ()>("__wasm_call_ctors", ())?;
    let base: u32 = instance.call("emscripten_stack_get_base", ())?;
    let end = base.checked_sub(SHADOW_STACK).ok_or(CApiError::InvalidReply("the stack is at the start of memory"))?;
    instance.call::<_, ()>("emscripten_stack_set_limits", (base, end))?;
    install_trampoline(instance)?;
    initialize(instance, version)?;
    // From here on CPython polls for signals.
    let handling = instance.global("Py_EMSCRIPTEN_SIGNAL_HANDLING")?;
    instance.memory().write_u32(handling, 1)?;
    Ok(())
}

/// Sets `_PyRuntime.emscripten_trampoline = trampoline_call`, at the offset that CPython exports for this purpose.
fn install_trampoline(instance: &mut Instance) -> Result<(), CApiError> {
    let offset_at = instance.global("_PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET")?;
    let runtime = instance.global("_PyRuntime")?;
    let offset = instance.memory().read_u32(offset_at)?;
    let field = runtime.checked_add(offset).ok_or(CApiError::InvalidReply("the trampoline is outside of memory"))?;
    let slot = instance.helper_slot(TRAMPOLINE);
    instance.memory().write_u32(field, slot)?;
    Ok(())
}

/// Adds the function `call_host` to the guest's module `_belljar.host`: a `PyMethodDef` that points to the host
/// function.
pub(crate) fn install_host_call(instance: &mut Instance) -> Result<(), CApiError> {
    /// `METH_O`: one argument.
    const ONE_ARGUMENT: u32 = 8;
    let module_name = c_string(instance, "_belljar.host")?;
    let module: u32 = instance.call("PyImport_ImportModule", module_name)?;
    if module == 0 {
        instance.call::<(), ()>("PyErr_Print", ())?;
        return Err(CApiError::Exception("import _belljar.host".into()));
    }
    let name = c_string(instance, "call_host")?;
    // One definition, and the empty one that ends the list. Python keeps pointers to both.
    let fields = [name, instance.helper_slot(HOST_CALL), ONE_ARGUMENT, 0, 0, 0, 0, 0];
    let definitions = allocate(instance, &fields.map(u32::to_le_bytes).concat())?;
    let status: i32 = instance.call("PyModule_AddFunctions", (module, definitions))?;
    if status == 0 { Ok(()) } else { Err(CApiError::Exception("PyModule_AddFunctions".into())) }
}

/// Initializes CPython by configuration names (PEP 741), which does not depend on the layout of a C struct.
fn initialize(instance: &mut Instance, version: (u8, u8)) -> Result<(), CApiError> {
    let numbers: [(&str, i64); 8] = [
        ("utf8_mode", 1),
        ("write_bytecode", 0),
        ("site_import", 0),
        ("install_signal_handlers", 1),
        // Buffered output would be lost when the code is stopped.
        ("buffered_stdio", 0),
        ("parse_argv", 0),
        ("use_environment", 0),
        ("pathconfig_warnings", 0),
    ];
    // Modules that are frozen into CPython, such as `encodings`, find the rest of their package here.
    let stdlib_dir = stdlib_path(version);
    let strings = [
        ("home", "/"),
        ("executable", "/bin/python"),
        ("base_executable", "/bin/python"),
        ("prefix", "/"),
        ("exec_prefix", "/"),
        ("stdlib_dir", stdlib_dir.as_str()),
        ("platlibdir", "lib"),
        ("program_name", "python"),
    ];
    let config: u32 = instance.call("PyInitConfig_Create", ())?;
    for (name, value) in numbers {
        let name_at = c_string(instance, name)?;
        let status: i32 = instance.call("PyInitConfig_SetInt", (config, name_at, value))?;
        check(instance, config, status, name)?;
    }
    for (name, value) in strings {
        let (name_at, value_at) = (c_string(instance, name)?, c_string(instance, value)?);
        let status: i32 = instance.call("PyInitConfig_SetStr", (config, name_at, value_at))?;
        check(instance, config, status, name)?;
    }
    let name = "module_search_paths";
    let mut paths = Vec::new();
    // The guest package is found only while an image is built: it removes its path from the list then.
    let search = [stdlib_path(version), site_packages(version), GUEST_PATH.to_owned()];
    for path in &search {
        paths.extend(c_string(instance, path)?.to_le_bytes());
    }
    let (name_at, paths_at) = (c_string(instance, name)?, allocate(instance, &paths)?);
    let status: i32 = instance.call("PyInitConfig_SetStrList", (config, name_at, search.len() as u32, paths_at))?;
    check(instance, config, status, name)?;
    let status: i32 = instance.call("Py_InitializeFromInitConfig", config)?;
    check(instance, config, status, "Py_InitializeFromInitConfig")?;
    Ok(instance.call("PyInitConfig_Free", config)?)
}

fn check(instance: &mut Instance, config: u32, status: i32, step: &str) -> Result<(), CApiError> {
    if status == 0 {
        return Ok(());
    }
    let message_at = allocate(instance, &[0; 4])?;
    let _: i32 = instance.call("PyInitConfig_GetError", (config, message_at))?;
    let text_at = instance.memory().read_u32(message_at)?;
    let text = instance.memory().path(text_at).unwrap_or("no message").to_owned();
    let error = wasmtime::Error::msg(format!("failed to start CPython: {step}: {text}"));
    Err(InstanceError::Engine(error).into())
}

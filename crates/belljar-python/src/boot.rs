//! Starting CPython in a new instance, through its C API and without the `main` that Pyodide's JavaScript calls.

use belljar_emscripten::host::{Call, Host};
use belljar_emscripten::program::Resident;
use belljar_emscripten::wasmtime::{self, ExternRef, Linker, Rooted};
use belljar_emscripten::{Instance, InstanceError};

use crate::calls;
use crate::interop::{InteropError, allocate, c_string};

/// Shadow stack that CPython may use, in bytes. It watches this stack and raises `RecursionError` in time; the native
/// stack, which it cannot see, outlasts it (see `BALLAST`).
const SHADOW_STACK: u32 = 2 << 20;

/// Extra shadow stack taken by functions that recurse on the native stack alone, so that CPython sees them. Deep
/// deallocation is one: its trashcan looks at the shadow stack, of which `_Py_Dealloc` itself uses none.
pub(crate) const BALLAST: [(&str, u32); 1] = [("_Py_Dealloc", 256)];

/// Functions of CPython of at most so many bytes of code are put in place of calls to them.
///
/// Measured on pure-Python programs: 100 to 140 made them 3 to 5 % faster; 40 gained little, and 250 lost it all again,
/// since the eval loop became too large to keep its values in registers.
pub(crate) const INLINE: usize = 120;

/// Where the standard library's archive is in the guest.
pub(crate) fn stdlib_path((major, minor): (u8, u8)) -> String {
    format!("/lib/python{major}{minor}.zip")
}

/// Where installed packages are in the guest.
pub(crate) fn site_packages((major, minor): (u8, u8)) -> String {
    format!("/lib/python{major}.{minor}/site-packages")
}

/// Where the guest's own part of Belljar is while an image is built.
pub(crate) const GUEST_PATH: &str = "/lib/belljar";

/// Exports of CPython that the host calls or reads.
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

/// CPython's trampoline for calls of functions of unknown arity, and the host's function for the guest's calls.
pub(crate) fn resident() -> Resident {
    let exports = ["trampoline_call", "host_call"].map(String::from).to_vec();
    Resident { module: include_bytes!("resident.wat").to_vec(), exports }
}

/// Places in [`resident`]'s exports.
const TRAMPOLINE: u32 = 0;
const HOST_CALL: u32 = 1;

/// Adds the host functions that are CPython's own, not Emscripten's.
pub(crate) fn define_imports(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    // Asked by the eval loop while Py_EMSCRIPTEN_SIGNAL_HANDLING is set: which signal came, 0 for none.
    linker.func_wrap("env", "_Py_CheckEmscriptenSignals_Helper", |call: Call<'_>| call.data().stop.take_signal())?;
    // What `platform` says the program runs on; a string that Python frees. None is an answer it copes with.
    linker.func_wrap("env", "_Py_emscripten_runtime", || 0)?;
    // Constructors of Pyodide's JavaScript bridge make two objects before anything runs. They get null: the bridge is
    // never used, and whatever else it asks for is a trap.
    for name in ["Jsv_GetError_import", "__hiwire_deduplicate_new"] {
        linker.func_wrap("env", name, || None::<Rooted<ExternRef>>)?;
    }
    linker.func_wrap("belljar", "host_call", calls::host_call)?;
    Ok(())
}

/// Boots CPython. `stdlib` is the version whose paths are used; the archive must be in place.
pub(crate) fn boot(instance: &mut Instance, version: (u8, u8)) -> Result<(), InteropError> {
    instance.call::<(), ()>("__wasm_call_ctors", ())?;
    let base: u32 = instance.call("emscripten_stack_get_base", ())?;
    let end = base.checked_sub(SHADOW_STACK).ok_or(InteropError::Answer("a stack at the start of memory"))?;
    instance.call::<_, ()>("emscripten_stack_set_limits", (base, end))?;
    install_trampoline(instance)?;
    initialize(instance, version)?;
    // From now on a soft interrupt is looked for.
    let handling = instance.global("Py_EMSCRIPTEN_SIGNAL_HANDLING")?;
    instance.memory().write_u32(handling, 1)?;
    Ok(())
}

/// `_PyRuntime.emscripten_trampoline = trampoline_call`, at the offset that CPython exports for this.
fn install_trampoline(instance: &mut Instance) -> Result<(), InteropError> {
    let offset_at = instance.global("_PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET")?;
    let runtime = instance.global("_PyRuntime")?;
    let offset = instance.memory().read_u32(offset_at)?;
    let field = runtime.checked_add(offset).ok_or(InteropError::Answer("a trampoline outside of memory"))?;
    let slot = instance.resident_slot(TRAMPOLINE);
    instance.memory().write_u32(field, slot)?;
    Ok(())
}

/// Adds the function `call_host` to the guest's module `_belljar.host`: a `PyMethodDef` whose function is the host's.
pub(crate) fn install_host_call(instance: &mut Instance) -> Result<(), InteropError> {
    /// `METH_O`: one argument.
    const ONE_ARGUMENT: u32 = 8;
    let module_name = c_string(instance, "_belljar.host")?;
    let module: u32 = instance.call("PyImport_ImportModule", module_name)?;
    if module == 0 {
        instance.call::<(), ()>("PyErr_Print", ())?;
        return Err(InteropError::Raised("import _belljar.host".into()));
    }
    let name = c_string(instance, "call_host")?;
    // One definition and the empty one that ends the list. Python keeps pointers to them.
    let fields = [name, instance.resident_slot(HOST_CALL), ONE_ARGUMENT, 0, 0, 0, 0, 0];
    let definitions = allocate(instance, &fields.map(u32::to_le_bytes).concat())?;
    let status: i32 = instance.call("PyModule_AddFunctions", (module, definitions))?;
    if status == 0 { Ok(()) } else { Err(InteropError::Raised("PyModule_AddFunctions".into())) }
}

/// PEP 741: configuration by name, so that no layout of a C struct is relied on.
fn initialize(instance: &mut Instance, version: (u8, u8)) -> Result<(), InteropError> {
    let numbers: [(&str, i64); 8] = [
        ("utf8_mode", 1),
        ("write_bytecode", 0),
        ("site_import", 0),
        ("install_signal_handlers", 1),
        // Output that sits in a buffer is lost when the code is stopped.
        ("buffered_stdio", 0),
        ("parse_argv", 0),
        ("use_environment", 0),
        ("pathconfig_warnings", 0),
    ];
    // Modules that are frozen into CPython, `encodings` for one, look for the rest of their package in here.
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
    // The guest's own part is found only while an image is built: it takes its path off the list then.
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

fn check(instance: &mut Instance, config: u32, status: i32, step: &str) -> Result<(), InteropError> {
    if status == 0 {
        return Ok(());
    }
    let message_at = allocate(instance, &[0; 4])?;
    let _: i32 = instance.call("PyInitConfig_GetError", (config, message_at))?;
    let text_at = instance.memory().read_u32(message_at)?;
    let text = instance.memory().path(text_at).unwrap_or("no message").to_owned();
    let error = wasmtime::Error::msg(format!("CPython does not start: {step}: {text}"));
    Err(InstanceError::Engine(error).into())
}

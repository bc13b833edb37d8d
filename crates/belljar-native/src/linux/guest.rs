//! Writes the Python code that runs in sessions' processes to a directory that sandboxes show.

use std::path::Path;

use crate::linux::session_sandbox::set_mode;

/// The Python module by which a forked process enters an idle sandbox: it performs the steps of a
/// [`belljar_sandbox::Entry`].
pub const ENTRY_PYTHON: &str = include_str!("guest/belljar_kernel/entry.py");

/// The modules: path in the directory and content.
const FILES: &[(&str, &str)] = &[
    ("bootstrap.py", include_str!("guest/bootstrap.py")),
    ("belljar_kernel/__init__.py", include_str!("guest/belljar_kernel/__init__.py")),
    ("belljar_kernel/zygote.py", include_str!("guest/belljar_kernel/zygote.py")),
    ("belljar_kernel/kernel.py", include_str!("guest/belljar_kernel/kernel.py")),
    ("belljar_kernel/event_loops.py", include_str!("guest/belljar_kernel/event_loops.py")),
    ("belljar_kernel/no_network.py", include_str!("guest/belljar_kernel/no_network.py")),
    ("belljar_kernel/plotly_display.py", include_str!("guest/belljar_kernel/plotly_display.py")),
    ("belljar_kernel/pip.py", include_str!("guest/belljar_kernel/pip.py")),
    ("belljar_kernel/one_shot.py", include_str!("guest/belljar_kernel/one_shot.py")),
    ("belljar_kernel/exchange.py", include_str!("guest/belljar_kernel/exchange.py")),
    // The guest in WebAssembly has the same modules.
    ("belljar_kernel/host_functions.py", include_str!("../../../belljar-python/guest/host_functions.py")),
    ("belljar_kernel/tool_calls.py", include_str!("../../../belljar-python/guest/tool_calls.py")),
    ("belljar_kernel/tool_values.py", include_str!("../../../belljar-python/guest/tool_values.py")),
    ("belljar_kernel/tools.py", include_str!("../../../belljar-python/guest/tools.py")),
    ("belljar_kernel/value_json.py", include_str!("../../../belljar-python/guest/value_json.py")),
    ("belljar_kernel/values.py", include_str!("../../../belljar-python/guest/values.py")),
    ("belljar_kernel/entry.py", ENTRY_PYTHON),
    ("pip_stub/pip/__init__.py", include_str!("guest/pip_stub/pip/__init__.py")),
    ("pip_stub/pip/__main__.py", include_str!("guest/pip_stub/pip/__main__.py")),
];

/// The programs: path in the directory and content.
const PROGRAMS: &[(&str, &str)] = &[("bin/pip", PIP), ("bin/pip3", PIP)];

/// A script that runs pip with the first `python` on the path, which is the environment's.
const PIP: &str = "#!/bin/sh\nexec python -m pip \"$@\"\n";

/// Writes all modules and programs.
///
/// # Errors
/// Those of the file system.
pub(crate) fn write(directory: &Path) -> std::io::Result<()> {
    for (files, mode) in [(FILES, 0o644), (PROGRAMS, 0o755)] {
        for (name, text) in files {
            let path = directory.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
                set_mode(parent, 0o755)?;
            }
            std::fs::write(&path, text)?;
            set_mode(&path, mode)?;
        }
    }
    for name in ["", "pip_stub"] {
        set_mode(&directory.join(name), 0o755)?;
    }
    Ok(())
}

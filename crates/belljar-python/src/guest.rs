//! The Python package `_belljar` (`guest/*.py`), which runs inside the sandbox.

use std::sync::Arc;

use belljar_emscripten::fs::{FileBytes, Layer, LayerBuilder, LayerError};
use belljar_packages::imported_modules;
use sha2::{Digest, Sha256};

use crate::session::SESSION_DIRECTORY;

/// The package's modules: file name and source.
const MODULES: &[(&str, &str)] = &[
    ("__init__.py", include_str!("../guest/__init__.py")),
    ("absent_modules.py", include_str!("../guest/absent_modules.py")),
    ("after_restore.py", include_str!("../guest/after_restore.py")),
    ("bytecode.py", include_str!("../guest/bytecode.py")),
    ("cell.py", include_str!("../guest/cell.py")),
    ("certificates.py", include_str!("../guest/certificates.py")),
    ("compile_stdlib.py", include_str!("../guest/compile_stdlib.py")),
    ("display.py", include_str!("../guest/display.py")),
    ("event_loop.py", include_str!("../guest/event_loop.py")),
    ("exchange.py", include_str!("../guest/exchange.py")),
    ("gathering.py", include_str!("../guest/gathering.py")),
    ("gc_freeze.py", include_str!("../guest/gc_freeze.py")),
    ("hashing.py", include_str!("../guest/hashing.py")),
    ("host.py", include_str!("../guest/host.py")),
    ("host_functions.py", include_str!("../guest/host_functions.py")),
    ("hot_code.py", include_str!("../guest/hot_code.py")),
    ("http_clients.py", include_str!("../guest/http_clients.py")),
    ("immortals.py", include_str!("../guest/immortals.py")),
    ("import_patches.py", include_str!("../guest/import_patches.py")),
    ("import_readings.py", include_str!("../guest/import_readings.py")),
    ("interrupts.py", include_str!("../guest/interrupts.py")),
    ("lean_imports.py", include_str!("../guest/lean_imports.py")),
    ("magics.py", include_str!("../guest/magics.py")),
    ("memory_reserve.py", include_str!("../guest/memory_reserve.py")),
    ("micropip.py", include_str!("../guest/micropip.py")),
    ("monty.py", include_str!("../guest/monty.py")),
    ("monty_awaits.py", include_str!("../guest/monty_awaits.py")),
    ("monty_calls.py", include_str!("../guest/monty_calls.py")),
    ("monty_clock.py", include_str!("../guest/monty_clock.py")),
    ("monty_decoding.py", include_str!("../guest/monty_decoding.py")),
    ("monty_encoding.py", include_str!("../guest/monty_encoding.py")),
    ("monty_files.py", include_str!("../guest/monty_files.py")),
    ("monty_names.py", include_str!("../guest/monty_names.py")),
    ("monty_objects.py", include_str!("../guest/monty_objects.py")),
    ("monty_system.py", include_str!("../guest/monty_system.py")),
    ("network.py", include_str!("../guest/network.py")),
    ("pip.py", include_str!("../guest/pip.py")),
    ("plain_cells.py", include_str!("../guest/plain_cells.py")),
    ("pools.py", include_str!("../guest/pools.py")),
    ("processes.py", include_str!("../guest/processes.py")),
    ("pyodide_http.py", include_str!("../guest/pyodide_http.py")),
    ("recursion.py", include_str!("../guest/recursion.py")),
    ("repl.py", include_str!("../guest/repl.py")),
    ("scheduler.py", include_str!("../guest/scheduler.py")),
    ("shell.py", include_str!("../guest/shell.py")),
    ("shell_commands.py", include_str!("../guest/shell_commands.py")),
    ("shutdown.py", include_str!("../guest/shutdown.py")),
    ("snapshot.py", include_str!("../guest/snapshot.py")),
    ("source_cache.py", include_str!("../guest/source_cache.py")),
    ("streams.py", include_str!("../guest/streams.py")),
    ("subprocess_shim.py", include_str!("../guest/subprocess_shim.py")),
    ("threads.py", include_str!("../guest/threads.py")),
    ("time_zones.py", include_str!("../guest/time_zones.py")),
    ("tls.py", include_str!("../guest/tls.py")),
    ("tls_streams.py", include_str!("../guest/tls_streams.py")),
    ("tool_calls.py", include_str!("../guest/tool_calls.py")),
    ("tool_values.py", include_str!("../guest/tool_values.py")),
    ("tools.py", include_str!("../guest/tools.py")),
    ("tracebacks.py", include_str!("../guest/tracebacks.py")),
    ("unsupported.py", include_str!("../guest/unsupported.py")),
    ("value_json.py", VALUE_JSON),
    ("values.py", include_str!("../guest/values.py")),
];

/// Returns the modules that the package imports, at any depth.
pub(crate) fn imports() -> impl Iterator<Item = String> {
    let imports = MODULES.iter().flat_map(|(_, source)| imported_modules(source));
    imports.filter(|import| import.level == 0).map(|import| import.name)
}

/// A directory in which models expect the session's files, since ChatGPT's code interpreter has them there. It is a
/// link to the working directory.
pub(crate) const DATA_LINK: &str = "/mnt/data";

/// Returns a read-only layer of the package under `path`, and of [`DATA_LINK`].
pub(crate) fn layer(path: &str) -> Result<Arc<Layer>, LayerError> {
    let mut builder = LayerBuilder::new();
    builder.symlink(DATA_LINK, SESSION_DIRECTORY)?;
    for (name, source) in MODULES {
        builder.file(&format!("{path}/_belljar/{name}"), FileBytes::from(source.as_bytes().to_vec()))?;
    }
    Ok(builder.finish("guest"))
}

/// Returns the SHA-256 of the layer's files. It is part of the key of every image, since images contain them.
pub(crate) fn digest() -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(format!("{DATA_LINK} -> {SESSION_DIRECTORY}\n"));
    for (name, source) in MODULES {
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update((source.len() as u64).to_le_bytes());
        hasher.update(source);
    }
    hasher.finalize().into()
}

/// The source of the guest module that renders values as JSON. It needs only the standard library, so that native
/// Pythons can run it too.
pub const VALUE_JSON: &str = include_str!("../guest/value_json.py");

#[cfg(test)]
mod tests {
    #[test]
    fn every_guest_file_is_listed() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".py"))
            .collect();
        files.sort();
        let listed: Vec<&str> = super::MODULES.iter().map(|(name, _)| *name).collect();
        assert_eq!(files, listed);
    }
}

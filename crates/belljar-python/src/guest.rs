//! The part of Belljar that runs inside the sandbox: the Python package `_belljar`, from `guest/*.py`.

use std::sync::Arc;

use belljar_emscripten::fs::{FileBytes, Layer, LayerBuilder, LayerError};
use sha2::{Digest, Sha256};

/// The package's modules: file name and source.
const MODULES: &[(&str, &str)] = &[
    ("__init__.py", include_str!("../guest/__init__.py")),
    ("build.py", include_str!("../guest/build.py")),
    ("bytecode.py", include_str!("../guest/bytecode.py")),
    ("cell.py", include_str!("../guest/cell.py")),
    ("collector.py", include_str!("../guest/collector.py")),
    ("commands.py", include_str!("../guest/commands.py")),
    ("display.py", include_str!("../guest/display.py")),
    ("ending.py", include_str!("../guest/ending.py")),
    ("event_loop.py", include_str!("../guest/event_loop.py")),
    ("host.py", include_str!("../guest/host.py")),
    ("image.py", include_str!("../guest/image.py")),
    ("immortals.py", include_str!("../guest/immortals.py")),
    ("interactive.py", include_str!("../guest/interactive.py")),
    ("interrupts.py", include_str!("../guest/interrupts.py")),
    ("magics.py", include_str!("../guest/magics.py")),
    ("memory.py", include_str!("../guest/memory.py")),
    ("micropip.py", include_str!("../guest/micropip.py")),
    ("pip.py", include_str!("../guest/pip.py")),
    ("processes.py", include_str!("../guest/processes.py")),
    ("recursion.py", include_str!("../guest/recursion.py")),
    ("refusals.py", include_str!("../guest/refusals.py")),
    ("restored.py", include_str!("../guest/restored.py")),
    ("shell.py", include_str!("../guest/shell.py")),
    ("sources.py", include_str!("../guest/sources.py")),
    ("streams.py", include_str!("../guest/streams.py")),
    ("tracebacks.py", include_str!("../guest/tracebacks.py")),
    ("values.py", VALUES),
];

/// The package as a read-only layer under `path`.
pub(crate) fn layer(path: &str) -> Result<Arc<Layer>, LayerError> {
    let mut builder = LayerBuilder::new();
    for (name, source) in MODULES {
        builder.file(&format!("{path}/_belljar/{name}"), FileBytes::from(source.as_bytes().to_vec()))?;
    }
    Ok(builder.finish("guest"))
}

/// SHA-256 of all modules: images made with others are not ours.
pub(crate) fn digest() -> [u8; 32] {
    let mut hasher = Sha256::new();
    for (name, source) in MODULES {
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update((source.len() as u64).to_le_bytes());
        hasher.update(source);
    }
    hasher.finalize().into()
}

/// The guest's module that turns values into JSON, which needs nothing but the standard library: for other Pythons.
pub const VALUES: &str = include_str!("../guest/values.py");

#[cfg(test)]
mod tests {
    #[test]
    fn every_module_of_the_package_is_listed() {
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

//! The Python that runs in sessions' processes, written to a folder that sandboxes show.

use std::path::Path;

use crate::native::home::set_mode;
use crate::native::sandbox::ENTER_PYTHON;

/// Files by their path in the folder.
const FILES: &[(&str, &str)] = &[
    ("begin.py", include_str!("guest/begin.py")),
    ("belljar_kernel/__init__.py", include_str!("guest/belljar_kernel/__init__.py")),
    ("belljar_kernel/nursery.py", include_str!("guest/belljar_kernel/nursery.py")),
    ("belljar_kernel/kernel.py", include_str!("guest/belljar_kernel/kernel.py")),
    ("belljar_kernel/figures.py", include_str!("guest/belljar_kernel/figures.py")),
    ("belljar_kernel/pip.py", include_str!("guest/belljar_kernel/pip.py")),
    ("belljar_kernel/entry.py", ENTER_PYTHON),
    ("shadow/pip/__init__.py", include_str!("guest/shadow/pip/__init__.py")),
    ("shadow/pip/__main__.py", include_str!("guest/shadow/pip/__main__.py")),
];

/// Programs, likewise.
const PROGRAMS: &[(&str, &str)] = &[("bin/pip", PIP), ("bin/pip3", PIP)];

/// Which Python is the path's to say: the environment's comes first.
const PIP: &str = "#!/bin/sh\nexec python -m pip \"$@\"\n";

/// Writes all of it.
///
/// # Errors
/// When the disk does not take it.
pub(crate) fn write(folder: &Path) -> std::io::Result<()> {
    for (list, mode) in [(FILES, 0o644), (PROGRAMS, 0o755)] {
        for (name, text) in list {
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
                set_mode(parent, 0o755)?;
            }
            std::fs::write(&path, text)?;
            set_mode(&path, mode)?;
        }
    }
    for inner in ["", "shadow"] {
        set_mode(&folder.join(inner), 0o755)?;
    }
    Ok(())
}

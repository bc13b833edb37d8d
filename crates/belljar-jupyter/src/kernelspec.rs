//! Kernelspecs: the folders in which Jupyter frontends look for kernels.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use belljar_core::os::make_public;
use jupyter_protocol::JupyterKernelspec;
use serde_json::Value;

use crate::os::default_data;

/// The metadata key that marks kernelspecs that Belljar has written.
const METADATA_KEY: &str = "belljar";
/// The largest size of a kernelspec, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The reason why a kernelspec was not written, or not removed.
#[derive(Debug, thiserror::Error)]
pub enum KernelspecError {
    /// The name is not valid.
    #[error("invalid kernel name `{0}`: letters, digits, `-`, `.` and `_` are allowed")]
    InvalidName(String),
    /// The kernelspec of this name was written by another program.
    #[error("the kernelspec {} belongs to another program", .0.display())]
    Foreign(PathBuf),
    /// The kernelspec does not exist.
    #[error("the kernelspec {} does not exist", .0.display())]
    Missing(PathBuf),
    /// A file could not be written or removed.
    #[error("failed to write {}: {error}", path.display())]
    Write {
        /// The path of the file or folder.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
}

/// Returns the Jupyter data directory of this user, as `jupyter --data-dir` prints it: `JUPYTER_DATA_DIR`, or the
/// platform's default; `None` if the user has no home directory.
pub fn user_data() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("JUPYTER_DATA_DIR").or_else(|| default_data(variable))
}

/// Returns the Jupyter data directory of a Python environment.
pub fn prefix_data(prefix: &Path) -> PathBuf {
    prefix.join("share/jupyter")
}

/// The description of a kernel for frontends.
#[derive(Debug, Clone)]
pub struct Kernelspec {
    /// The name in `--kernel NAME`, which is also the name of its folder.
    pub name: String,
    /// The name in menus.
    pub display_name: String,
    /// The command to run. One of the arguments is `{connection_file}`.
    pub argv: Vec<String>,
}

impl Kernelspec {
    /// Writes the kernelspec into the data directory `data`, replacing one that Belljar wrote before. Returns its
    /// folder.
    ///
    /// # Errors
    /// Fails if the kernelspec of that name belongs to another program, or a file cannot be written.
    pub fn install(&self, data: &Path) -> Result<PathBuf, KernelspecError> {
        let folder = folder(data, &self.name)?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| KernelspecError::Write { path, error }
        };
        if folder.exists() && read(&folder).is_none() {
            return Err(KernelspecError::Foreign(folder));
        }
        std::fs::create_dir_all(&folder).map_err(failed(&folder))?;
        let spec = JupyterKernelspec {
            argv: self.argv.clone(),
            display_name: self.display_name.clone(),
            language: "python".into(),
            metadata: Some(HashMap::from([(METADATA_KEY.to_owned(), Value::from(env!("CARGO_PKG_VERSION")))])),
            interrupt_mode: Some("message".into()),
            env: Some(HashMap::new()),
        };
        let path = folder.join("kernel.json");
        let text = serde_json::to_string_pretty(&spec).unwrap_or_default();
        // Frontends may read the file at any time: it is replaced atomically.
        let written = tempfile::NamedTempFile::new_in(&folder).and_then(|mut file| {
            use std::io::Write;
            file.write_all(text.as_bytes())?;
            make_public(file.as_file())?;
            file.persist(&path).map_err(|error| error.error)
        });
        written.map_err(failed(&path))?;
        Ok(folder)
    }
}

/// Removes a kernelspec that Belljar wrote from the data directory `data`. Returns its former folder.
///
/// # Errors
/// Fails if the kernelspec does not exist, belongs to another program, or cannot be removed.
pub fn uninstall(data: &Path, name: &str) -> Result<PathBuf, KernelspecError> {
    let folder = folder(data, name)?;
    if !folder.exists() {
        return Err(KernelspecError::Missing(folder));
    }
    if read(&folder).is_none() {
        return Err(KernelspecError::Foreign(folder));
    }
    std::fs::remove_dir_all(&folder).map_err(|error| KernelspecError::Write { path: folder.clone(), error })?;
    Ok(folder)
}

/// Returns the kernelspecs in the data directory `data` that Belljar wrote, with their folders.
pub fn installed(data: &Path) -> Vec<(PathBuf, Kernelspec)> {
    let entries = std::fs::read_dir(data.join("kernels")).into_iter().flatten().flatten();
    let mut found: Vec<(PathBuf, Kernelspec)> =
        entries.filter_map(|entry| Some((entry.path(), read(&entry.path())?))).collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn folder(data: &Path, name: &str) -> Result<PathBuf, KernelspecError> {
    // Jupyter's own check, which would also allow the names `.` and `..`.
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(KernelspecError::InvalidName(name.into()));
    }
    Ok(data.join("kernels").join(name))
}

/// Reads the kernelspec in a folder; `None` if Belljar did not write it.
fn read(folder: &Path) -> Option<Kernelspec> {
    let path = folder.join("kernel.json");
    if std::fs::metadata(&path).ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    let spec: JupyterKernelspec = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    spec.metadata?.get(METADATA_KEY)?;
    let name = folder.file_name()?.to_str()?.to_owned();
    Some(Kernelspec { name, display_name: spec.display_name, argv: spec.argv })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> Kernelspec {
        Kernelspec { name: name.into(), display_name: "Python (Belljar)".into(), argv: vec!["belljar".into()] }
    }

    #[test]
    fn kernelspec_is_replaced_and_removed() {
        let data = tempfile::tempdir().unwrap();
        let folder = spec("belljar").install(data.path()).unwrap();
        assert_eq!(folder, data.path().join("kernels/belljar"));
        let again = Kernelspec { display_name: "Other".into(), ..spec("belljar") };
        again.install(data.path()).unwrap();
        let found = installed(data.path());
        assert_eq!((found.len(), found[0].1.display_name.as_str()), (1, "Other"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "temporary files were left");
        uninstall(data.path(), "belljar").unwrap();
        assert!(matches!(uninstall(data.path(), "belljar"), Err(KernelspecError::Missing(_))));
        assert!(installed(data.path()).is_empty());
    }

    #[test]
    fn kernelspec_of_another_program_is_kept() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("kernels/python3");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("kernel.json"), r#"{"argv": [], "display_name": "P", "language": "python"}"#)
            .unwrap();
        assert!(matches!(spec("python3").install(data.path()), Err(KernelspecError::Foreign(_))));
        assert!(matches!(uninstall(data.path(), "python3"), Err(KernelspecError::Foreign(_))));
        assert!(installed(data.path()).is_empty());
    }

    #[test]
    fn paths_are_not_valid_names() {
        let data = tempfile::tempdir().unwrap();
        for name in ["", ".", "..", "../x", "a/b", "a b", "é", ".hidden"] {
            assert!(matches!(spec(name).install(data.path()), Err(KernelspecError::InvalidName(_))), "{name}");
        }
    }
}

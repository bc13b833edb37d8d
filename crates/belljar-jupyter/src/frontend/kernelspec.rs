//! Kernelspecs: the folders in which Jupyter's frontends look for kernels.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use jupyter_protocol::JupyterKernelspec;
use serde_json::Value;

/// Marks a kernelspec as one of ours, in its metadata.
const MARK: &str = "belljar";
/// Longest kernelspec that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Why a kernelspec is not written, or not removed.
#[derive(Debug, thiserror::Error)]
pub enum KernelspecError {
    /// The name is not one.
    #[error("`{0}` is no name of a kernel: write letters, digits, `-`, `.` and `_`")]
    Name(String),
    /// Somebody else's stands there.
    #[error("{} is another program's kernel\nhint: --name gives Belljar's another name", .0.display())]
    Foreign(PathBuf),
    /// There is none.
    #[error("there is no kernel in {}", .0.display())]
    Missing(PathBuf),
    /// The system does not let us.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// Jupyter's data folder of this user: `JUPYTER_DATA_DIR`, or the platform's, as `jupyter --data-dir` says. `None` when
/// the user has no home.
pub fn user_data() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(given) = variable("JUPYTER_DATA_DIR") {
        return Some(given);
    }
    let home = || variable("HOME");
    if cfg!(windows) {
        return Some(variable("APPDATA")?.join("jupyter"));
    }
    if cfg!(target_os = "macos") {
        return Some(home()?.join("Library/Jupyter"));
    }
    Some(variable("XDG_DATA_HOME").or_else(|| Some(home()?.join(".local/share")))?.join("jupyter"))
}

/// Jupyter's data folder of a Python environment.
pub fn prefix_data(prefix: &Path) -> PathBuf {
    prefix.join("share/jupyter")
}

/// A kernel that frontends can find.
#[derive(Debug, Clone)]
pub struct Kernelspec {
    /// Its name in `--kernel NAME`, and its folder's.
    pub name: String,
    /// Its name in menus.
    pub display_name: String,
    /// What is run, with `{connection_file}` among it.
    pub argv: Vec<String>,
}

impl Kernelspec {
    /// Writes it into a data folder, in place of one that we wrote before; answers its own folder.
    ///
    /// # Errors
    /// When another program's kernel has the name, or it cannot be written.
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
            metadata: Some(HashMap::from([(MARK.to_owned(), Value::from(env!("CARGO_PKG_VERSION")))])),
            interrupt_mode: Some("message".into()),
            env: Some(HashMap::new()),
        };
        let path = folder.join("kernel.json");
        let text = serde_json::to_string_pretty(&spec).unwrap_or_default();
        // Frontends look at any time: they see the old one or the new one.
        let written = tempfile::NamedTempFile::new_in(&folder).and_then(|mut file| {
            use std::io::Write;
            file.write_all(text.as_bytes())?;
            readable(file.as_file())?;
            file.persist(&path).map_err(|error| error.error)
        });
        written.map_err(failed(&path))?;
        Ok(folder)
    }
}

/// As other files of this user are: a temporary one is for its maker alone.
#[cfg(unix)]
fn readable(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable(_: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}

/// Removes a kernel of ours from a data folder; answers where it was.
///
/// # Errors
/// When there is none, or it is not ours.
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

/// Our kernels in a data folder: where they are, and what they are.
pub fn installed(data: &Path) -> Vec<(PathBuf, Kernelspec)> {
    let entries = std::fs::read_dir(data.join("kernels")).into_iter().flatten().flatten();
    let mut found: Vec<(PathBuf, Kernelspec)> =
        entries.filter_map(|entry| Some((entry.path(), read(&entry.path())?))).collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn folder(data: &Path, name: &str) -> Result<PathBuf, KernelspecError> {
    // As Jupyter's own check, but for names that are paths.
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(KernelspecError::Name(name.into()));
    }
    Ok(data.join("kernels").join(name))
}

/// The kernel in a folder, if it is ours.
fn read(folder: &Path) -> Option<Kernelspec> {
    let path = folder.join("kernel.json");
    if std::fs::metadata(&path).ok()?.len() > MAX_FILE {
        return None;
    }
    let spec: JupyterKernelspec = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    spec.metadata?.get(MARK)?;
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
    fn a_kernel_is_installed_again_and_removed() {
        let data = tempfile::tempdir().unwrap();
        let folder = spec("belljar").install(data.path()).unwrap();
        assert_eq!(folder, data.path().join("kernels/belljar"));
        let again = Kernelspec { display_name: "Other".into(), ..spec("belljar") };
        again.install(data.path()).unwrap();
        let found = installed(data.path());
        assert_eq!((found.len(), found[0].1.display_name.as_str()), (1, "Other"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "leavings");
        uninstall(data.path(), "belljar").unwrap();
        assert!(matches!(uninstall(data.path(), "belljar"), Err(KernelspecError::Missing(_))));
        assert!(installed(data.path()).is_empty());
    }

    #[test]
    fn a_kernel_of_another_program_is_left_alone() {
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
    fn names_are_no_paths() {
        let data = tempfile::tempdir().unwrap();
        for name in ["", ".", "..", "../x", "a/b", "a b", "é", ".hidden"] {
            assert!(matches!(spec(name).install(data.path()), Err(KernelspecError::Name(_))), "{name}");
        }
    }
}

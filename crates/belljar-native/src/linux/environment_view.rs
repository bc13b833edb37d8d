//! The environment of native kernels at paths that do not name the user of this machine.
//!
//! Python derives `sys.prefix`, `sys.path`, `__file__` and the file names in tracebacks from the path that it was
//! started with. Kernels in the full sandbox are started from a directory of links, which the sandbox shows as
//! directories:
//!
//! | path in the view | link to |
//! | --- | --- |
//! | `env/bin`, `env/lib`, … | the directories of the virtual environment |
//! | `env/pyvenv.cfg` | none: a file that names `python` |
//! | `python` | the Python that the environment was created from, unless it is in `/usr` |
//!
//! The directories are also visible at their own paths, which the first lines of scripts and the search paths of
//! libraries contain.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::linux::session_sandbox::set_mode;

/// The file that makes a directory a virtual environment (PEP 405).
const CONFIGURATION: &str = "pyvenv.cfg";
/// The keys of that file that are kept. Others, such as `command`, contain paths.
const KEPT_KEYS: [&str; 4] = ["implementation", "include-system-site-packages", "version", "version_info"];

/// A virtual environment at other paths.
#[derive(Debug)]
pub(crate) struct EnvironmentView {
    python: PathBuf,
    readable: Vec<PathBuf>,
}

impl EnvironmentView {
    /// Creates a view, in a directory that all users can reach, of the environment that a Python belongs to. Returns
    /// `None` if that is not a virtual environment.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn create(root: &Path, python: &Path) -> io::Result<Option<Self>> {
        let (Some(bin), Some(environment)) = (python.parent(), python.parent().and_then(Path::parent)) else {
            return Ok(None);
        };
        let (Some(name), Some(bin)) = (python.file_name(), bin.file_name()) else { return Ok(None) };
        let Ok(text) = fs::read_to_string(environment.join(CONFIGURATION)) else { return Ok(None) };
        let settings =
            || text.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.trim(), value.trim()));
        let home = settings().find(|(key, _)| *key == "home").map(|(_, value)| PathBuf::from(value));
        let Some((home, base)) = home.as_deref().and_then(|home| Some((home, home.parent()?))) else { return Ok(None) };

        let view = root.join("env");
        fs::create_dir(&view)?;
        set_mode(&view, 0o755)?;
        let mut readable = vec![view.join(CONFIGURATION), environment.to_owned()];
        for entry in fs::read_dir(environment)? {
            let entry = entry?;
            if entry.path().is_dir() && !entry.file_name().as_encoded_bytes().starts_with(b".") {
                let link = view.join(entry.file_name());
                symlink(entry.path(), &link)?;
                readable.push(link);
            }
        }
        let mut home = home.to_owned();
        if !home.starts_with("/usr") {
            let link = root.join("python");
            symlink(base, &link)?;
            readable.extend([link.clone(), base.to_owned()]);
            home = link.join(home.file_name().unwrap_or_default());
        }
        let mut configuration = format!("home = {}\n", home.display());
        for (key, value) in settings().filter(|(key, _)| KEPT_KEYS.contains(key)) {
            configuration.push_str(&format!("{key} = {value}\n"));
        }
        fs::write(view.join(CONFIGURATION), configuration)?;
        set_mode(&view.join(CONFIGURATION), 0o644)?;
        Ok(Some(Self { python: view.join(bin).join(name), readable }))
    }

    /// Returns the path of the environment's Python in the view.
    pub(crate) fn python(&self) -> &Path {
        &self.python
    }

    /// Returns the paths that a sandbox has to show, each of which may be a link.
    pub(crate) fn readable(&self) -> &[PathBuf] {
        &self.readable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_has_the_directories_and_settings_of_the_environment() {
        let outer = tempfile::tempdir().unwrap();
        let (user, root) = (outer.path().join("ada"), outer.path().join("root"));
        for directory in ["venv/bin", "venv/lib", "venv/.cache", "base/bin"] {
            fs::create_dir_all(user.join(directory)).unwrap();
        }
        fs::create_dir(&root).unwrap();
        let python = user.join("venv/bin/python3");
        let given = |home: &Path| {
            format!("home = {}\nversion = 3.14.0\ncommand = python3 -m venv {}\n", home.display(), user.display())
        };
        assert!(EnvironmentView::create(&root, &python).unwrap().is_none(), "without pyvenv.cfg");
        fs::write(user.join("venv/pyvenv.cfg"), given(&user.join("base/bin"))).unwrap();
        let view = EnvironmentView::create(&root, &python).unwrap().unwrap();
        assert_eq!(view.python(), root.join("env/bin/python3"));
        let text = fs::read_to_string(root.join("env/pyvenv.cfg")).unwrap();
        assert_eq!(text, format!("home = {}\nversion = 3.14.0\n", root.join("python/bin").display()));
        let mut readable = view.readable().to_vec();
        readable.sort();
        let mut wanted = ["root/env/bin", "root/env/lib", "root/env/pyvenv.cfg", "root/python", "ada/venv", "ada/base"]
            .map(|path| outer.path().join(path));
        wanted.sort();
        assert_eq!(readable, wanted);
        assert_eq!(root.join("python").canonicalize().unwrap(), user.join("base").canonicalize().unwrap());

        fs::write(user.join("venv/pyvenv.cfg"), given(Path::new("/usr/bin"))).unwrap();
        let other = outer.path().join("other");
        fs::create_dir(&other).unwrap();
        EnvironmentView::create(&other, &python).unwrap().unwrap();
        assert!(fs::read_to_string(other.join("env/pyvenv.cfg")).unwrap().starts_with("home = /usr/bin\n"));
        assert!(!other.join("python").exists());
    }
}

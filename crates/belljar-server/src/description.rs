//! The descriptions of the tools, made from the settings of the server: a model should know the rules before it writes
//! code.

use std::time::Duration;

use belljar_core::{Limits, format_size};

/// The maximum length of a description, in bytes: it is part of every request to the model.
const MAX_DESCRIPTION: usize = 1500;

/// The maximum lengths of lists in a description, from the most to the least detailed. The first is used with which the
/// description is no longer than [`MAX_DESCRIPTION`].
const LIST_LIMITS: [ListLimits; 3] = [
    ListLimits { names: 10, names_length: 120, mounts: 4 },
    ListLimits { names: 3, names_length: 40, mounts: 2 },
    ListLimits { names: 1, names_length: 20, mounts: 0 },
];

/// The maximum length of a package's name and of a directory's path in a list, in bytes.
const MAX_NAME: usize = 20;
const MAX_MOUNT_PATH: usize = 30;

/// The maximum lengths of lists in a description.
#[derive(Debug, Clone, Copy)]
struct ListLimits {
    /// The number of names of packages.
    names: usize,
    /// The length of a list of names in bytes, after which the others are left out.
    names_length: usize,
    /// The number of directories.
    mounts: usize,
}

/// The default maximum number of bytes of text in an answer.
const DEFAULT_MAX_ANSWER: usize = 24 << 10;

/// The kind of sandbox that code runs in, as descriptions of tools name it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxKind {
    /// CPython compiled to WebAssembly.
    #[default]
    Wasm,
    /// A Python of this machine in a Linux sandbox.
    Native,
    /// A Python of this machine without a sandbox.
    Unsandboxed,
}

/// The packages that code can use.
#[derive(Debug, Clone, Default)]
pub struct PackageRules {
    /// The names of packages that are installed.
    pub installed: Vec<String>,
    /// Set if packages can be installed.
    pub can_install: bool,
    /// Set if cells of sessions get the packages that they import. Calls of `run_python_code` always get them, if
    /// packages can be installed.
    pub cells_install_imports: bool,
    /// The names or patterns of the only packages that can be installed; all can be installed if this is empty.
    pub allowed: Vec<String>,
}

/// A directory of the server's machine that code can use.
#[derive(Debug, Clone)]
pub struct MountDescription {
    /// The path inside.
    pub path: String,
    /// Set if the code may write to it.
    pub writable: bool,
}

/// The settings of a server that the descriptions of its tools state.
#[derive(Debug, Clone)]
pub struct SandboxDescription {
    /// The version of Python: `3.14`.
    pub python: String,
    /// The kind of sandbox.
    pub kind: SandboxKind,
    /// The packages that code can use.
    pub packages: PackageRules,
    /// The directories of the server's machine that code can use.
    pub mounts: Vec<MountDescription>,
    /// The limits of a call of `run_python_code`.
    pub calls: Limits,
    /// The limits of a cell of a session.
    pub cells: Limits,
    /// The maximum number of bytes of text in an answer.
    pub max_answer: usize,
    /// The hosts and ports that code can connect to, if it can use the network.
    pub network: Option<String>,
}

impl Default for SandboxDescription {
    fn default() -> Self {
        let (kind, packages, limits) = (SandboxKind::default(), PackageRules::default(), Limits::default());
        let (mounts, max_answer) = (Vec::new(), DEFAULT_MAX_ANSWER);
        Self { python: String::new(), kind, packages, mounts, calls: limits, cells: limits, max_answer, network: None }
    }
}

impl SandboxDescription {
    /// Returns the description of `run_python_code`.
    pub(crate) fn run_python_code(&self) -> String {
        shortened(|limits| self.run_python_code_with(limits))
    }

    fn run_python_code_with(&self, lists: ListLimits) -> String {
        let packages = if self.packages.can_install {
            let imported = "Packages that the code imports are installed";
            let only = self.allowed(lists).map_or_else(String::new, |names| format!(", but only: {names}"));
            format!(
                "{imported}{only}. To require others or specific versions, begin the code with a PEP 723 block:\n\
                 # /// script\n# dependencies = [\"pydantic\", \"email-validator\"]\n# ///"
            )
        } else {
            "No packages can be installed, not even those of a PEP 723 block.".to_owned()
        };
        format!(
            "Run Python code and return its output (stdout and stderr), and the value of its last line or the error that \
             it raised.\n\n\
             Each call runs in a new, isolated interpreter: no variables or files are kept between calls. The value of \
             the last line is returned when that is an expression. Code may use `await` at the top level.\n\n\
             {}\n{}{}{}\n\n{packages}",
            self.interpreter(),
            self.limits(&self.calls, true),
            self.installed(lists),
            self.mounted(lists),
        )
    }

    /// Returns the description of `execute_code`. `have_folders` is set if the files of sessions are in folders of the
    /// server's machine.
    pub(crate) fn execute_code(&self, session_timeout: Duration, have_folders: bool) -> String {
        shortened(|limits| self.execute_code_with(session_timeout, have_folders, limits))
    }

    fn execute_code_with(&self, session_timeout: Duration, have_folders: bool, lists: ListLimits) -> String {
        let files = if have_folders {
            "Write files into the working directory, a folder on the user's machine: the user sees them, and they stay \
             when the session ends."
        } else {
            "Write files into the working directory."
        };
        let only = self.allowed(lists).map_or_else(String::new, |names| format!(", but only: {names}"));
        let packages = match (self.packages.can_install, self.packages.cells_install_imports) {
            (true, true) => {
                format!("Packages that the code imports are installed{only}; %pip install installs others.")
            }
            (true, false) => format!("Before importing other packages, install them: %pip install NAME{only}."),
            (false, _) => "No packages can be installed.".to_owned(),
        };
        format!(
            "Run Python code as a cell of an IPython session. Returns its output, the value of its last line, and the \
             files it wrote.\n\n\
             Variables, imports and files persist between calls with the same session_id. Leave session_id empty for a \
             new session; the result contains its session_id. Calls with the same session_id run in the order in which \
             they are sent. A session ends after {} without a call.\n\n\
             {}\n{}{}{}\n\n\
             {packages} Magics, top-level await and display() work. Figures of matplotlib are shown and saved as PNG. \
             {files} Files are listed in the result and can be read as resources, kernel://{{session_id}}/{{filename}}.",
            time(session_timeout),
            self.interpreter(),
            self.limits(&self.cells, !have_folders),
            self.installed(lists),
            self.mounted(lists),
        )
    }

    /// Returns one line about Python and the system that the code sees.
    fn interpreter(&self) -> String {
        let Self { python, kind, network, .. } = self;
        let network = network.as_ref().map(|allowed| format!("network access to {allowed} only"));
        match kind {
            SandboxKind::Wasm => format!(
                "Python {python} in WebAssembly: {}, one thread (use asyncio instead of threads), no processes.",
                network.as_deref().unwrap_or("no network")
            ),
            SandboxKind::Native => format!(
                "Python {python} on Linux, in a sandbox: {}; threads and processes work.",
                network.as_deref().unwrap_or("no network (retrying does not help)")
            ),
            SandboxKind::Unsandboxed => {
                format!("Python {python} without a sandbox: the code uses the network and the files of this machine.")
            }
        }
    }

    fn limits(&self, limits: &Limits, has_disk_limit: bool) -> String {
        let mut parts = Vec::new();
        parts.extend(limits.wall_time.map(time));
        parts.extend(limits.cpu_time.map(|limit| format!("{} of processor time", time(limit))));
        parts.push(format!("{} of memory", format_size(limits.memory)));
        if has_disk_limit {
            parts.push(format!("{} of files", format_size(limits.disk)));
        }
        parts.push(format!(
            "{} of output, of which {} are shown",
            format_size(limits.output),
            format_size(self.max_answer as u64)
        ));
        format!("Limits: {}.", parts.join(", "))
    }

    fn installed(&self, lists: ListLimits) -> String {
        match list(&self.packages.installed, lists) {
            Some(names) => format!("\nInstalled: {names}."),
            None => String::new(),
        }
    }

    /// Returns a line about the directories that code can use. Long paths are left out.
    fn mounted(&self, lists: ListLimits) -> String {
        let is_short = |mount: &&MountDescription| mount.path.len() <= MAX_MOUNT_PATH;
        let shown: Vec<String> = self
            .mounts
            .iter()
            .filter(is_short)
            .take(lists.mounts)
            .map(|mount| format!("{} ({})", mount.path, if mount.writable { "writable" } else { "read-only" }))
            .collect();
        let others = match self.mounts.len() - shown.len() {
            0 => String::new(),
            count if shown.is_empty() => count.to_string(),
            count => format!(" and {count} others"),
        };
        if self.mounts.is_empty() {
            return String::new();
        }
        format!("\nDirectories of the user's machine: {}{others}.", shown.join(", "))
    }

    fn allowed(&self, lists: ListLimits) -> Option<String> {
        list(&self.packages.allowed, lists)
    }
}

/// Returns the most detailed description that is no longer than [`MAX_DESCRIPTION`].
fn shortened(describe: impl Fn(ListLimits) -> String) -> String {
    let [most, less, least] = LIST_LIMITS;
    let fits = |limits| Some(describe(limits)).filter(|text| text.len() <= MAX_DESCRIPTION);
    fits(most).or_else(|| fits(less)).unwrap_or_else(|| describe(least))
}

/// Returns a list of names, of which some may be left out.
fn list(names: &[String], limits: ListLimits) -> Option<String> {
    let mut shown: Vec<String> = Vec::new();
    for name in names.iter().take(limits.names) {
        if shown.iter().map(String::len).sum::<usize>() > limits.names_length {
            break;
        }
        shown.push(name.chars().take(MAX_NAME).collect());
    }
    match names.len() - shown.len() {
        _ if names.is_empty() => None,
        0 => Some(shown.join(", ")),
        others => Some(format!("{} and {others} others", shown.join(", "))),
    }
}

pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 600.0 && seconds % 60.0 == 0.0 { format!("{} min", seconds / 60.0) } else { format!("{seconds} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(kind: SandboxKind) -> SandboxDescription {
        let limits = Limits { wall_time: Some(Duration::from_secs(5)), ..Limits::default() };
        let packages = PackageRules { can_install: true, cells_install_imports: true, ..PackageRules::default() };
        let (python, mounts) = ("3.14".into(), Vec::new());
        SandboxDescription {
            python,
            kind,
            packages,
            mounts,
            calls: limits,
            cells: limits,
            max_answer: 24 << 10,
            network: None,
        }
    }

    #[test]
    fn descriptions_state_the_settings() {
        for (kind, wanted) in [
            (SandboxKind::Wasm, "Python 3.14 in WebAssembly: no network, one thread"),
            (SandboxKind::Native, "threads and processes work"),
            (SandboxKind::Unsandboxed, "without a sandbox"),
        ] {
            let description = description(kind);
            for text in [description.run_python_code(), description.execute_code(Duration::from_secs(1800), false)] {
                assert!(text.contains(wanted), "{text}");
                assert!(text.contains("Limits: 5 s, 2 GB of memory, 512 MB of files, 64 MB of output"), "{text}");
                assert!(text.contains("24 KB are shown"), "{text}");
            }
        }
        let mut closed = description(SandboxKind::Native);
        closed.packages.can_install = false;
        closed.packages.installed = vec!["numpy".into(), "pandas".into()];
        for text in [closed.run_python_code(), closed.execute_code(Duration::from_secs(90), false)] {
            assert!(text.contains("No packages can be installed") && !text.contains("# ///"), "{text}");
            assert!(text.contains("Installed: numpy, pandas."), "{text}");
        }
        assert!(closed.execute_code(Duration::from_secs(90), false).contains("ends after 90 s without a call"));
    }

    #[test]
    fn descriptions_are_short_with_any_settings() {
        let mut long = description(SandboxKind::Native);
        long.calls.cpu_time = Some(Duration::from_secs(1_000_001));
        long.cells.cpu_time = long.calls.cpu_time;
        let names: Vec<String> = (0..1000).map(|number| format!("a-package-with-number-{number}")).collect();
        long.packages.installed.clone_from(&names);
        let mount = |number: usize| MountDescription { path: format!("/{}", "m".repeat(number)), writable: true };
        long.mounts = (25..100).map(mount).collect();
        for allowed in [Vec::new(), names] {
            long.packages.allowed = allowed;
            for cells_install_imports in [true, false] {
                long.packages.cells_install_imports = cells_install_imports;
                for text in [long.run_python_code(), long.execute_code(Duration::from_secs(123_456), true)] {
                    assert!(text.len() < 1500, "{}: {text}", text.len());
                }
            }
        }
    }

    #[test]
    fn descriptions_state_where_files_are() {
        let mut description = description(SandboxKind::Wasm);
        let timeout = Duration::from_secs(60);
        let without = description.execute_code(timeout, false);
        assert!(!without.contains("user's machine") && without.contains("512 MB of files"), "{without}");
        let with_folders = description.execute_code(timeout, true);
        assert!(with_folders.contains("they stay when the session ends"), "{with_folders}");
        assert!(!with_folders.contains("512 MB of files"), "the limit does not hold: {with_folders}");
        let mount = |path: &str, writable| MountDescription { path: path.into(), writable };
        description.mounts = vec![mount("/data", false), mount("/out", true)];
        for text in [description.execute_code(timeout, false), description.run_python_code()] {
            assert!(text.contains("Directories of the user's machine: /data (read-only), /out (writable)."), "{text}");
        }
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(time(Duration::from_secs(300)), "300 s");
        assert_eq!(time(Duration::from_secs(1800)), "30 min");
        assert_eq!(time(Duration::from_millis(500)), "0.5 s");
    }
}

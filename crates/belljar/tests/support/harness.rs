//! Runs the real binary with a cache that all tests share.
//!
//! The cache is in the target directory and is kept between runs, so that only the first run downloads and compiles.
//! Its locks make concurrent test threads and test processes safe.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

/// The time after which a run counts as hung. The first run compiles CPython.
const RUN_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the cache of all tests, warmed up.
pub(crate) fn cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    static WARM: Once = Once::new();
    let cache = CACHE.get_or_init(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("belljar-cache"));
    // Once per process, before the time limit of any run begins.
    WARM.call_once(|| {
        let run = Belljar::with_cache(cache).args(["warmup", "--quiet"]).run();
        assert_eq!(run.status, Some(0), "belljar warmup failed:\n{}", run.stderr);
    });
    cache
}

/// Returns the binary's path as the binary reports it: with symbolic links resolved.
pub(crate) fn program() -> String {
    let path = Path::new(env!("CARGO_BIN_EXE_belljar")).canonicalize().unwrap();
    path.into_os_string().into_string().unwrap()
}

/// Returns the Pyodide release that `BELLJAR_TEST_PYODIDE` names; without it, tests use the default release.
pub(crate) fn release() -> Option<String> {
    setting("BELLJAR_TEST_PYODIDE")
}

/// Returns the value of `--isolation` that `BELLJAR_TEST_ISOLATION` names; without it, servers use their default.
fn isolation() -> Option<String> {
    setting("BELLJAR_TEST_ISOLATION")
}

/// Returns the options of servers that clients of others start. These pass few variables, so that [`Belljar::new`] is
/// not enough.
pub(crate) fn server_options() -> Vec<String> {
    let mut options = vec!["--cache".to_owned(), cache().display().to_string()];
    for (option, value) in [("--pyodide", release()), ("--isolation", isolation())] {
        options.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    options
}

/// Returns the value of a variable that changes how tests run, if it is set and not empty.
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A builder of a command line.
pub(crate) struct Belljar {
    command: Command,
    input: Vec<u8>,
}

/// The result of a process.
#[derive(Debug)]
pub(crate) struct Run {
    /// The exit status; `None` if a signal ended the process.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Belljar {
    /// Returns the binary with the shared cache.
    pub(crate) fn new() -> Self {
        Self::with_cache(cache())
    }

    /// Returns the binary with this cache, which is not warmed up.
    pub(crate) fn with_cache(cache: &Path) -> Self {
        // A process that a test leaves behind would slow down others.
        let belljar = Self::without_cache().env("BELLJAR_CACHE", cache).env("BELLJAR_NO_BACKGROUND", "1");
        let belljar = match release() {
            Some(release) => belljar.env("BELLJAR_PYODIDE", release),
            None => belljar,
        };
        match isolation() {
            Some(isolation) => belljar.env("BELLJAR_ISOLATION", isolation),
            None => belljar,
        }
    }

    /// Returns the binary without a cache, for commands that do not run Python.
    pub(crate) fn without_cache() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belljar"));
        // Variables of the developer's shell must not change results.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BELLJAR_") {
                command.env_remove(name);
            }
        }
        // The package index and the trusted certificates are settings of the machine, which tests keep.
        for tool in ["PIP", "UV"] {
            for name in ["FIND_LINKS", "NO_INDEX", "CONSTRAINT", "OFFLINE", "EXCLUDE_NEWER"] {
                command.env_remove(format!("{tool}_{name}"));
            }
        }
        Self { command, input: Vec::new() }
    }

    /// Runs `belljar run` with these arguments.
    pub(crate) fn run_with<'a>(args: impl IntoIterator<Item = &'a str>) -> Run {
        Self::new().arg("run").args(args).run()
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<A: AsRef<std::ffi::OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn directory(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Runs the binary in a new network namespace, which does not even have a loopback address. This needs
    /// `Capability::NetworkNamespace`.
    pub(crate) fn without_network(self) -> Self {
        let mut command = Command::new("unshare");
        command.arg("-rn").arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = self.command.get_current_dir() {
            command.current_dir(directory);
        }
        Self { command, input: self.input }
    }

    /// Sets the bytes of standard input, which is empty by default.
    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Runs the binary to its end.
    pub(crate) fn run(self) -> Run {
        let Self { command, input } = self;
        let mut running = Running::start(command);
        let mut stdin = running.child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            // The process may end without reading all of its input.
            let _ = stdin.write_all(&input);
        });
        let run = running.wait();
        writer.join().unwrap();
        run
    }

    /// Runs the binary to its end, and returns the JSON on its standard output and its exit status. The arguments must
    /// include `--json`.
    pub(crate) fn json(self) -> (serde_json::Value, Option<i32>) {
        let run = self.run();
        match serde_json::from_str(&run.stdout) {
            Ok(value) => (value, run.status),
            Err(error) => panic!("not JSON: {error}: {run:?}"),
        }
    }

    /// Returns the command, for tests that choose its streams.
    pub(crate) fn into_command(self) -> Command {
        self.command
    }

    /// Starts the binary with pipes as its streams.
    pub(crate) fn start(self) -> Running {
        Running::start(self.command)
    }
}

/// A running process; killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    started: Instant,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, started: Instant::now() }
    }

    /// Waits for the process to end, and kills it after [`RUN_TIMEOUT`].
    pub(crate) fn wait(mut self) -> Run {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let stdout = std::thread::spawn(|| read_all(stdout));
        let stderr = std::thread::spawn(|| read_all(stderr));
        let status = self.end();
        let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
        match status {
            Some(status) => Run { status: status.code(), stdout, stderr: without_reports(&stderr) },
            None => panic!("the process hangs; its output so far:\n{stdout}\n{stderr}"),
        }
    }

    fn end(&mut self) -> Option<ExitStatus> {
        while self.started.elapsed() < RUN_TIMEOUT {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(stream: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes).unwrap();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns standard error without the lines that report steps of more than a second: only a busy machine has them.
fn without_reports(stderr: &str) -> String {
    let is_report = |line: &str| {
        let line = line.trim_end();
        line.ends_with(" ...") || line.contains(": done (") && line.ends_with(" s)")
    };
    stderr.split_inclusive('\n').filter(|line| !is_report(line)).collect()
}

/// Returns the names of the entries of a directory.
pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// Returns the entries of a cache whose names begin with `kind`.
pub(crate) fn cache_entries(cache: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(cache.join("entries")).unwrap();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(kind));
    entries.sort();
    assert!(!entries.is_empty(), "no entry of kind {kind}");
    entries
}

/// Returns the downloaded runtime files in the shared cache that belong to the release under test. The cache may also
/// hold those of other releases.
pub(crate) fn downloads() -> PathBuf {
    let run = Belljar::run_with(["-q", "-c", "import platform; print(platform.python_version())"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    let is_of_release = |directory: &PathBuf| {
        let lock = std::fs::read(directory.join("pyodide-lock.json")).unwrap();
        let lock: serde_json::Value = serde_json::from_slice(&lock).unwrap();
        lock["info"]["python"].as_str().unwrap().starts_with(run.stdout.trim())
    };
    cache_entries(cache(), "runtime").into_iter().find(is_of_release).unwrap()
}

/// Installs packages into a virtual environment, once, and returns its Python.
pub(crate) fn python_with(name: &str, packages: &[&str]) -> PathBuf {
    belljar_testing::install::pip(clients(), name, packages).join("python")
}

/// Returns the folder of programs that tests install.
pub(crate) fn clients() -> &'static Path {
    static CLIENTS: OnceLock<PathBuf> = OnceLock::new();
    CLIENTS.get_or_init(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients"))
}

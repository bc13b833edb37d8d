//! Runs the real binary, with a cache that all tests share, and the library with the same cache.
//!
//! The cache is kept between runs: only the first downloads and compiles. It is found under the target directory; its
//! locks make several test threads, and several test processes, safe.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use belljar_python::{Options, Python, on_guest_thread};

/// How long a run may take before it counts as hung. Generous: the first of all compiles CPython.
const HUNG: Duration = Duration::from_secs(300);

/// The cache of all tests, warmed up.
pub(crate) fn cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    static WARM: Once = Once::new();
    let cache = CACHE.get_or_init(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("belljar-cache"));
    // Once per process and outside of any test's own time limit.
    WARM.call_once(|| {
        let run = Belljar::with_cache(cache).args(["warmup", "--quiet"]).run();
        assert_eq!(run.status, Some(0), "belljar warmup failed:\n{}", run.stderr);
    });
    cache
}

/// The binary's path as it knows it itself: links on the way, such as one to the build folder, resolved.
pub(crate) fn program() -> String {
    let path = Path::new(env!("CARGO_BIN_EXE_belljar")).canonicalize().unwrap();
    path.into_os_string().into_string().unwrap()
}

/// The Pyodide release that the tests run with: the default one, or the one that the environment names.
pub(crate) fn release() -> Option<String> {
    std::env::var("BELLJAR_TEST_PYODIDE").ok().filter(|release| !release.is_empty())
}

/// A CPython made ready once for all tests of the process.
pub(crate) fn python() -> &'static Python {
    static PYTHON: OnceLock<Python> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let options = Options { cache: Some(cache().into()), release: release(), ..Options::default() };
        on_guest_thread(|| Python::open(&options, &belljar_core::NoProgress)).unwrap().unwrap()
    })
}

/// A command line being put together.
pub(crate) struct Belljar {
    command: Command,
    input: Vec<u8>,
}

/// How a process ended and what it wrote.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit status; `None` when a signal ended it.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Belljar {
    /// The binary with the shared cache.
    pub(crate) fn new() -> Self {
        Self::with_cache(cache())
    }

    /// The binary with a cache of its own, as it is.
    pub(crate) fn with_cache(cache: &Path) -> Self {
        let belljar = Self::without_cache().env("BELLJAR_CACHE", cache);
        match release() {
            Some(release) => belljar.env("BELLJAR_PYODIDE", release),
            None => belljar,
        }
    }

    /// The binary with nothing set, for what needs no Python.
    pub(crate) fn without_cache() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belljar"));
        // What is set where the tests run must not change what they see.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BELLJAR_") {
                command.env_remove(name);
            }
        }
        // But which index to ask, and which certificates to trust, is this machine's business.
        for tool in ["PIP", "UV"] {
            for name in ["FIND_LINKS", "NO_INDEX", "CONSTRAINT", "OFFLINE", "EXCLUDE_NEWER"] {
                command.env_remove(format!("{tool}_{name}"));
            }
        }
        Self { command, input: Vec::new() }
    }

    /// `belljar run` with these arguments.
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

    /// In a network namespace of its own, where there is not even a loopback address; `None` where this user cannot
    /// make one.
    pub(crate) fn without_network(self) -> Option<Self> {
        let allowed = Command::new("unshare").args(["-rn", "true"]).output();
        if !allowed.is_ok_and(|output| output.status.success()) {
            return None;
        }
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
        Some(Self { command, input: self.input })
    }

    /// What the process finds on standard input; nothing unless said.
    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Run {
        let Self { command, input } = self;
        let mut running = Running::start(command);
        let mut stdin = running.child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            // The process may end without having read it all.
            let _ = stdin.write_all(&input);
        });
        let run = running.wait();
        writer.join().unwrap();
        run
    }

    /// Runs it to its end; answers what `--json` printed (which the arguments must name) and the exit status.
    pub(crate) fn json(self) -> (serde_json::Value, Option<i32>) {
        let run = self.run();
        match serde_json::from_str(&run.stdout) {
            Ok(value) => (value, run.status),
            Err(error) => panic!("not JSON: {error}: {run:?}"),
        }
    }

    /// The command itself, for tests that lay its streams.
    pub(crate) fn into_command(self) -> Command {
        self.command
    }

    /// Starts it, to be talked to while it runs.
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

    /// Waits for its end, and kills it if that does not come.
    pub(crate) fn wait(mut self) -> Run {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let stdout = std::thread::spawn(|| read_all(stdout));
        let stderr = std::thread::spawn(|| read_all(stderr));
        let status = self.end();
        let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
        match status {
            Some(status) => Run { status: status.code(), stdout, stderr },
            None => panic!("it hangs; so far it wrote:\n{stdout}\n{stderr}"),
        }
    }

    fn end(&mut self) -> Option<ExitStatus> {
        while self.started.elapsed() < HUNG {
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
        // Fails where it has ended already.
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

#[test]
fn the_harness_runs_the_program() {
    let run = Belljar::run_with(["-c", "print(6 * 7)"]);
    assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "42\n", ""));
    let (json, status) = Belljar::new().args(["run", "--json", "-c", "6 * 7"]).json();
    assert_eq!((json["value"].as_i64(), status), (Some(42), Some(0)));
}

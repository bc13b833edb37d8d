//! numpy's kernels in the first and the second run of a program, against Pyodide in V8.
//!
//! Needs npm. numpy's wheel is fetched from Pyodide's CDN, or taken from the directory that `BELLJAR_NUMPY_WHEELS`
//! names.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use support::node::{Node, benches};
use support::{Finding, Table, geometric_mean, timed};

/// The number of processes of each implementation. The shortest time of each kernel counts.
const ROUNDS: usize = 3;

/// The shortest times of the kernels in milliseconds.
type Times = BTreeMap<String, f64>;

fn main() -> Finding<()> {
    let python = belljar_python::on_guest_thread(support::python)??;
    let cache = tempfile::tempdir()?;
    support::copy_base(python.cache_directory(), cache.path())?;
    let setup =
        Setup { cache: cache.path().into(), wheels: std::env::var_os("BELLJAR_NUMPY_WHEELS").map(PathBuf::from) };
    let node = Node::fetch(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs"))?;
    let (import, result) = timed(|| setup.belljar(&["-c", "import numpy"]));
    times_of(&result?, false)?;
    // The first run leaves a process that compiles with full optimisation. Until it is stopped, it has the lowest
    // priority, but on two processors it slows the others down.
    let (optimised_after, first) = {
        let first = setup.kernels()?;
        let (waited, result) = timed(|| setup.wait_for_optimised_code());
        result?;
        (waited, first)
    };
    let (mut second, mut in_v8) = (Times::new(), Times::new());
    let package = setup.package()?;
    for _ in 0..ROUNDS {
        keep_shortest(&mut second, setup.kernels()?);
        let output = node.command(&benches().join("numpy_kernels.py"), Some(&package)).output()?;
        keep_shortest(&mut in_v8, times_of(&output, true)?);
    }
    let mut table = Table::new(&["kernel", "V8 ms", "first run ms", "second run ms", "second run / V8"]);
    let mut ratios = Vec::new();
    for (name, v8) in &in_v8 {
        let ratio = second[name] / v8;
        ratios.push(ratio);
        let cells = [*v8, first[name], second[name], ratio].map(|value| format!("{value:.2}"));
        table.row(&[name, &cells[0], &cells[1], &cells[2], &cells[3]]);
    }
    table.row(&["**geometric mean**", "", "", "", &format!("{:.2}", geometric_mean(&ratios))]);
    table.print("numpy's kernels");
    let mut table = Table::new(&["the first use", "ms"]);
    table.row(&["first ever `import numpy`", &format!("{import:.0}")]);
    table.row(&["from the end of the first run to optimised code", &format!("{optimised_after:.0}")]);
    table.print("Waits");
    Ok(())
}

/// A cache of its own, and the source of numpy.
struct Setup {
    cache: PathBuf,
    wheels: Option<PathBuf>,
}

impl Setup {
    /// Runs `belljar run`, with the process that it leaves behind.
    fn belljar(&self, arguments: &[&str]) -> std::io::Result<Output> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belljar"));
        command.args(["run", "--timeout", "600"]);
        if let Some(wheels) = &self.wheels {
            command.arg("--find-links").arg(wheels);
        }
        command.args(arguments).env("BELLJAR_CACHE", &self.cache).env_remove("BELLJAR_NO_BACKGROUND");
        command.stdin(Stdio::null()).output()
    }

    fn kernels(&self) -> Finding<Times> {
        let file = benches().join("numpy_kernels.py");
        let file = file.to_str().ok_or("the path of the checkout is not UTF-8")?;
        times_of(&self.belljar(&[file])?, true)
    }

    /// Waits until no entry of the cache contains an extension module that is to be compiled again.
    fn wait_for_optimised_code(&self) -> Finding<()> {
        let is_module = |path: PathBuf| path.extension().is_some_and(|extension| extension == "wasm");
        for _ in 0..6000 {
            let entries = self.cache.join("entries").read_dir()?.flatten();
            let libraries = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("library-"));
            let mut files = libraries.filter_map(|entry| entry.path().read_dir().ok()).flatten().flatten();
            if !files.any(|file| is_module(file.path())) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("numpy was not compiled with full optimisation within ten minutes".into())
    }

    /// Returns the path of numpy's wheel, or the name by which Pyodide fetches it.
    fn package(&self) -> Finding<PathBuf> {
        let Some(wheels) = &self.wheels else { return Ok("numpy".into()) };
        let files = wheels.read_dir()?.flatten().map(|entry| entry.path());
        let is_numpy = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("numpy-"))
                && path.extension().is_some_and(|extension| extension == "whl")
        };
        let mut wheels = files.filter(is_numpy);
        wheels.next().ok_or_else(|| "BELLJAR_NUMPY_WHEELS contains no wheel of numpy".into())
    }
}

/// Returns the times that a process printed; none if it was not to print any.
fn times_of(output: &Output, prints: bool) -> Finding<Times> {
    if !output.status.success() {
        return Err(format!("a process failed: {output:?}").into());
    }
    if prints { Ok(serde_json::from_slice(&output.stdout)?) } else { Ok(Times::new()) }
}

fn keep_shortest(times: &mut Times, others: Times) {
    for (name, time) in others {
        let shortest = times.entry(name).or_insert(time);
        *shortest = shortest.min(time);
    }
}

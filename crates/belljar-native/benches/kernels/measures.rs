//! Measures native kernels: the start of a session, the time of a cell, the memory of an idle session.
//!
//! `BELLJAR_TEST_VENV=/path/to/venv cargo bench -p belljar-native --bench kernels` prints Markdown. The environment
//! needs ipykernel, numpy, pandas and matplotlib.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for measurements")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::kernel::{Backend as _, CellRequest, Kernel, NullObserver};
use belljar_core::{CellResult, CellStatus, NoProgress, Output};
use belljar_native::{NativeBackend, NativeOptions, StartError};
use belljar_sandbox::Policy;

/// The number of cold starts.
const COLD_STARTS: usize = 9;

/// A cell with the usual imports of data analysis.
const IMPORTS: &str = "import numpy, pandas, matplotlib.pyplot";

pub(crate) fn main() {
    belljar_sandbox::run_fork_server_if_child();
    let Some(environment) = std::env::var_os("BELLJAR_TEST_VENV") else {
        println!(
            "skipped: BELLJAR_TEST_VENV does not name an environment with ipykernel, numpy, pandas and matplotlib"
        );
        return;
    };
    let python = Path::new(&environment).join("bin/python");
    println!("| sandbox | measurement | median | lowest | highest |");
    println!("| --- | --- | --- | --- | --- |");
    measure_cold_starts(&python);
    for policy in [Policy::Full, Policy::Unsandboxed] {
        match NativeBackend::new(NativeOptions { policy, prestart: 0, ..NativeOptions::new(&python) }) {
            Ok(native) => measure(policy, &native, &python),
            Err(error) => println!("| {policy} | skipped: {error} | | | |"),
        }
    }
}

fn row(policy: Policy, what: &str, unit: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let (lowest, median, highest) = (values[0], values[values.len() / 2], values[values.len() - 1]);
    println!("| {policy} | {what} | {median:.1} {unit} | {lowest:.1} {unit} | {highest:.1} {unit} |");
}

/// Measures the first session of a server, with and without a sandbox in turns. The server was not warmed up, and the
/// zygote that the first session starts in the background comes too late for it.
fn measure_cold_starts(python: &Path) {
    let cold = |policy| {
        let options = NativeOptions { policy, prestart: 0, modules: Vec::new(), ..NativeOptions::new(python) };
        let native = NativeBackend::new(options)?;
        // Linux still tears down the namespaces of the previous sandbox.
        std::thread::sleep(Duration::from_secs(1));
        Ok::<_, StartError>(first_result(&native).0)
    };
    let policies = [Policy::Full, Policy::Unsandboxed];
    let mut times = policies.map(|_| Vec::new());
    for _ in 0..COLD_STARTS {
        for (policy, times) in policies.into_iter().zip(&mut times) {
            // Without a sandbox, `main` prints the reason.
            times.extend(cold(policy).ok());
        }
    }
    for (policy, times) in policies.into_iter().zip(times).filter(|(_, times)| !times.is_empty()) {
        row(policy, "new session to first result, cold", "ms", times);
    }
}

fn measure(policy: Policy, cold: &NativeBackend, python: &Path) {
    let row = |what: &str, unit: &str, values: Vec<f64>| row(policy, what, unit, values);
    cold.warm_up().unwrap();
    let mut kernels = Vec::new();
    let forked = (0..8).map(|_| {
        let (time, kernel) = first_result(cold);
        kernels.push(kernel);
        time
    });
    row("new session to first result, from the zygote", "ms", forked.collect());
    let mut trivial = Vec::new();
    for kernel in &mut kernels {
        for _ in 0..20 {
            let begun = Instant::now();
            run(&mut **kernel, "1");
            trivial.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    row("next trivial cell", "ms", trivial);
    let memory = kernels.iter_mut().map(|kernel| {
        run(&mut **kernel, IMPORTS);
        std::thread::sleep(Duration::from_millis(200));
        proportional(&mut **kernel)
    });
    row("memory (PSS) of a session with numpy, pandas, matplotlib imported", "MB", memory.collect());
    drop(kernels);
    let pooled = NativeBackend::new(NativeOptions { policy, prestart: 2, ..NativeOptions::new(python) }).unwrap();
    pooled.warm_up().unwrap();
    let mut kernels = Vec::new();
    let ahead = (0..8).map(|_| {
        // The time in which the backend prestarts two kernels again.
        std::thread::sleep(Duration::from_secs(3));
        let (time, kernel) = first_result(&pooled);
        kernels.push(kernel);
        time
    });
    row("new session to first result, prestarted", "ms", ahead.collect());
}

fn first_result(native: &NativeBackend) -> (f64, Box<dyn Kernel>) {
    let begun = Instant::now();
    let mut kernel = native.start(None, &NoProgress).unwrap();
    run(&mut *kernel, "1 + 1");
    (begun.elapsed().as_secs_f64() * 1e3, kernel)
}

fn run(kernel: &mut dyn Kernel, code: &str) -> CellResult {
    let executed = kernel.execute(&CellRequest { code: code.into(), ..CellRequest::default() }, Arc::new(NullObserver));
    assert_eq!(executed.status, CellStatus::Ok, "{code}");
    executed
}

/// Returns the proportional set size of the kernel's process, in megabytes.
fn proportional(kernel: &mut dyn Kernel) -> f64 {
    // The process id inside the sandbox is another one, so the process is found by a file that it holds open.
    let executed = run(kernel, "import tempfile\n_held = open('held', 'w')\nimport os\nprint(os.stat('held').st_ino)");
    let Some(Output::Text { text, .. }) = executed.outputs.first() else { return f64::NAN };
    let inode = text.trim().parse::<u64>().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
    let holder = processes.filter(|process| holds(process, inode)).last();
    let Some(holder) = holder else { return f64::NAN };
    let rollup = std::fs::read_to_string(holder.join("smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).unwrap_or_default();
    let kilobytes: f64 = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(f64::NAN);
    kilobytes / 1024.0
}

fn holds(process: &Path, inode: u64) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(open) = std::fs::read_dir(process.join("fd")) else { return false };
    let is_it = |path: PathBuf| {
        let name = std::fs::read_link(&path).unwrap_or_default();
        name.file_name().is_some_and(|name| name == "held")
            && std::fs::metadata(path).is_ok_and(|file| file.ino() == inode)
    };
    open.flatten().any(|entry| is_it(entry.path()))
}

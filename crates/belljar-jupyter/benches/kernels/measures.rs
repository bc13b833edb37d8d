//! Native kernels: what a new session waits for, what a cell costs, what an idle session takes of the machine.
//!
//! `BELLJAR_TEST_VENV=/path/to/venv cargo bench -p belljar-jupyter --bench kernels` prints Markdown. The environment needs
//! ipykernel, numpy, pandas and matplotlib.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program that measures")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::NoProgress;
use belljar_core::kernel::{Backend as _, CellRequest, End, Executed, Kernel, KernelError, Output, Silent};
use belljar_jupyter::sandbox::Policy;
use belljar_jupyter::{Native, NativeOptions};

/// First sessions that are started from nothing.
const COLD: usize = 9;

/// Imports what data people do.
const IMPORTS: &str = "import numpy, pandas, matplotlib.pyplot";

pub(crate) fn main() {
    belljar_jupyter::sandbox::launch_if_asked();
    let Some(environment) = std::env::var_os("BELLJAR_TEST_VENV") else {
        println!("skipped: BELLJAR_TEST_VENV names no environment with ipykernel, numpy, pandas and matplotlib");
        return;
    };
    let python = Path::new(&environment).join("bin/python");
    println!("| shelter | what | median | lowest | highest |");
    println!("| --- | --- | --- | --- | --- |");
    from_nothing(&python);
    for policy in [Policy::Full, Policy::Unsandboxed] {
        match Native::new(NativeOptions { policy, ahead: 0, ..NativeOptions::new(&python) }) {
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

/// First sessions of a server, with and without a sandbox in turns. Nothing was warmed up, and what the first session
/// has warmed up beside it comes too late for these.
fn from_nothing(python: &Path) {
    let cold = |policy| {
        let options = NativeOptions { policy, ahead: 0, modules: Vec::new(), ..NativeOptions::new(python) };
        let native = Native::new(options)?;
        // The kernel is still busy with taking down the namespaces of the last one.
        std::thread::sleep(Duration::from_secs(1));
        Ok::<_, KernelError>(first_result(&native).0)
    };
    let policies = [Policy::Full, Policy::Unsandboxed];
    let mut times = policies.map(|_| Vec::new());
    for _ in 0..COLD {
        for (policy, times) in policies.into_iter().zip(&mut times) {
            // Where there is no sandbox, `main` says why.
            times.extend(cold(policy).ok());
        }
    }
    for (policy, times) in policies.into_iter().zip(times).filter(|(_, times)| !times.is_empty()) {
        row(policy, "new session to first result, cold", "ms", times);
    }
}

fn measure(policy: Policy, cold: &Native, python: &Path) {
    let row = |what: &str, unit: &str, values: Vec<f64>| row(policy, what, unit, values);
    cold.warm_up().unwrap();
    let mut kernels = Vec::new();
    let forked = (0..8).map(|_| {
        let (time, kernel) = first_result(cold);
        kernels.push(kernel);
        time
    });
    row("new session to first result, from the nursery", "ms", forked.collect());
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
    let pooled = Native::new(NativeOptions { policy, ahead: 2, ..NativeOptions::new(python) }).unwrap();
    pooled.warm_up().unwrap();
    let mut kernels = Vec::new();
    let ahead = (0..8).map(|_| {
        // As long as it takes to have two again.
        std::thread::sleep(Duration::from_secs(3));
        let (time, kernel) = first_result(&pooled);
        kernels.push(kernel);
        time
    });
    row("new session to first result, started ahead", "ms", ahead.collect());
}

fn first_result(native: &Native) -> (f64, Box<dyn Kernel>) {
    let begun = Instant::now();
    let mut kernel = native.start(&NoProgress).unwrap();
    run(&mut *kernel, "1 + 1");
    (begun.elapsed().as_secs_f64() * 1e3, kernel)
}

fn run(kernel: &mut dyn Kernel, code: &str) -> Executed {
    let executed = kernel.execute(&CellRequest { code: code.into(), ..CellRequest::default() }, Arc::new(Silent));
    assert_eq!(executed.end, End::Success, "{code}");
    executed
}

/// Megabytes of the kernel's process, its part of what it shares with others.
fn proportional(kernel: &mut dyn Kernel) -> f64 {
    // Inside its number is another one: it is found by a file that it holds open.
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

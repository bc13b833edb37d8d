//! Pure-Python programs in `belljar`, in Pyodide under node, and in native CPython, one after the other.
//!
//! Needs npm and pip: node, Pyodide and pyperformance are fetched once, into cargo's target directory. Names on the
//! command line (`cargo bench --bench programs -- nbody richards`) select programs.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::node::{Node, benches, quietly};
use support::{Finding, Sample, Table, geometric_mean};

const NATIVE: &str = "/usr/bin/python3";
const PYPERFORMANCE: &str = "pyperformance==1.14.0";
/// The number of runs of each program on each implementation.
const ROUNDS: usize = 2;

/// The benchmarks of pyperformance that consist of one Python file and depend on no other package.
const PYPERFORMANCE_PROGRAMS: &[&str] = &[
    "chaos",
    "comprehensions",
    "coroutines",
    "deepcopy",
    "deltablue",
    "float",
    "go",
    "hexiom",
    "json_dumps",
    "json_loads",
    "logging",
    "nbody",
    "nqueens",
    "raytrace",
    "regex_effbot",
    "regex_v8",
    "richards",
    "spectral_norm",
    "unpack_sequence",
];

/// The implementations of Python.
const IMPLEMENTATIONS: [&str; 3] = ["belljar", "Pyodide", "native"];

fn main() -> Finding<()> {
    let tools = Tools::fetch(Path::new(env!("CARGO_TARGET_TMPDIR")))?;
    let chosen: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|other| other == name);
    for (title, programs) in [("Own programs", own_programs()?), ("pyperformance", tools.pyperformance_programs()?)] {
        let mut table = Table::new(&["program", "belljar ms", "Pyodide ms", "native ms", "/ Pyodide", "/ native"]);
        let mut ratios = [const { Vec::new() }; 4];
        for (name, source) in programs.iter().filter(|(name, _)| is_chosen(name)) {
            let samples = tools.time(source)?;
            let medians = samples.each_ref().map(Sample::median);
            let least = samples.each_ref().map(Sample::min);
            let own = [medians[0] / medians[1], medians[0] / medians[2]];
            let undisturbed = [least[0] / least[1], least[0] / least[2]];
            let mut cells = vec![name.clone()];
            cells.extend(medians.iter().chain(&own).map(|value| format!("{value:.2}")));
            table.row(&cells);
            for (ratios, ratio) in ratios.iter_mut().zip(own.into_iter().chain(undisturbed)) {
                ratios.push(ratio);
            }
        }
        let means = ratios.map(|ratios| format!("{:.2}", geometric_mean(&ratios)));
        table.row(&["**geometric mean, medians**", "", "", "", &means[0], &means[1]]);
        table.row(&["**geometric mean, minima**", "", "", "", &means[2], &means[3]]);
        table.print(title);
    }
    Ok(())
}

/// The commands and files with which programs are run.
struct Tools {
    directory: PathBuf,
    node: Node,
    python: PathBuf,
}

impl Tools {
    fn fetch(directory: &Path) -> Finding<Self> {
        let directory = directory.join("programs");
        let this = Self { node: Node::fetch(&directory)?, directory, python: NATIVE.into() };
        if !this.directory.join("pyperformance").exists() {
            quietly(Command::new("pip").args(["download", "--no-deps", "-d"]).arg(&this.directory).arg(PYPERFORMANCE))?;
            let wheel = fs::read_dir(&this.directory)?.flatten().map(|entry| entry.path());
            let wheel = wheel.filter(|path| path.extension().is_some_and(|extension| extension == "whl")).last();
            let wheel = wheel.ok_or("pip downloaded no wheel")?;
            quietly(Command::new(&this.python).args(["-m", "zipfile", "-e"]).arg(wheel).arg(&this.directory))?;
        }
        Ok(this)
    }

    fn pyperformance_programs(&self) -> Finding<Vec<(String, String)>> {
        let stand_in = fs::read_to_string(benches().join("pyperf_stand_in.py"))?;
        PYPERFORMANCE_PROGRAMS
            .iter()
            .map(|name| {
                let path = format!("pyperformance/data-files/benchmarks/bm_{name}/run_benchmark.py");
                Ok(((*name).to_owned(), stand_in.clone() + &fs::read_to_string(self.directory.join(path))?))
            })
            .collect()
    }

    /// Measures a program on each implementation, in milliseconds.
    fn time(&self, source: &str) -> Finding<[Sample; 3]> {
        let file = self.directory.join("program.py");
        fs::write(&file, format!("{source}\n{}", fs::read_to_string(benches().join("timing.py"))?))?;
        let mut samples = IMPLEMENTATIONS.map(|_| Sample::default());
        for _ in 0..ROUNDS {
            for (place, sample) in IMPLEMENTATIONS.iter().zip(&mut samples) {
                let with_arguments = |program: &Path, arguments: &[&str]| {
                    let mut command = Command::new(program);
                    command.args(arguments).arg(&file).stdin(Stdio::null());
                    command
                };
                let mut command = match *place {
                    // The programs import `pyperf`, which the stand-in replaces.
                    "belljar" => with_arguments(
                        env!("CARGO_BIN_EXE_belljar").as_ref(),
                        &["run", "--no-install", "--timeout", "600"],
                    ),
                    "Pyodide" => self.node.command(&file, None),
                    _ => with_arguments(&self.python, &["-I"]),
                };
                let output = command.output()?;
                let text = String::from_utf8_lossy(&output.stdout);
                let times: Option<Vec<f64>> = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
                for time in times.ok_or_else(|| format!("{place} failed: {output:?}"))? {
                    sample.add(time * 1e3);
                }
            }
        }
        Ok(samples)
    }
}

fn own_programs() -> Finding<Vec<(String, String)>> {
    let mut programs = Vec::new();
    for entry in fs::read_dir(benches().join("programs"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        programs.push((name, fs::read_to_string(&path)?));
    }
    programs.sort();
    Ok(programs)
}

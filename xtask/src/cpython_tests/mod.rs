//! `cargo xtask cpython-tests`: CPython's own test suite, run module by module inside the sandbox, and compared with
//! the reviewed list of failures in `tests/cpython/expected.txt`.

mod expected;
mod report;
mod run;
mod suite;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::workspace::{Profile, build_belljar, target_directory, workspace};

use expected::Expected;
use report::Report;
use run::{ModuleRun, Sandbox};

const USAGE: &str = "\
Usage: cargo xtask cpython-tests [OPTIONS] [MODULE]...

Runs the modules of tests/cpython/modules.txt, or those given, such as test.test_json.

Options:
  --tests DIR        directory that holds the `test` package [default: Debian's, fetched with apt-get]
  --update           fetch Debian's suite again
  --belljar PATH     the program to test [default: built by cargo]
  --jobs N           modules to run at once [default: the number of processors]
  --timeout SECONDS  for each module [default: 300]
  --stepped          leave event loops whenever they wait, as those of cells on a server
  --details FILE     write every unexpected failure's traceback there
  --list-failures    print all failures instead of comparing them with the list";

/// The options of the command line.
struct Options {
    tests: Option<PathBuf>,
    update: bool,
    belljar: Option<PathBuf>,
    jobs: usize,
    timeout: u32,
    stepped: bool,
    details: Option<PathBuf>,
    list_failures: bool,
    modules: Vec<String>,
}

/// Runs the chore. Returns whether every module has the results that the list expects.
pub(crate) fn main(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let Some(options) = parse(arguments)? else {
        println!("{USAGE}");
        return Ok(true);
    };
    let files = workspace()?.join("tests/cpython");
    let all_modules = modules(&files.join("modules.txt"))?;
    let expected = Expected::read(&files.join("expected.txt"))?;
    expected.check_modules(&all_modules)?;
    let suite = match options.tests {
        Some(directory) => suite::given(&directory)?,
        None => suite::from_debian(&target_directory()?.join("cpython-tests"), options.update)?,
    };
    let belljar = match options.belljar {
        Some(path) => path,
        None => build_belljar(Profile::Dev)?,
    };
    let modules = if options.modules.is_empty() { all_modules } else { options.modules };

    println!("{} modules of {}", modules.len(), suite.description);
    let sandbox = Sandbox {
        belljar,
        program: files.join("run_module.py"),
        suite: suite.directory,
        timeout: options.timeout,
        stepped: options.stepped,
    };
    let runs = run_all(&sandbox, &modules, &expected, options.jobs)?;
    if options.list_failures {
        print!("{}", report::failures(&runs));
        return Ok(true);
    }
    let report = Report::new(&runs, &expected);
    if let Some(path) = options.details {
        std::fs::write(&path, report.details())
            .map_err(|error| format!("failed to write {}: {error}", path.display()))?;
    }
    print!("{report}");
    Ok(report.is_as_expected())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        tests: None,
        update: false,
        belljar: None,
        jobs: std::thread::available_parallelism().map_or(1, NonZero::get),
        timeout: 300,
        stepped: false,
        details: None,
        list_failures: false,
        modules: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value\n\n{USAGE}"));
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--tests" => options.tests = Some(value()?.into()),
            "--update" => options.update = true,
            "--belljar" => options.belljar = Some(value()?.into()),
            "--jobs" => options.jobs = number::<usize>(&value()?)?.max(1),
            "--timeout" => options.timeout = number(&value()?)?,
            "--stepped" => options.stepped = true,
            "--details" => options.details = Some(value()?.into()),
            "--list-failures" => options.list_failures = true,
            option if option.starts_with('-') => return Err(format!("unknown option {option}\n\n{USAGE}")),
            module => options.modules.push(module.to_owned()),
        }
    }
    Ok(Some(options))
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text} is not a number that can be used here"))
}

/// Returns the names in a list: one on each line, with blank lines and comments between them.
fn modules(path: &Path) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("failed to read {}: {error}", path.display()))?;
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(names.map(str::to_owned).collect())
}

/// Runs each module in a process of its own, a few concurrently, and returns the results by name.
fn run_all(
    sandbox: &Sandbox,
    modules: &[String],
    expected: &Expected,
    jobs: usize,
) -> Result<BTreeMap<String, ModuleRun>, String> {
    let next = AtomicUsize::new(0);
    let runs = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        let worker = || -> Result<(), String> {
            while let Some(module) = modules.get(next.fetch_add(1, Ordering::Relaxed)) {
                let run = sandbox.run(module, expected.left_out(module))?;
                println!("{run}");
                if let Ok(mut runs) = runs.lock() {
                    runs.insert(module.clone(), run);
                }
            }
            Ok(())
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })?;
    runs.into_inner().map_err(|_| "a worker panicked".into())
}

//! Programs as language models write them, run by `run_python_code` in both sandboxes.
//!
//! Each file of `tests/snippets/sandboxes` contains several. A line `# %% Title` begins a program; a number before the
//! title is that of a table of 104 programs that were tried by hand. Lines after it describe what is expected:
//!
//! | line | meaning |
//! | --- | --- |
//! | `#> text` | a line of output; `…` matches any text |
//! | `#! text` | the program fails, and the error contains this text |
//! | `#wasm> text`, `#native! text` | the same in one sandbox; these lines replace all others for it |
//! | `# needs wasm: capability` | the program is not run in the sandbox where the machine lacks the capability |
//! | `# timeout: 2` | the call's time limit, in seconds |
//!
//! The programs of the other files of `tests/snippets`, which the test program `it` runs in WebAssembly, are run in
//! native kernels here. `waits.py` is left out: real threads would wait for ever.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{LazyLock, Mutex, PoisonError};

use belljar_testing::{Capability, Failed, Trial, test_name, trial_result};
use serde_json::{Value, json};

use crate::harness::{Belljar, names_in, python_with};
use crate::wire::{Wire, text};

/// The number of programs in the table.
const TABLE_LENGTH: usize = 104;
/// The number of programs at least, in all files.
const MIN_PROGRAMS: usize = 150;
/// The only file of those that the test program `it` runs in WebAssembly whose programs do not run in native kernels.
const WASM_FILE: &str = "waits.py";
/// The files whose programs the test program `it` runs in WebAssembly, with the output that CPython has.
static PLAIN_FILES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut names = names_in(&folder());
    names.retain(|name| name.ends_with(".py") && name != WASM_FILE);
    names.sort();
    names
});

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sandbox {
    Wasm,
    Native,
}

impl Sandbox {
    const ALL: [Self; 2] = [Self::Wasm, Self::Native];

    fn name(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Native => "native",
        }
    }
}

/// The result that a program is expected to have.
#[derive(Debug, Clone, Default)]
struct Expectation {
    /// The output, with `…` for any text; of a program that fails it may be missing.
    output: String,
    /// Parts of the error; empty for a program that runs to its end.
    error: Vec<String>,
}

impl Expectation {
    fn succeeds(&self) -> bool {
        self.error.is_empty()
    }
}

/// A program with its expectations.
#[derive(Debug, Clone, Default)]
struct Snippet {
    file: String,
    /// The number in the table.
    number: Option<usize>,
    title: String,
    code: String,
    expected: Expectation,
    /// The expectations of sandboxes that have lines of their own.
    of_sandbox: BTreeMap<Sandbox, Expectation>,
    needs: BTreeMap<Sandbox, Vec<Capability>>,
    timeout: Option<u64>,
}

impl Snippet {
    fn new(file: &str, heading: &str) -> Self {
        let numbered = heading.split_once(' ').and_then(|(number, title)| Some((number.parse().ok()?, title)));
        let (number, title) = numbered.map_or((None, heading), |(number, title)| (Some(number), title));
        Self { file: file.into(), number, title: title.into(), ..Self::default() }
    }

    fn expectation(&self, sandbox: Sandbox) -> &Expectation {
        self.of_sandbox.get(&sandbox).unwrap_or(&self.expected)
    }

    /// Adds a line of the file. Lines that are not expectations are code.
    fn add(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("# needs ") {
            let (sandbox, names) = rest.split_once(": ").unwrap_or_else(|| panic!("{line}"));
            let sandbox = Sandbox::ALL.into_iter().find(|known| known.name() == sandbox).unwrap();
            let find = |name: &str| Capability::ALL.into_iter().find(|known| known.name() == name).unwrap();
            self.needs.insert(sandbox, names.split(", ").map(find).collect());
            return;
        }
        if let Some(seconds) = line.strip_prefix("# timeout: ") {
            self.timeout = Some(seconds.parse().unwrap());
            return;
        }
        for (prefix, sandbox) in [("#", None), ("#wasm", Some(Sandbox::Wasm)), ("#native", Some(Sandbox::Native))] {
            let Some(rest) = line.strip_prefix(prefix).filter(|rest| rest.starts_with(['>', '!'])) else { continue };
            let expected = match sandbox {
                Some(sandbox) => self.of_sandbox.entry(sandbox).or_default(),
                None => &mut self.expected,
            };
            if let Some(shown) = rest.strip_prefix('>') {
                writeln!(expected.output, "{}", shown.strip_prefix(' ').unwrap_or(shown)).unwrap();
                return;
            }
            if let Some(part) = rest.strip_prefix("! ") {
                expected.error.push(part.into());
                return;
            }
        }
        writeln!(self.code, "{line}").unwrap();
    }
}

fn read(path: &Path) -> Vec<Snippet> {
    let file = path.file_stem().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).unwrap();
    let mut snippets: Vec<Snippet> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("# %% ") {
            snippets.push(Snippet::new(&file, heading));
        } else if let Some(snippet) = snippets.last_mut() {
            snippet.add(line);
        }
    }
    snippets
}

/// Returns the programs that run in both sandboxes.
fn programs() -> Vec<Snippet> {
    let directory = folder().join("sandboxes");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().flat_map(|path| read(path)).collect()
}

/// Returns the programs that `it` runs in WebAssembly.
fn plain_programs() -> Vec<Snippet> {
    PLAIN_FILES.iter().flat_map(|file| read(&folder().join(file))).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snippets")
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test(test_name(module_path!(), "table_is_complete_and_most_of_it_works"), || {
        table_is_complete();
        Ok(())
    })];
    let add = |trials: &mut Vec<Trial>, snippet: Snippet, sandbox: Sandbox| {
        let number = snippet.number.map_or_else(String::new, |number| format!("{number:03}_"));
        let title: String = snippet.title.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        let name = format!("{}::{}::{number}{title}", sandbox.name(), snippet.file);
        let mut needs = snippet.needs.get(&sandbox).cloned().unwrap_or_default();
        if sandbox == Sandbox::Native {
            needs.insert(0, Capability::NativeSandbox);
        }
        trials.push(trial_result(test_name(module_path!(), &name), &needs, move || check(&snippet, sandbox)));
    };
    for snippet in programs() {
        for sandbox in Sandbox::ALL {
            add(&mut trials, snippet.clone(), sandbox);
        }
    }
    for snippet in plain_programs() {
        add(&mut trials, snippet, Sandbox::Native);
    }
    trials
}

/// The programs of the table are all there, and the expectations, which the other tests verify, say that most work.
fn table_is_complete() {
    let all = programs();
    let mut numbers: Vec<usize> = all.iter().filter_map(|snippet| snippet.number).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=TABLE_LENGTH));
    assert!(all.len() + plain_programs().len() >= MIN_PROGRAMS);
    for (sandbox, least) in [(Sandbox::Wasm, 60), (Sandbox::Native, 90)] {
        let table = all.iter().filter(|snippet| snippet.number.is_some());
        let working = table.filter(|snippet| snippet.expectation(sandbox).succeeds()).count();
        assert!(working >= least, "{working} of {TABLE_LENGTH} work in {}", sandbox.name());
    }
}

/// The number of programs of the table that ended well, and that failed as expected, by sandbox.
static COUNTS: Mutex<BTreeMap<Sandbox, (usize, usize)>> = Mutex::new(BTreeMap::new());

/// Prints how many programs of the table did what is expected, if any was run.
pub(crate) fn print_counts() {
    for (sandbox, (successes, failures)) in &*COUNTS.lock().unwrap() {
        eprintln!(
            "of the {TABLE_LENGTH} programs of the table, in {}: {successes} ran to their end, {failures} ended with the \
             expected error, {} were not run, or had another result",
            sandbox.name(),
            TABLE_LENGTH - successes - failures
        );
    }
}

/// The environment that `belljar native setup` makes without options.
static ENVIRONMENT: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("native-default-environment");
    // Not by the harness, which limits the time of a run.
    let command = Belljar::without_cache().args(["native", "setup", "--native-dir"]).arg(&root).env("PATH", path());
    let output = command.into_command().stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    root
});

/// Returns a search path with uv, which installs the same packages again from its cache.
fn path() -> std::ffi::OsString {
    let uv = python_with("uv", &["uv"]).parent().unwrap().to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(uv).chain(std::env::split_paths(&others))).unwrap()
}

/// Starts a server on standard streams.
fn start(sandbox: Sandbox) -> Mutex<Wire> {
    let mut command = match sandbox {
        Sandbox::Wasm => Belljar::new().args(["stdio", "--return-mode", "json"]).into_command(),
        Sandbox::Native => Belljar::without_cache()
            .args(["stdio", "--return-mode", "json", "--sandbox", "native", "--native-dir"])
            .arg(&*ENVIRONMENT)
            .env("PATH", path())
            .into_command(),
    };
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    Mutex::new(wire)
}

static WASM: LazyLock<Mutex<Wire>> = LazyLock::new(|| start(Sandbox::Wasm));
static NATIVE: LazyLock<Mutex<Wire>> = LazyLock::new(|| start(Sandbox::Native));

/// Runs a program and compares its result with the expected one.
fn check(snippet: &Snippet, sandbox: Sandbox) -> Result<(), Failed> {
    let server = match sandbox {
        Sandbox::Wasm => &*WASM,
        Sandbox::Native => &*NATIVE,
    };
    let mut arguments = json!({ "python_code": snippet.code });
    if let Some(seconds) = snippet.timeout {
        arguments["timeout"] = json!(seconds);
    }
    let mut wire = server.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = text(&wire.call(arguments));
    drop(wire);
    // Errors of the sandbox itself are plain text.
    let answer: Value = serde_json::from_str(&answer).map_err(|error| format!("{error}: {answer}"))?;
    let expected = snippet.expectation(sandbox);
    let lines = answer["output"].as_array().into_iter().flatten();
    let output: Vec<&str> = lines.filter_map(Value::as_str).collect();
    let output = output.join("\n");
    let succeeded = answer["status"] == "success";
    let error = answer["error"].as_str().unwrap_or_default();
    let as_expected = if PLAIN_FILES.contains(&format!("{}.py", snippet.file)) {
        // Their lines `#!` are parts of standard error, which is part of the output here.
        let parts = expected.output.lines().chain(expected.error.iter().map(String::as_str));
        succeeded && parts.into_iter().all(|part| output.contains(part))
    } else {
        let has_output = (!expected.succeeds() && expected.output.is_empty()) || matches(&expected.output, &output);
        let has_error = expected.error.iter().all(|part| error.contains(part.as_str()));
        succeeded == expected.succeeds() && has_output && has_error
    };
    if !as_expected {
        return Err(format!("{answer:#}\ninstead of {expected:#?}").into());
    }
    if snippet.number.is_some() {
        let mut counts = COUNTS.lock().unwrap();
        let (successes, failures) = counts.entry(sandbox).or_default();
        if succeeded { *successes += 1 } else { *failures += 1 }
    }
    Ok(())
}

/// Returns whether a text is the expected one, in which `…` matches any text. White space at the ends does not
/// count.
fn matches(expected: &str, text: &str) -> bool {
    let parts: Vec<&str> = expected.trim().split('…').collect();
    let mut rest = text.trim();
    let [first, middle @ .., last] = parts.as_slice() else { return rest == parts[0] };
    let Some(after) = rest.strip_prefix(first.trim_start()) else { return false };
    rest = after;
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

//! Attacks of code on the server: hundreds of programs in groups, run with both isolations and in native kernels.
//!
//! Requests to the host are forged by other means in native kernels than in WebAssembly, so that there are two groups
//! of them, each for one of the sandboxes. A group is a file of cells, each of which tries one thing. Its success is
//! read from outside of the sandbox, not from what the program prints: a file's secret or a variable of the server in a
//! result, a connection to a server of the machine, a change in a directory, the end of another process, an answer that
//! is not what happened, or a server that does not go on. [`check_without_sandbox`] shows that these signs do appear:
//! the same programs run in a plain Python.

mod machine;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::wire::{Wire, text};
use machine::Machine;

/// The groups: name, cells, and whether programs of this kind succeed in a plain Python, and do no harm there.
const GROUPS: [(&str, &str, bool); 11] = [
    ("files", include_str!("files.cells"), true),
    ("processes", include_str!("processes.cells"), true),
    ("network", include_str!("network.cells"), true),
    ("environment", include_str!("environment.cells"), true),
    ("memory", include_str!("memory.cells"), false),
    ("resources", include_str!("resources.cells"), false),
    ("host_calls", include_str!("host_calls.cells"), false),
    ("native_host_calls", include_str!("native_host_calls.cells"), false),
    ("traces", include_str!("traces.cells"), false),
    ("results", include_str!("results.cells"), false),
    ("imports", include_str!("imports.cells"), false),
];
/// The fields of a result as JSON.
const FIELDS: [&str; 9] = [
    "status",
    "dependencies",
    "output",
    "return_value",
    "error",
    "error_type",
    "calls",
    "omitted_calls",
    "connections",
];
/// The longest time that a call may take beyond the time limit of its code.
const LONGEST_WAIT: Duration = Duration::from_secs(180);
/// The time limit of an attack, in seconds.
const TIMEOUT: f64 = 1.0;
/// The time limit of code that looks for traces, and of code that shows that the server goes on, in seconds. On a busy
/// machine, the first cell of a native kernel may take longer than an attack may.
const CHECK_TIMEOUT: f64 = 120.0;

/// An attack: its name, its code, and the code that looks for its traces.
struct Attack {
    name: String,
    code: String,
    search: Option<String>,
}

fn attacks(group: &str) -> Vec<Attack> {
    let (_, cells, _) = GROUPS.iter().find(|(name, ..)| *name == group).unwrap();
    let cells: Vec<&str> = cells.split("\n# %% ").skip(1).collect();
    assert!(cells.len() >= 30, "{group}: {} attacks", cells.len());
    let attack = |cell: &&str| {
        let (name, code) = cell.split_once('\n').unwrap();
        let (code, search) = match code.split_once("\n# --\n") {
            Some((code, search)) => (code, Some(search.to_owned())),
            None => (code, None),
        };
        Attack { name: format!("{group}: {name}"), code: code.to_owned(), search }
    };
    cells.iter().map(attack).collect()
}

/// Names an attack on standard error if the thread panics during it, also because the server does not answer.
struct NamedOnPanic<'a>(&'a str);

impl Drop for NamedOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the attack was: {}", self.0);
        }
    }
}

/// A server that attacks run on.
struct Attacked {
    wire: Wire,
    machine: Machine,
    /// The folder of the package index.
    _index: tempfile::TempDir,
}

impl Attacked {
    fn start(options: &[&str]) -> Self {
        let machine = Machine::start();
        let arguments = ["--return-mode", "json", "--timeout", "120", "--memory", "512MB"];
        let mut command = crate::harness::Belljar::new().arg("stdio").args(arguments).args(options.iter().copied());
        for (name, value) in machine.environment() {
            command = command.env(name, value);
        }
        // A package index without packages, so that nothing depends on that of this machine. Addresses that code gives
        // would still be fetched.
        let index = tempfile::tempdir().unwrap();
        let address = format!("file://{}", index.path().display());
        let mut command = command.env("UV_DEFAULT_INDEX", &address).env("PIP_INDEX_URL", &address).into_command();
        for name in ["UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"] {
            command.env_remove(name);
        }
        let mut wire = Wire::spawn(command);
        wire.initialize();
        // The first call waits for Python, or for the process that native kernels are forked from.
        let first = wire.run("6 * 7");
        assert!(first.contains("42"), "{first}");
        Self { wire, machine, _index: index }
    }

    /// Runs code with this time limit in seconds, and returns the text of its result.
    fn run(&mut self, name: &str, code: &str, timeout: f64) -> String {
        let _named = NamedOnPanic(name);
        let begin = Instant::now();
        let arguments = json!({ "python_code": self.machine.with_names(code), "timeout": timeout });
        let answer = self.wire.ask("tools/call", json!({ "name": "run_python_code", "arguments": arguments }));
        let longest = LONGEST_WAIT + Duration::from_secs_f64(timeout);
        assert!(begin.elapsed() < longest, "{name}: it took {:?}", begin.elapsed());
        assert!(answer["result"]["content"].is_array(), "{name}: {answer:#}");
        if let Some(harm) = self.machine.harm(&answer.to_string()) {
            panic!("{name}: {harm}: {answer:#}");
        }
        text(&answer["result"])
    }

    /// Runs all attacks of a group.
    fn run_group(&mut self, group: &str) {
        for Attack { name, code, search } in attacks(group) {
            let shown = self.run(&name, &code, TIMEOUT);
            let result: Value = serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{name}: {error}: {shown}"));
            let fields = result.as_object().unwrap();
            let unknown: Vec<&String> = fields.keys().filter(|field| !FIELDS.contains(&field.as_str())).collect();
            assert!(unknown.is_empty(), "{name}: {unknown:?}");
            if name.ends_with("(error)") {
                assert_ne!(result["status"], "success", "{name}: {result:#}");
            }
            if let Some(search) = search {
                let found = self.run(&name, &search, CHECK_TIMEOUT);
                assert!(!found.contains("LEFT"), "{name}: {found}");
            }
            let next = self.run(&name, "6 * 7", CHECK_TIMEOUT);
            assert!(next.contains("42"), "after {name}: {next}");
        }
        if let Some(harm) = self.machine.harm("") {
            panic!("{group}: {harm}");
        }
    }
}

/// Runs the attacks of a group on a server with these options.
pub(crate) fn run_group(group: &str, options: &[&str]) {
    Attacked::start(options).run_group(group);
}

/// Checks that there are at least 300 attacks in ten groups on each sandbox, that their names differ, and that
/// docs/security.md has their number.
pub(crate) fn check_number() {
    let numbers = GROUPS.map(|(group, ..)| {
        let names: BTreeSet<String> = attacks(group).into_iter().map(|attack| attack.name).collect();
        assert_eq!(names.len(), attacks(group).len(), "{group}: attacks with the same name");
        (group, names.len())
    });
    let all: usize = numbers.iter().map(|(_, number)| number).sum();
    for other_sandbox in ["native_host_calls", "host_calls"] {
        let number: usize = numbers.iter().filter(|(group, _)| *group != other_sandbox).map(|(_, number)| number).sum();
        assert!(number >= 300, "{number} without {other_sandbox}");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = std::fs::read_to_string(page).unwrap();
    let documented = format!("has some {} programs in eleven groups", all / 10 * 10);
    assert!(page.contains(&documented), "{all}: {documented}");
}

/// Checks that what attacks are after would be seen: runs those of a group in a plain Python.
pub(crate) fn check_without_sandbox() {
    for (group, _, has_control) in GROUPS {
        if !has_control {
            continue;
        }
        let attacks = attacks(group);
        let mut failed = Vec::new();
        for Attack { name, code, .. } in &attacks {
            // Each has a machine of its own: some remove what others need.
            let mut machine = Machine::start();
            let output = machine.run_in_plain_python(code);
            if machine.harm(&output).is_none() {
                failed.push(name.clone());
            }
        }
        assert!(
            failed.len() * 2 < attacks.len(),
            "{} of {} {group} show nothing: {failed:#?}",
            failed.len(),
            attacks.len()
        );
    }
}

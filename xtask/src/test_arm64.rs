//! `cargo xtask test-arm64`: builds tests for Linux on arm64 and runs them in QEMU's emulator of programs.
//!
//! Debian's packages have all that it needs: see CONTRIBUTING.md. The emulator translates each program's instructions,
//! and passes its system calls to the kernel of this machine. Tests that need another kernel, or time that passes as on
//! a real processor, are therefore left out: [`NOT_EMULATED`] gives the reasons.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{as_by_hand, cargo, target_directory, workspace};

const USAGE: &str = "\
Usage: cargo xtask test-arm64 [--build] [--package NAME]... [-- ARGUMENTS OF TESTS]

Builds the tests of the machine, the interpreter, sessions, storage and the command for Linux on arm64, and runs them in
QEMU's emulator. With --build, they are only built; with --package, only those of these packages are. A program that
this machine compiles for arm64 runs there, too.";

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// The packages whose tests run. The last one's tests start the program, which needs a registered emulator.
const PACKAGES: [&str; 8] = [
    MACHINE,
    "belljar-python",
    "belljar-core",
    "belljar-cache",
    "belljar-store",
    "belljar-sessions",
    "belljar-server",
    PROGRAM,
];
const MACHINE: &str = "belljar-emscripten";
const PROGRAM: &str = "belljar";
/// The places of arm64's dynamic linker: among the system's libraries, or below the prefix of the cross compiler.
const LOADER: &str = "lib/ld-linux-aarch64.so.1";
const PREFIXES: [&str; 2] = ["/", "/usr/aarch64-linux-gnu"];
/// The variable with the number of programs that tests of continuations run.
const DURABLE_PROGRAMS: &str = "BELLJAR_DURABLE_PROGRAMS";
/// The kernel's list of programs that run others.
const REGISTERED: &str = "/proc/sys/fs/binfmt_misc";

/// Tests that an emulator of programs cannot run, each with the reason.
const NOT_EMULATED: &[(&str, &str)] = &[
    ("written_pages_can_be_prefaulted_in_another_mapping", "the emulator refuses MADV_POPULATE_WRITE"),
    (
        "error_names_failures_of_both_sources",
        "a process that the emulator starts shares no memory with its parent, so that posix_spawn does not fail for a \
         missing program, which ends with status 127",
    ),
];

/// Runs the chore. Returns whether all tests have passed.
pub(crate) fn main(mut arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let (mut only_build, mut packages, mut for_tests) = (false, Vec::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--build" => only_build = true,
            "--package" | "-p" => packages.push(arguments.next().ok_or("--package needs a name")?),
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(true);
            }
            "--" => for_tests.extend(arguments.by_ref()),
            other => return Err(format!("unknown option {other}\n\n{USAGE}")),
        }
    }
    if packages.is_empty() {
        packages = PACKAGES.map(str::to_owned).to_vec();
    }
    let tools = Tools::find();
    let starts_programs = !only_build && packages.iter().any(|package| package == PROGRAM);
    let missing = tools.missing(starts_programs);
    if !missing.is_empty() {
        return Err(format!("this machine lacks tools for arm64:\n{}", missing.join("\n")));
    }
    let exchanges_code = !only_build && packages.iter().any(|package| package == MACHINE);
    let mut command = tools.cargo("test")?;
    command.args(["--no-fail-fast", "--tests", "--target", TARGET]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    if only_build {
        command.arg("--no-run");
    } else {
        for (name, reason) in NOT_EMULATED {
            println!("left out: {name}: {reason}");
        }
        command.arg("--").args(NOT_EMULATED.iter().flat_map(|(name, _)| ["--skip", name])).args(for_tests);
    }
    let passed = succeeds(&mut command)?;
    Ok(if exchanges_code { exchange_code(&tools)? && passed } else { passed })
}

/// Compiles a program on this machine, and runs it in the emulator. Returns whether that succeeded.
fn exchange_code(tools: &Tools) -> Result<bool, String> {
    let directory = target_directory()?.join("tmp/platforms");
    match std::fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("failed to empty {}: {error}", directory.display()));
        }
        _ => {}
    }
    let example = ["--package", MACHINE, "--example", "platforms"];
    let mut write = tools.cargo("run")?;
    write.args(example).args(["--features", "cross-compile", "--", "write", TARGET]).arg(&directory);
    let mut run = tools.cargo("run")?;
    run.args(example).args(["--target", TARGET, "--", "run"]).arg(&directory);
    Ok(succeeds(&mut write)? && succeeds(&mut run)?)
}

fn succeeds(command: &mut Command) -> Result<bool, String> {
    Ok(command.status().map_err(|error| format!("failed to start cargo: {error}"))?.success())
}

/// The tools of this machine for arm64.
struct Tools {
    has_linker: bool,
    has_emulator: bool,
    has_standard_library: bool,
    /// True if the kernel starts programs for arm64 with the emulator.
    is_registered: bool,
    /// The directory that contains [`LOADER`].
    prefix: Option<&'static str>,
}

impl Tools {
    fn find() -> Self {
        let starts = |program| Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success());
        let library = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
        let library = library.ok().and_then(|output| String::from_utf8(output.stdout).ok()).map(PathBuf::from);
        Self {
            has_linker: starts(LINKER),
            has_emulator: starts(EMULATOR),
            has_standard_library: library.is_some_and(|path| Path::new(path.to_string_lossy().trim()).is_dir()),
            is_registered: is_registered(Path::new(REGISTERED)),
            prefix: PREFIXES.into_iter().find(|prefix| Path::new(prefix).join(LOADER).exists()),
        }
    }

    /// Returns a command of Cargo, in the workspace, that finds the tools.
    fn cargo(&self, command: &str) -> Result<Command, String> {
        let mut cargo = Command::new(cargo());
        as_by_hand(&mut cargo);
        cargo.args([command, "--locked"]).current_dir(workspace()?);
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
        cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", EMULATOR);
        // Smaller programs start sooner in the emulator.
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "false");
        // The emulator has a thread of its own in each process, so that worker processes cannot be copied.
        cargo.env("BELLJAR_TEST_ISOLATION", "thread");
        // Each of these programs takes minutes.
        if std::env::var_os(DURABLE_PROGRAMS).is_none() {
            cargo.env(DURABLE_PROGRAMS, "2");
        }
        if let Some(prefix) = self.prefix {
            cargo.env("QEMU_LD_PREFIX", prefix);
        }
        Ok(cargo)
    }

    /// Returns a line for each tool that is missing.
    fn missing(&self, starts_programs: bool) -> Vec<String> {
        let conditions = [
            (self.has_linker, format!("{LINKER}: the compiler (Debian: gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu)")),
            (self.has_emulator, format!("{EMULATOR}: the emulator (Debian: qemu-user)")),
            (
                self.has_standard_library,
                format!("Rust's library (Debian: libstd-rust-dev:arm64; rustup: rustup target add {TARGET})"),
            ),
            (self.prefix.is_some(), format!("{LOADER}: the C library (Debian: libc6:arm64 or libc6-arm64-cross)")),
            (
                self.is_registered || !starts_programs,
                format!(
                    "{EMULATOR} in {REGISTERED}, since tests of {PROGRAM} start it as a program (Debian: \
                     qemu-user-binfmt); without it, select other packages"
                ),
            ),
        ];
        conditions.into_iter().filter(|(is_there, _)| !is_there).map(|(_, line)| line).collect()
    }
}

/// Returns whether the kernel's list names the emulator.
fn is_registered(list: &Path) -> bool {
    let entries = list.read_dir().into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).any(|text| {
        let is_emulator = |line: &str| line.starts_with("interpreter ") && line.contains(EMULATOR);
        text.lines().any(|line| line == "enabled") && text.lines().any(is_emulator)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tools_are_named_with_their_packages() {
        let none = Tools {
            has_linker: false,
            has_emulator: false,
            has_standard_library: false,
            is_registered: false,
            prefix: None,
        };
        let lines = none.missing(true).join("\n");
        for package in
            ["gcc-aarch64-linux-gnu", "qemu-user", "libstd-rust-dev:arm64", "libc6:arm64", "qemu-user-binfmt"]
        {
            assert!(lines.contains(package), "{package}: {lines}");
        }
        let complete =
            Tools { has_linker: true, has_emulator: true, has_standard_library: true, prefix: Some("/"), ..none };
        assert_eq!(complete.missing(false), [""; 0]);
        assert_eq!(complete.missing(true).len(), 1);
    }

    #[test]
    fn only_an_enabled_entry_registers_the_emulator() {
        let list = tempfile::tempdir().unwrap();
        assert!(!is_registered(list.path()));
        let write = |text: &str| std::fs::write(list.path().join("qemu-aarch64"), text).unwrap();
        write("disabled\ninterpreter /usr/bin/qemu-aarch64\nflags: F\n");
        assert!(!is_registered(list.path()));
        write("enabled\ninterpreter /usr/bin/qemu-aarch64\nflags: F\n");
        assert!(is_registered(list.path()));
        assert!(!is_registered(Path::new("/missing")));
    }
}

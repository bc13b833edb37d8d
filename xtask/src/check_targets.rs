//! `cargo xtask check-targets`: type-checks the crates for the platforms that this machine cannot run.
//!
//! Nothing is linked, so that a linker and the platform's libraries are not needed. The standard library is that of the
//! toolchain if it has the target, or else it is checked from its sources (component `rust-src`). Parts in C are
//! compiled by `zig cc`, which has the headers of all these platforms; it is on the path, or in the package `ziglang`
//! of `python3`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::os::{PYTHON, write_script};
use crate::packages;
use crate::workspace::{as_by_hand, cargo, host, target_directory, workspace};

const USAGE: &str = "\
Usage: cargo xtask check-targets [--tests] [TRIPLE…]

Runs `cargo check` for each of these platforms, or for those that are named:
  aarch64-unknown-linux-gnu  aarch64-apple-darwin  x86_64-apple-darwin  x86_64-pc-windows-gnu
All packages are checked for Linux, and those that are meant for all systems for the others; with --tests, their tests,
too.

Each needs the target's standard library (`rustup target add TRIPLE`) or the sources of it (`rustup component add
rust-src`), and Zig for parts in C: the program `zig`, or `pip install ziglang` for `python3`. The build folder is
`check-targets` within that of the workspace.";

/// The first argument with which Cargo's build scripts start this program as a compiler of C.
const AS_COMPILER: &str = "--as-compiler";

/// A platform that is checked.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// Cargo's name.
    triple: &'static str,
    /// Zig's name.
    zig: &'static str,
    /// Set for Linux, for which all packages are meant.
    is_linux: bool,
}

const TARGETS: [Target; 4] = [
    Target { triple: "aarch64-unknown-linux-gnu", zig: "aarch64-linux-gnu", is_linux: true },
    Target { triple: "aarch64-apple-darwin", zig: "aarch64-macos", is_linux: false },
    Target { triple: "x86_64-apple-darwin", zig: "x86_64-macos", is_linux: false },
    // With the headers of MinGW: those of Microsoft's compiler come only with Visual Studio.
    Target { triple: "x86_64-pc-windows-gnu", zig: "x86_64-windows-gnu", is_linux: false },
];

/// Runs the chore. Returns whether all crates compile for all platforms.
pub(crate) fn main(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let arguments: Vec<String> = arguments.collect();
    if arguments.first().is_some_and(|first| first == AS_COMPILER) {
        return compile(&arguments[1..]);
    }
    let (mut targets, mut with_tests) = (Vec::new(), false);
    for argument in &arguments {
        match argument.as_str() {
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(true);
            }
            "--tests" => with_tests = true,
            option if option.starts_with('-') => return Err(format!("unknown option {option}\n\n{USAGE}")),
            triple => targets.push(target(triple)?),
        }
    }
    if targets.is_empty() {
        targets.extend(&TARGETS);
    }
    // All that is missing is reported at once, before anything is compiled.
    let zig = zig();
    let sysroot = sysroot()?;
    let mut missing = Vec::new();
    missing.extend(
        zig.is_none().then(|| {
            "Zig is missing, which compiles parts in C: install `zig`, or run `pip install ziglang`".to_owned()
        }),
    );
    missing.extend(targets.iter().filter(|target| standard_library(&sysroot, target.triple).is_none()).map(|target| {
        let triple = target.triple;
        format!(
            "the standard library for {triple} is missing: run `rustup target add {triple}` or `rustup component add \
             rust-src`, or install your distribution's package of Rust's sources (Debian: rust-src)"
        )
    }));
    let (Some(zig), true) = (zig, missing.is_empty()) else { return Err(missing.join("\n")) };
    let mut failed = Vec::new();
    for target in &targets {
        let since = Instant::now();
        let build_std = standard_library(&sysroot, target.triple) == Some(StandardLibrary::Sources);
        let is_correct = check(target, &zig, build_std, with_tests)?;
        println!(
            "{}: {}, {:.0} s",
            target.triple,
            if is_correct { "ok" } else { "failed" },
            since.elapsed().as_secs_f64()
        );
        if !is_correct {
            failed.push(target.triple);
        }
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

fn target(triple: &str) -> Result<&'static Target, String> {
    TARGETS.iter().find(|target| target.triple == triple).ok_or_else(|| {
        let known = TARGETS.each_ref().map(|target| target.triple).join(", ");
        format!("{triple} is not checked; these are: {known}")
    })
}

/// Returns the command of Zig, if there is one.
fn zig() -> Option<Vec<String>> {
    let candidates: [&[&str]; 2] = [&["zig"], &[PYTHON, "-m", "ziglang"]];
    let works = |command: &&[&str]| {
        let output = Command::new(command[0]).args(&command[1..]).arg("version").output();
        output.is_ok_and(|output| output.status.success())
    };
    candidates.into_iter().find(works).map(|command| command.iter().map(|&word| word.to_owned()).collect())
}

/// Returns the directory of the toolchain.
fn sysroot() -> Result<PathBuf, String> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .current_dir(workspace()?)
        .output()
        .map_err(|error| format!("failed to start rustc: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

/// The form in which a toolchain has the standard library for a platform.
#[derive(Debug, PartialEq, Eq)]
enum StandardLibrary {
    Compiled,
    Sources,
}

/// Returns the form in which the toolchain in `sysroot` has the standard library for a platform.
fn standard_library(sysroot: &Path, triple: &str) -> Option<StandardLibrary> {
    let rustlib = sysroot.join("lib/rustlib");
    if rustlib.join(triple).join("lib").is_dir() {
        Some(StandardLibrary::Compiled)
    } else if rustlib.join("src/rust/library/std/Cargo.toml").is_file() {
        Some(StandardLibrary::Sources)
    } else {
        None
    }
}

/// Checks the packages of a platform.
fn check(target: &Target, zig: &[String], build_std: bool, with_tests: bool) -> Result<bool, String> {
    let directory = target_directory()?.join("check-targets");
    let mut command = Command::new(cargo());
    as_by_hand(&mut command);
    command.args(["check", "--locked", "--target", target.triple, "--target-dir"]).arg(&directory);
    if target.is_linux {
        command.arg("--workspace");
    } else {
        command.args(packages::portable());
    }
    if with_tests {
        command.args(["--lib", "--bins", "--tests"]);
    }
    if build_std {
        // The compiler is a release, to which unstable options are closed otherwise.
        command.arg("-Zbuild-std=std").env("RUSTC_BOOTSTRAP", "1");
    }
    if host()? != target.triple {
        let suffix = target.triple.replace('-', "_");
        for (variable, tool) in [("CC", "cc"), ("CXX", "c++"), ("AR", "ar")] {
            command.env(format!("{variable}_{suffix}"), wrapper(&directory, target, zig, tool)?);
        }
        if target.triple.ends_with("windows-gnu") {
            // The compiler looks for it on the path: libraries of the system are described to it also when nothing is
            // linked.
            let name = "x86_64-w64-mingw32-dlltool";
            wrapper_named(&directory, name, target, zig, "dlltool")?;
            let path = std::env::var_os("PATH").unwrap_or_default();
            let directories = [directory.join("bin")].into_iter().chain(std::env::split_paths(&path));
            let path = std::env::join_paths(directories).map_err(|error| format!("failed to extend PATH: {error}"))?;
            command.env("PATH", path);
        }
        // Without it, crates ask Xcode for the headers of macOS, which Zig has.
        command.env("SDKROOT", &directory);
        // Assembler of AWS-LC for Windows is contained in the crate, so that NASM is not needed.
        command.env("AWS_LC_SYS_PREBUILT_NASM", "1");
    }
    let status =
        command.current_dir(workspace()?).status().map_err(|error| format!("failed to start cargo: {error}"))?;
    Ok(status.success())
}

/// Writes a script that starts this program as one of Zig's tools, and returns its path. Build scripts expect a program
/// without arguments of its own.
fn wrapper(directory: &Path, target: &Target, zig: &[String], tool: &str) -> Result<PathBuf, String> {
    wrapper_named(directory, &format!("{}-{tool}", target.triple), target, zig, tool)
}

/// Does the same as [`wrapper`] with another file name.
fn wrapper_named(directory: &Path, name: &str, target: &Target, zig: &[String], tool: &str) -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| format!("failed to find this program's file: {error}"))?;
    let directory = directory.join("bin");
    let path = directory.join(name);
    let words = [&this.display().to_string(), "check-targets", AS_COMPILER, target.zig, tool];
    let count = zig.len().to_string();
    let words = words.into_iter().chain([&*count]).chain(zig.iter().map(String::as_str));
    let quoted: Vec<String> = words.map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", quoted.join(" "));
    let failed = |error: std::io::Error| format!("failed to write {}: {error}", path.display());
    std::fs::create_dir_all(&directory).map_err(failed)?;
    write_script(&path, &script).map_err(failed)?;
    Ok(path)
}

/// Runs one of Zig's tools. The arguments are the platform, the tool, the number of words of Zig's command, these, and
/// the arguments of the tool.
fn compile(arguments: &[String]) -> Result<bool, String> {
    let [platform, tool, count, rest @ ..] = arguments else { return Err(format!("{AS_COMPILER} lacks arguments")) };
    let count = count.parse().map_err(|_| format!("{AS_COMPILER}: {count} is not a number"))?;
    let (zig, rest) = rest.split_at_checked(count).ok_or_else(|| format!("{AS_COMPILER} lacks Zig's command"))?;
    let [program, words @ ..] = zig else { return Err(format!("{AS_COMPILER} lacks Zig's command")) };
    let mut command = Command::new(program);
    command.args(words).arg(tool);
    match tool.as_str() {
        "ar" => command.args(rest),
        "dlltool" => command.args(without_binutils(rest)),
        _ => command.args(["-target", platform]).args(without_platform(rest)),
    };
    let status = command.status().map_err(|error| format!("failed to start {program}: {error}"))?;
    Ok(status.success())
}

/// Removes the options by which Clang is given a platform: Zig has its own names of these.
fn without_platform(arguments: &[String]) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            "-target" | "-arch" | "-isysroot" => drop(arguments.next()),
            _ if argument.starts_with("--target=") || argument.starts_with("-mmacosx-version-min=") => {}
            _ => kept.push(argument),
        }
    }
    kept
}

/// Removes the options that the `dlltool` of LLVM does not have, and does not need.
fn without_binutils(arguments: &[String]) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            "-f" | "--temp-prefix" => drop(arguments.next()),
            "--no-leading-underscore" => {}
            _ => kept.push(argument),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_platform_are_removed() {
        let arguments = "-O0 --target=arm64-apple-macosx -arch arm64 -mmacosx-version-min=11.0 -isysroot /sdk -c a.c";
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        assert_eq!(without_platform(&arguments), ["-O0", "-c", "a.c"]);
    }

    #[test]
    fn options_of_binutils_are_removed() {
        let arguments = "-d a.def -D a.dll -l a.lib -m i386:x86-64 -f --64 --no-leading-underscore --temp-prefix a";
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        assert_eq!(without_binutils(&arguments), ["-d", "a.def", "-D", "a.dll", "-l", "a.lib", "-m", "i386:x86-64"]);
    }

    #[test]
    fn metadata_names_the_platforms_that_are_checked() {
        let manifest = include_str!("../../crates/belljar/Cargo.toml");
        let named = |key: &str| {
            let (_, metadata) = manifest.split_once(&format!("{key} = [")).unwrap();
            let (named, _) = metadata.split_once(']').unwrap();
            named.split('"').skip(1).step_by(2)
        };
        let named: Vec<&str> = named("emulated").chain(named("never-run")).collect();
        assert_eq!(named, TARGETS.each_ref().map(|target| target.triple));
    }

    #[test]
    fn unknown_platform_is_refused_with_the_known_ones() {
        let error = target("riscv64gc-unknown-linux-gnu").unwrap_err();
        assert!(error.contains("is not checked; these are: aarch64-unknown-linux-gnu, "), "{error}");
        assert_eq!(target("x86_64-pc-windows-gnu").unwrap().zig, "x86_64-windows-gnu");
    }

    #[test]
    fn compiled_library_is_preferred_to_sources() {
        let sysroot = tempfile::tempdir().unwrap();
        let create = |path: &str| std::fs::create_dir_all(sysroot.path().join("lib/rustlib").join(path)).unwrap();
        let found = || standard_library(sysroot.path(), "aarch64-apple-darwin");
        assert_eq!(found(), None);
        create("src/rust/library/std");
        std::fs::write(sysroot.path().join("lib/rustlib/src/rust/library/std/Cargo.toml"), "").unwrap();
        assert_eq!(found(), Some(StandardLibrary::Sources));
        create("aarch64-apple-darwin/lib");
        assert_eq!(found(), Some(StandardLibrary::Compiled));
    }

    #[test]
    fn missing_arguments_of_the_compiler_are_an_error() {
        assert!(compile(&[]).is_err());
        assert!(compile(&["aarch64-macos", "cc", "2", "zig"].map(str::to_owned)).is_err());
    }
}

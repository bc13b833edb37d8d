//! Tests that are ignored where a capability is missing.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::Capability;
use crate::os::run_fork_server_if_child;

/// Returns a test that needs capabilities and fails by panicking. See [`trial_result`].
pub fn trial(name: impl Into<String>, needs: &[Capability], test: impl FnOnce() + Send + 'static) -> Trial {
    trial_result(name, needs, move || {
        test();
        Ok(())
    })
}

/// Returns a test that needs capabilities. It is ignored if one is missing, and fails if that one is required.
pub fn trial_result(
    name: impl Into<String>,
    needs: &[Capability],
    test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let missing = needs.iter().find_map(|capability| Some((*capability, capability.missing()?)));
    let is_required = missing.as_ref().is_some_and(|(capability, _)| capability.is_required());
    build(name.into(), missing, is_required, test)
}

fn build(
    name: String,
    missing: Option<(Capability, String)>,
    is_required: bool,
    test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let Some((capability, reason)) = missing else { return Trial::test(name, test) };
    if is_required {
        Trial::test(name, move || Err(format!("{capability} is required and missing: {reason}").into()))
    } else {
        // libtest-mimic prints no reason for a test that is ignored.
        eprintln!("IGNORED {name}: {capability} is missing: {reason}");
        Trial::test(name, test).with_ignored_flag(true)
    }
}

/// Returns the name of a test in a module: without the crate's name, as libtest has it.
#[must_use]
pub fn test_name(module: &str, function: &str) -> String {
    module.split_once("::").map_or_else(|| function.to_owned(), |(_, module)| format!("{module}::{function}"))
}

/// Defines `trials()`, which returns the listed tests of a module with the capabilities that they need. A function that
/// is not listed is dead code, of which the compiler warns.
#[macro_export]
macro_rules! trials {
    ($($name:ident: [$($capability:ident),* $(,)?]),+ $(,)?) => {
        pub(crate) fn trials() -> Vec<$crate::Trial> {
            vec![$($crate::trial(
                $crate::test_name(module_path!(), stringify!($name)),
                &[$($crate::Capability::$capability),*],
                $name,
            )),+]
        }
    };
}

/// Runs a test program without libtest's harness: `fn main() -> ExitCode { belljar_testing::main(trials) }`.
///
/// Capabilities and tests may start this program as the sandbox's fork server; such a process never returns from here.
pub fn main(trials: impl FnOnce() -> Vec<Trial>) -> ExitCode {
    run_fork_server_if_child();
    run(trials())
}

/// Runs tests as the command line asks.
#[must_use]
pub fn run(trials: Vec<Trial>) -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(missing: bool, is_required: bool) -> (u64, u64, u64) {
        let missing = missing.then(|| (Capability::Browser, "none".to_owned()));
        let trial = build("name".to_owned(), missing, is_required, || Ok(()));
        // Without the log of a test that fails on purpose.
        let arguments = Arguments { logfile: Some("/dev/null".to_owned()), ..Arguments::default() };
        let conclusion = libtest_mimic::run(&arguments, vec![trial]);
        (conclusion.num_passed, conclusion.num_ignored, conclusion.num_failed)
    }

    #[test]
    fn names_are_those_of_libtest() {
        assert_eq!(test_name("program", "function"), "function");
        assert_eq!(test_name("program::outer::inner", "function"), "outer::inner::function");
    }

    #[test]
    fn a_missing_capability_ignores_a_test_or_fails_it_if_required() {
        assert_eq!(outcome(false, false), (1, 0, 0));
        assert_eq!(outcome(false, true), (1, 0, 0));
        assert_eq!(outcome(true, false), (0, 1, 0));
        assert_eq!(outcome(true, true), (0, 0, 1));
    }
}

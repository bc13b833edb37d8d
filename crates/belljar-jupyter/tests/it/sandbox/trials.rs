//! The sandbox, from inside and from outside.
//!
//! This program executes itself: as the fork server of launchers, and as another user who makes them. So it has a `main`
//! of its own, and the list of tests is made at run time: every attack of `attacks.py`, by name, for both ways in, as
//! root with a user for the session and as an ordinary user. What cannot be tested here is said on standard error and
//! listed as ignored.

mod attacked;
mod devices;
mod endings;
mod floods;
mod person;
mod scenarios;
mod weak;
mod zygote;

use std::process::ExitCode;

use belljar_jupyter::sandbox;
use libtest_mimic::{Arguments, Trial};

use person::Person;

/// The first argument of a process that is to take a [`Person`]'s part.
const PART: &str = "__part";

pub(crate) fn main() -> ExitCode {
    sandbox::launch_if_asked();
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, part, name, rest @ ..] = arguments.as_slice()
        && part == PART
    {
        return person::play(name, rest);
    }
    let mut trials: Vec<Trial> = Vec::new();
    for person in Person::ALL {
        let missing = person.missing();
        if let Some(missing) = &missing {
            eprintln!("SKIPPED: everything as {person}: {missing}");
        }
        let all = attacked::trials(person).into_iter().chain(scenarios::trials(person));
        trials.extend(all.map(|trial| trial.with_ignored_flag(missing.is_some())));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

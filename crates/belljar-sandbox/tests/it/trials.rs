//! Tests of the sandbox, from inside and from outside.
//!
//! This program executes itself: as the fork server of launchers, and as another user that creates sandboxes. So it has
//! a `main` of its own, and lists the tests at run time: each attack of `attacks.py`, by name, for both ways into a
//! sandbox, as root with a user for the session and as an ordinary user. Tests that this machine cannot run are listed
//! as ignored, with the reason on standard error.

mod attack_trials;
mod devices;
mod endings;
mod floods;
mod host_user;
mod scenarios;
mod weak;
mod worker_trials;
mod zygote;

use std::process::ExitCode;

use belljar_sandbox as sandbox;
use host_user::HostUser;

/// The first argument of a process of this program that performs a task of a test as a [`HostUser`].
const TASK_ARGUMENT: &str = "__task";

pub(crate) fn main() -> ExitCode {
    sandbox::run_fork_server_if_child();
    worker_trials::run_if_child();
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, argument, name, rest @ ..] = arguments.as_slice()
        && argument == TASK_ARGUMENT
    {
        return host_user::run_task(name, rest);
    }
    let of_user = |user| attack_trials::trials(user).into_iter().chain(scenarios::trials(user));
    belljar_testing::run(HostUser::ALL.into_iter().flat_map(of_user).chain(worker_trials::trials()).collect())
}

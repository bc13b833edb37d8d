//! The attacks of `tests/attacks` on interpreters in WebAssembly, in threads and in worker processes.

use crate::attacks;

macro_rules! attacks {
    ($($group:ident)*) => {
        mod threads {
            $(#[test]
            fn $group() {
                crate::attacks::run_group(stringify!($group), &["--isolation", "thread"]);
            })*
        }

        #[cfg(target_os = "linux")]
        mod worker_processes {
            $(#[test]
            fn $group() {
                crate::attacks::run_group(stringify!($group), &["--isolation", "process"]);
            })*
        }
    };
}

attacks!(files processes network environment memory resources host_calls traces results imports);

#[test]
fn attacks_succeed_without_a_sandbox() {
    attacks::check_without_sandbox();
}

#[test]
fn number_of_attacks_is_documented() {
    attacks::check_number();
}

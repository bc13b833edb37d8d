//! Tests of the sandbox, from inside and from outside: `trials.rs`, on Linux.

#[cfg(target_os = "linux")]
#[path = "trials.rs"]
mod trials;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    trials::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("SKIPPED: the sandbox requires Linux");
}

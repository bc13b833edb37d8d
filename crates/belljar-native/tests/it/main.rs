//! Tests of native kernels, on Linux: `trials.rs`.

#[cfg(target_os = "linux")]
#[path = "trials.rs"]
mod trials;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    trials::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("SKIPPED: native kernels are for Linux");
}

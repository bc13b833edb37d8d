//! Native kernels, as sessions use them: `trials.rs`, on Linux.

#[cfg(target_os = "linux")]
#[path = "trials.rs"]
mod trials;

#[cfg(target_os = "linux")]
fn main() {
    trials::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("SKIPPED: native kernels are for Linux");
}

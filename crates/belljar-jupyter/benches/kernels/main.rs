//! What native kernels cost: `measures.rs`, on Linux.

#[cfg(target_os = "linux")]
#[path = "measures.rs"]
mod measures;

#[cfg(target_os = "linux")]
fn main() {
    measures::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("skipped: native kernels are for Linux");
}

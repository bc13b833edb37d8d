//! Measures native kernels, on Linux: `measures.rs`.

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

//! The benchmark of the sandbox: `measures.rs`, on Linux.

#[cfg(target_os = "linux")]
#[path = "measures.rs"]
mod measures;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    measures::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("skipped: the sandbox requires Linux");
}

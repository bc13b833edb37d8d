//! Links the program at a fixed address on Linux.
//!
//! A position-independent executable relocates some 100,000 pointers at each start (most of them from uv and wasmtime)
//! on 400 pages, which are copied for that: a tenth of the time of a short run. The addresses that an attacker would
//! have to guess remain random: those of stacks, heaps, the guest's memory, compiled code and the system's libraries.
//! None of them is visible to the guest.

fn main() {
    let target = |property: &str| std::env::var(format!("CARGO_CFG_TARGET_{property}")).unwrap_or_default();
    println!("cargo::rerun-if-changed=build.rs");
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

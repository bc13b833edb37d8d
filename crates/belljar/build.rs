//! Links the program at a fixed address on Linux.
//!
//! A program that can be loaded anywhere has some 100,000 pointers to correct each time it starts (uv and wasmtime bring most),
//! on 400 pages that are copied for that: a tenth of the time of a short run. What an attacker would have to guess is elsewhere:
//! stacks, heaps, the guest's memory, compiled code and the system's libraries lie at random addresses all the same, and the
//! guest is told none.

fn main() {
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    println!("cargo::rerun-if-changed=build.rs");
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

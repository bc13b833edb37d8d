//! Links the program at a fixed address on Linux.
//!
//! A position-independent executable relocates some 100,000 pointers at each start (most of them from uv and wasmtime)
//! on 400 pages, which are copied for that: a tenth of the time of a short run. The addresses that an attacker would
//! have to guess remain random: those of stacks, heaps, the guest's memory, compiled code and the system's libraries.
//! None of them is visible to the guest.
//!
//! Release builds for x86-64 fold functions with the same machine code, and equal constants: lld, which rustc brings
//! for this target, can do that. Rust makes no promise on the addresses of functions, constants and vtables. Statics
//! that can be modified are not folded. No code in the program is known to tell other statics, or functions of C
//! libraries, apart by their addresses alone.

fn main() {
    let target = |property: &str| std::env::var(format!("CARGO_CFG_TARGET_{property}")).unwrap_or_default();
    println!("cargo::rerun-if-changed=build.rs");
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
        if target("ARCH") == "x86_64" && std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
            println!("cargo::rustc-link-arg-bins=-Wl,--icf=all,--ignore-data-address-equality,-O2");
        }
    }
}

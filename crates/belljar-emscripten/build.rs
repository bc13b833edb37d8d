//! Passes the target's name to the crate: code for other machines of the same platform is compiled for it by name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=BELLJAR_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}

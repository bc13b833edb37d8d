//! Folds equal functions and constants in released extension modules for x86-64, as `crates/belljar/build.rs` does for
//! the program.

fn main() {
    let target = |property: &str| std::env::var(format!("CARGO_CFG_TARGET_{property}")).unwrap_or_default();
    println!("cargo::rerun-if-changed=build.rs");
    let has_lld = target("OS") == "linux" && target("ENV") == "gnu" && target("ARCH") == "x86_64";
    if has_lld && std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-cdylib=-Wl,--icf=all,--ignore-data-address-equality,-O2");
    }
}

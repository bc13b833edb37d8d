//! The Python wheel, built as for a release (but not optimised), installed and run.

use std::process::Command;

#[test]
fn the_wheel_is_built_installed_and_runs_python() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("wheel").output().unwrap();
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{told}");
    assert!(said.contains("belljar-") && said.contains(".whl") && said.contains("<status>success</status>"), "{said}");
}

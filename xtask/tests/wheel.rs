//! The Python wheel, built as for a release (but not optimised), installed without a network, and tested by pytest.

use std::process::Command;

#[test]
fn wheel_is_built_installed_and_passes_its_tests() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("wheel").output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    for part in ["belljar-", ".whl", ".tar.gz", " passed"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}

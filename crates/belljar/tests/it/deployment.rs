//! The files of `deploy`, by their own tools and by the program whose options they use.

use std::path::Path;
use std::process::Command;

use belljar_testing::install::run;

use crate::harness::python_with;

#[test]
fn manifests_are_valid_and_name_known_options() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python_with("deployment", &["kubernetes-validate==1.37.0", "PyYAML==6.0.3"]));
    command.arg(root.join("tests/deployment/check.py")).arg(env!("CARGO_BIN_EXE_belljar"));
    run(command.arg(root.join("../../deploy")));
}

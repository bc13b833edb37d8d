//! The console's modules that need no page, by their tests for node's test runner.

use std::path::Path;
use std::process::Command;

belljar_testing::trials! {
    modules_without_a_page_pass_their_tests: [Node],
}

const TESTS: &str = include_str!("../console/modules.test.js");

fn modules_without_a_page_pass_their_tests() {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../belljar-server/src/console/assets");
    let directory = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(modules).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "js") {
            std::fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    // Without it, node takes files of this name for CommonJS.
    std::fs::write(directory.path().join("package.json"), r#"{ "type": "module" }"#).unwrap();
    std::fs::write(directory.path().join("modules.test.js"), TESTS).unwrap();
    let arguments = ["--test", "--test-reporter=tap", "modules.test.js"];
    let output = Command::new(belljar_testing::node()).args(arguments).current_dir(directory.path()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    // A file without tests would pass as well.
    assert!(shown.contains("ok 1 - durations have no part that fills the next unit"), "{shown}");
}

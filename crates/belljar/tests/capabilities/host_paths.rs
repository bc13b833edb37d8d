//! Paths that code in native kernels sees: they do not name the user of this machine.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::native_calls::ENVIRONMENTS;
use crate::harness::Belljar;
use crate::wire::{Wire, text};

belljar_testing::trials! {
    host_paths_do_not_show_in_native_sessions: [NativeSandbox],
}

/// Returns the directories of the environment and of the Python that it was created from.
fn host_paths() -> Vec<String> {
    let current = std::fs::read_to_string(ENVIRONMENTS.join("environment.json")).unwrap();
    let current: Value = serde_json::from_str(&current).unwrap();
    let environment = PathBuf::from(current["directory"].as_str().unwrap());
    let settings = std::fs::read_to_string(environment.join("pyvenv.cfg")).unwrap();
    let home = settings.lines().find_map(|line| line.strip_prefix("home = ")).unwrap();
    let base = Path::new(home).parent().unwrap();
    let paths = [environment.as_path(), base].into_iter().filter(|path| !path.starts_with("/usr"));
    paths.map(|path| path.display().to_string()).collect()
}

fn host_paths_do_not_show_in_native_sessions() {
    let server = ["stdio", "--sandbox", "native", "--toolset", "interpreter", "--tracebacks", "full", "--native-dir"];
    let mut wire = Wire::spawn(Belljar::without_cache().args(server).arg(&*ENVIRONMENTS).into_command());
    wire.initialize();
    let paths = host_paths();
    let mut run = |code: &str| {
        let answer = text(&wire.tool("execute_code", json!({ "code": code })));
        for path in &paths {
            assert!(!answer.contains(path), "{code}: {path}: {answer}");
        }
        answer
    };
    // The modules of the zygote, modules that the kernel imports, and processes that it starts.
    let python = "import sys, os, sysconfig\nprint(sys.path, sys.prefix, sys.base_prefix, sys.exec_prefix, sys.executable)\n\
                  print(dict(os.environ), sysconfig.get_paths(), os.__file__)\n";
    let shown = run(&format!(
        "{python}import numpy, pandas, wave, nbformat\n\
         print(numpy.__file__, pandas.concat.__code__.co_filename, wave.__file__, nbformat.__file__)\n\
         !which python\n\
         import subprocess\nprint(subprocess.run(['python', '-c', {python:?}], capture_output=True, text=True).stdout)"
    ));
    assert!(shown.contains("/env/bin/python") && shown.contains("\"success\":true"), "{shown}");
    let error = run("import pandas\npandas.read_csv('none.csv')");
    assert!(error.contains("/env/lib/python3") && error.contains("handle = open("), "{error}");
    let installed = run("%pip install cowsay\nimport cowsay\ncowsay.__file__");
    assert!(installed.contains("/site/cowsay/") && installed.contains("\"success\":true"), "{installed}");
    // Scripts name the environment by its own path in their first line.
    let script = run("!numpy-config --version\nimport numpy\nprint('is', numpy.__version__)");
    assert!(script.contains("\"success\":true") && !script.contains("not found"), "{script}");
}

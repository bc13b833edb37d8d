//! Installations of packages: their packages, outcome, duration and error.

use serde_json::{Value, json};

use super::{Log, end, serve};
use crate::wheels::Wheels;

#[test]
fn installations_are_recorded_with_names_versions_and_durations() {
    let wheels = Wheels::new().with("belljar_made_delta", "1.5", &[("belljar_made_delta.py", "")]).with(
        "belljar_made_echo",
        "2.0",
        &[("belljar_made_echo.py", "")],
    );
    let log = Log::new();
    let mut wire = serve(&log, &["--toolset", "all", "--find-links", wheels.path()]);
    wire.run("import belljar_made_delta");
    // By the code itself.
    wire.tool("execute_code", json!({ "code": "%pip install belljar-made-echo" }));
    // A worker process gets these before the code runs.
    wire.run("import os\nos.system('pip install belljar-made-echo')");
    end(wire);
    log.assert_intact();
    let installs = log.of("install");
    let names: Vec<_> = installs.iter().map(|install| install["name"].as_str().unwrap()).collect();
    let echo = "belljar-made-echo 2.0";
    assert_eq!(names, ["belljar-made-delta 1.5", echo, echo], "{}", log.text());
    let runs = log.of("run.end");
    assert_eq!((&installs[0]["run"], &installs[2]["run"]), (&runs[0]["run"], &runs[1]["run"]));
    assert_eq!(installs[1]["run"], log.one("cell.end")["run"]);
    for install in &installs {
        assert_eq!((&install["outcome"], &install["error"]), (&json!("success"), &Value::Null), "{install}");
        assert!(install["duration_ms"].as_f64().unwrap() > 0.0, "{install}");
    }
}

in_both_isolations! { installations_that_fail_are_recorded_with_the_reason }

fn installations_that_fail_are_recorded_with_the_reason(isolation: &str) {
    let log = Log::new();
    let denied = "--deny-packages=belljar-made-golf";
    let mut wire = serve(&log, &["--toolset", "all", "--isolation", isolation, "--offline", denied]);
    wire.run("import belljar_made_golf");
    wire.run("import os\nos.system('pip install belljar-made-golf')");
    for code in ["import belljar_made_golf", "%pip install belljar-made-golf"] {
        wire.tool("execute_code", json!({ "code": code }));
    }
    end(wire);
    log.assert_intact();
    let installs = log.of("install");
    let runs: Vec<Value> = installs.iter().map(|install| install["run"].clone()).collect();
    let expected = [log.of("run.end"), log.of("cell.end")].concat();
    assert_eq!(runs, expected.iter().map(|end| end["run"].clone()).collect::<Vec<_>>(), "{}", log.text());
    for install in &installs {
        let (name, outcome) = (&install["name"], &install["outcome"]);
        assert_eq!((name, outcome), (&json!("belljar-made-golf"), &json!("failed")), "{install}");
        let error = install["error"].as_str().unwrap();
        assert!(error.contains("is not allowed") && !error.contains('\n'), "{install}");
        assert!(install["duration_ms"].is_number(), "{install}");
    }
}

#[test]
fn packages_that_are_left_to_the_code_are_recorded_as_not_installed() {
    let log = Log::new();
    let mut wire = serve(&log, &["--no-install"]);
    wire.run("import belljar_made_golf");
    end(wire);
    log.assert_intact();
    let install = log.one("install");
    let (name, outcome) = (&install["name"], &install["outcome"]);
    assert_eq!((name, outcome), (&json!("belljar-made-golf"), &json!("failed")), "{install}");
    assert!(install["error"].as_str().unwrap().contains("installing is disabled"), "{install}");
    assert_eq!(install["run"], log.one("run.end")["run"]);
}

#[test]
fn failed_installations_of_a_run_are_bounded() {
    let log = Log::new();
    let mut wire = serve(&log, &["--offline", "--deny-packages=belljar-made-golf"]);
    let install = "import os\nfor _ in range(120):\n    os.system('pip install belljar-made-golf')";
    // Those of another run are counted by themselves.
    (0..2).for_each(|_| drop(wire.run(install)));
    end(wire);
    log.assert_intact();
    assert_eq!(log.of("install").len(), 200);
}

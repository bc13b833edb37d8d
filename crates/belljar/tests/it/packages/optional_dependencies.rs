//! Packages that other packages import only for some of their functions.

use serde_json::{Value, json};

use crate::harness::{Belljar, Run};
use crate::wheels::Wheels;
use crate::wire::Wire;

fn run(code: &str) -> Run {
    Wheels::with_optional_dependency().run(&[], code)
}

#[test]
fn program_that_lacks_a_package_is_run_again_with_it() {
    let run = run("import tables\nprint(tables.export())");
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "exported\n"), "{run:?}");
    let notes = "installed tables 1.0\ninstalled sheets 1.0, and started the program again\n";
    assert_eq!(run.stderr, notes);
    let (json, status) =
        Wheels::with_optional_dependency().belljar().args(["--json", "-c", "import tables\ntables.export()"]).json();
    assert_eq!((status, &json["value"]), (Some(0), &json!("exported")), "{json}");
    assert_eq!(json["installed"], "sheets 1.0, tables 1.0");
}

#[test]
fn effects_are_not_repeated() {
    let run = run("import tables, sys\nprint('begun')\ntables.export()");
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), "begun\n"), "{run:?}");
    let hint = "hint: --deps sheets installs sheets ahead of time, and so does `import sheets` in the program\n";
    assert!(run.stderr.ends_with(&format!("ImportError: tables needs sheets\n{hint}")), "{run:?}");
    // Reading input, and a folder of this machine that the code can write to.
    let wheels = Wheels::with_optional_dependency();
    let read = wheels.belljar().args(["-c", "import tables\nline = input()\ntables.export()"]).input("x\n").run();
    assert!(read.status == Some(1) && read.stderr.ends_with(hint), "{read:?}");
    let folder = tempfile::tempdir().unwrap();
    let mount = format!("{}:/out:rw", folder.path().display());
    let code = "import tables\nopen('/out/log', 'a').write('x')\ntables.export()";
    let written = wheels.run(&["--mount", &mount], code);
    assert!(written.status == Some(1) && written.stderr.ends_with(hint), "{written:?}");
    assert_eq!(std::fs::read_to_string(folder.path().join("log")).unwrap(), "x");
}

#[test]
fn package_that_cannot_be_installed_is_named() {
    let unknown = run("import tables\ntables.convert()");
    assert_eq!(unknown.status, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("\nhint: no_such_package_at_all cannot be installed: "), "{unknown:?}");
    let wheels = Wheels::with_optional_dependency();
    let denied = wheels.run(&["--deny-packages", "sheets"], "import tables\ntables.export()");
    assert!(denied.stderr.contains("\nhint: sheets cannot be installed: "), "{denied:?}");
    let declared = "# /// script\n# dependencies = [\"tables\"]\n# ///\nimport tables\ntables.export()";
    let declared = wheels.run(&[], declared);
    let hint = "hint: add sheets, which provides sheets, to the dependencies of the `# /// script` block\n";
    assert!(declared.status == Some(1) && declared.stderr.ends_with(hint), "{declared:?}");
}

#[test]
fn errors_that_are_not_about_a_package_are_left_alone() {
    for code in [
        "raise ImportError('sheets')",
        "raise ModuleNotFoundError('No module named sheets', name='not a name')",
        "raise ModuleNotFoundError('x', name='os')",
        "import tables\nimport tables.inner",
        "import tables\nfrom tables import nothing",
        "try:\n    import_missing = __import__('sheets')\nexcept ImportError:\n    raise ValueError",
    ] {
        let run = run(code);
        assert!(run.status == Some(1) && !run.stderr.contains("hint:"), "{code}: {run:?}");
        assert!(!run.stderr.contains("started the program again"), "{code}: {run:?}");
    }
}

#[test]
fn time_of_all_attempts_is_limited_together() {
    let wheels = Wheels::with_optional_dependency();
    let code = "import tables, time\ntime.sleep(1.5)\ntables.export()\ntime.sleep(1.5)";
    assert_eq!(wheels.run(&["--timeout", "4"], code).status, Some(124));
    assert_eq!(wheels.run(&["--timeout", "60"], code).status, Some(0));
}

#[test]
fn calls_and_sessions_of_a_server_get_optional_dependencies() {
    let wheels = Wheels::with_optional_dependency();
    let command = Belljar::new()
        .env("UV_NO_INDEX", "1")
        .args(["stdio", "--toolset", "all", "--find-links", wheels.path()])
        .into_command();
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let mut call = |code: &str| {
        let result = wire.tool("run_python_code", json!({ "python_code": code }));
        result["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let text = call("import tables\ntables.export()");
    assert!(
        text.contains("exported") && text.contains(r#"<dependencies>["tables","sheets"]</dependencies>"#),
        "{text}"
    );
    let text = call("import tables\nprint('begun')\ntables.export()");
    assert!(text.contains("hint: add `import sheets` at the top of the code, so that sheets is installed"), "{text}");

    let first = wire.tool("execute_code", json!({ "code": "import tables\nx = 'begun'\ntables.export()" }));
    let answer: Value = serde_json::from_str(first["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(answer["success"], false, "{answer:#}");
    assert!(
        answer.to_string().contains("[installed sheets 1.0, which provides sheets: run the cell again]"),
        "{answer:#}"
    );
    let session = &answer["session_info"]["session_id"];
    let again = wire.tool("execute_code", json!({ "code": "x, tables.export()", "session_id": session }));
    assert!(again.to_string().contains("('begun', 'exported')"), "{again:#}");
}

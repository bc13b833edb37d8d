//! Installed packages: declared by the code, imported by it, added by the command line.

use crate::harness::Belljar;
use crate::wheels::Wheels;

fn wheels() -> Wheels {
    Wheels::new()
        .with("alpha", "1.0", &[("alpha/__init__.py", "version = 1")])
        .with("alpha", "2.0", &[("alpha/__init__.py", "version = 2")])
        .with("beta", "1.0", &[("beta.py", "name = 'beta'")])
}

#[test]
fn imported_packages_are_installed_and_others_are_added_by_options() {
    let wheels = wheels();
    let run = wheels.run(&[], "import alpha; print(alpha.version)");
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "2\n"), "{run:?}");
    let run = wheels.run(&["--deps", "beta,alpha<2"], "print(__import__('alpha').version, __import__('beta').name)");
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1 beta\n"), "{run:?}");
}

#[test]
fn files_name_requirements_and_constraints() {
    let wheels = wheels();
    let file = |name: &str, text: &str| {
        let path = std::path::Path::new(wheels.path()).join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let requirements = file("requirements.txt", "# what it needs\nbeta  # the second\n");
    let constraints = file("constraints.txt", "alpha<2\n");
    let options = ["--requirements", &requirements, "--constraints", &constraints];
    let run = wheels.run(&options, "import alpha; print(alpha.version, __import__('beta').name)");
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1 beta\n"), "{run:?}");
}

#[test]
fn script_block_declares_requirements() {
    let code = "# /// script\n# dependencies = ['alpha==1.0']\n# ///\nimport alpha\nprint(alpha.version)";
    let run = wheels().run(&[], code);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1\n"), "{run:?}");
}

#[test]
fn script_for_another_python_is_refused() {
    let code = "# /// script\n# requires-python = '<3.10'\n# ///\nprint('begun')";
    let (json, status) = Belljar::new().args(["run", "--json", "-c", code]).json();
    assert_eq!((json["status"].as_str(), status), (Some("install-error"), Some(126)), "{json}");
    assert!(json["reason"].as_str().unwrap().contains("requires Python <3.10"), "{json}");
}

#[test]
fn code_without_packages_makes_no_requests() {
    // The address and the directory do not exist.
    let options = ["--index-url", "http://192.0.2.1/simple", "--find-links", "/nowhere"];
    let run = Belljar::new().args(["run"]).args(options).args(["-c", "import json, sys; print(json.dumps(1))"]).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1\n"), "{run:?}");
}

#[test]
fn installed_packages_are_named_with_their_versions() {
    let wheels = Wheels::with_dependency();
    let run = wheels.run(&[], "import gamma");
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), "installed gamma 1.0 and 1 dependency\n"), "{run:?}");
    let quiet = wheels.belljar().args(["-q", "-c", "import gamma"]).run();
    assert_eq!((quiet.status, quiet.stderr.as_str()), (Some(0), ""), "{quiet:?}");
    let (json, _) = wheels.belljar().args(["--json", "-c", "import gamma"]).json();
    assert_eq!(json["installed"], "gamma 1.0 and 1 dependency", "{json}");
    let (json, _) = wheels.belljar().args(["--json", "-c", "import json"]).json();
    assert_eq!(json.get("installed"), None, "{json}");
}

//! Packages that cannot be installed: an outcome of its own, with a message to act on.

use crate::harness::Belljar;
use crate::wheels::Wheels;

/// Runs code that must not start, and returns the reason from `--json`.
fn reason(options: &[&str], code: &str) -> String {
    let (json, status) = Belljar::new().args(["run", "--json"]).args(options).args(["-c", code]).json();
    assert_eq!((json["status"].as_str(), status), (Some("install-error"), Some(126)), "{code}: {json}");
    json["reason"].as_str().unwrap().to_owned()
}

#[test]
fn a_package_that_does_not_exist_is_named() {
    let reason = reason(&["--deps", "belljar-has-no-such-package-anywhere"], "1");
    assert!(reason.contains("belljar-has-no-such-package-anywhere"), "{reason}");
}

#[test]
fn module_without_a_package_may_be_created_by_the_code() {
    let code =
        "open('belljar_made_here.py', 'w').write('x = 6 * 7')\nimport belljar_made_here\nprint(belljar_made_here.x)";
    let run = Belljar::run_with(["-c", code]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "42\n"), "{run:?}");
    // If the code does not create the module, its import fails with the reason.
    let run = Belljar::run_with(["-c", "print('begun')\nimport belljar_made_nowhere.part"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), "begun\n"), "{run:?}");
    let error = "ModuleNotFoundError: No module named 'belljar_made_nowhere'\nbelljar-made-nowhere: the package index has no package";
    assert!(run.stderr.contains(error), "{run:?}");
}

#[test]
fn no_install_leaves_imports_to_the_code() {
    let code = "open('rich.py', 'w').write('x = 1')\nimport rich\nprint(rich.x)\nimport numpy";
    let run = Belljar::run_with(["--no-install", "-c", code]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), "1\n"), "{run:?}");
    assert!(run.stderr.contains("No module named 'numpy'\nfailed to install numpy: installing is disabled"), "{run:?}");
}

#[test]
fn package_without_a_matching_wheel_is_reported() {
    let reason = reason(&["--deps", "psycopg2"], "1");
    assert!(reason.contains("psycopg2") && reason.contains("wheel"), "{reason}");
}

#[test]
fn policies_apply_to_imported_packages() {
    assert!(reason(&["--deny-packages", "rich"], "import rich").contains("`rich` is denied"));
    assert!(reason(&["--allow-packages", "pydantic*"], "import rich").contains("only pydantic* are allowed"));
    assert!(reason(&["--no-install", "--deps", "rich"], "1").contains("--no-install"));
}

#[test]
fn addresses_in_code_are_refused() {
    for dependency in ["rich @ https://192.0.2.1/rich.whl", "file:///tmp/x.whl", "git+https://192.0.2.1/x"] {
        let reason = reason(&[], &format!("# /// script\n# dependencies = [\"{dependency}\"]\n# ///\n"));
        assert!(reason.contains("is refused"), "{dependency}: {reason}");
    }
}

#[test]
fn install_error_is_printed_and_the_code_does_not_run() {
    let run = Belljar::new().args(["run", "--no-install", "--deps", "rich", "-c", "print('begun')"]).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(126), ""), "{run:?}");
    assert!(run.stderr.starts_with("belljar: ") && run.stderr.contains("\nhint: "), "{run:?}");
}

#[test]
fn invalid_package_options_are_reported_first() {
    for (options, part) in [
        (["--deps", "rich @ https://192.0.2.1/x.whl"], "--deps"),
        (["--requirements", "/nowhere/requirements.txt"], "/nowhere/requirements.txt"),
    ] {
        let run = Belljar::new().args(["run"]).args(options).args(["-c", "print('begun')"]).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains(part), "{run:?}");
    }
}

#[test]
fn name_like_a_well_known_one_is_not_installed_for_an_import() {
    let code = "print('begun')\nimport sklearn2";
    let run = Belljar::run_with(["-c", code]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), "begun\n"), "{run:?}");
    let error = "No module named 'sklearn2'\nsklearn2: not installed for an import alone, since its name resembles \
                 sklearn\nhint: did you mean sklearn? ";
    assert!(run.stderr.contains(error), "{run:?}");
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script.py");
    std::fs::write(&script, code).unwrap();
    let run = Belljar::new().args(["packages", "lock"]).arg(&script).run();
    assert!(run.status == Some(2) && run.stderr.contains("its name resembles sklearn"), "{run:?}");
}

#[test]
fn import_of_tools_without_servers_is_explained() {
    let run = Belljar::run_with(["-c", "from tools import github"]);
    assert_eq!(run.status, Some(1), "{run:?}");
    let hint = "\nhint: the module tools has the tools of MCP servers, and no servers are configured here; ";
    assert!(run.stderr.contains(hint) && !run.stderr.contains("did you mean"), "{run:?}");
}

/// Creates an index with one wheel.
fn index_of(wheels: &Wheels, name: &str, version: &str) -> tempfile::TempDir {
    let index = tempfile::tempdir().unwrap();
    let page = index.path().join(name.replace('_', "-"));
    std::fs::create_dir(&page).unwrap();
    let wheel = format!("{name}-{version}-py3-none-any.whl");
    std::fs::copy(std::path::Path::new(wheels.path()).join(&wheel), page.join(&wheel)).unwrap();
    std::fs::write(page.join("index.html"), format!("<a href=\"{wheel}\">{wheel}</a>")).unwrap();
    index
}

/// A name that an organisation uses in an index of its own may be taken in the public index, with a higher version.
#[test]
fn package_of_an_extra_index_is_not_replaced_by_that_of_the_main_index() {
    let name = "belljar_made_internal";
    let wheels = ["1.0", "99.0"].map(|version| {
        let module = format!("version = '{version}'");
        Wheels::new().with(name, version, &[("belljar_made_internal.py", &module)])
    });
    let (own, public) = (index_of(&wheels[0], name, "1.0"), index_of(&wheels[1], name, "99.0"));
    let [own, public] = [&own, &public].map(|index| format!("file://{}", index.path().display()));
    let import = format!("import {name}\nprint({name}.version)");
    let indexes = ["--index-url", &public, "--extra-index-url", &own];
    let declared = |requirement: &str| format!("# /// script\n# dependencies = ['{requirement}']\n# ///\n{import}");
    for code in [import.clone(), declared("belljar-made-internal"), declared("belljar_made.internal>=1")] {
        let run = Belljar::new().arg("run").args(indexes).args(["-c", &code]).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1.0\n"), "{code}: {run:?}");
    }
    // A version that only the public index has is not taken from there.
    let reason = reason(&indexes, &declared("belljar-made-internal>=2"));
    assert!(reason.contains("belljar-made-internal"), "{reason}");
    // The options of code do not choose the index.
    let code = format!(
        "# /// script\n# dependencies = ['belljar-made-internal']\n# [tool.uv]\n\
                        # index-url = '{public}'\n# index = [{{ url = '{public}' }}]\n# ///\n{import}"
    );
    let run = Belljar::new().args(["run", "--index-url", &own, "-c", &code]).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1.0\n"), "{run:?}");
}

#[test]
fn name_like_a_well_known_one_is_installed_if_it_is_declared_or_allowed() {
    let wheels = Wheels::new().with("sklearn2", "1.0", &[("sklearn2.py", "name = 'declared'")]);
    let index = index_of(&wheels, "sklearn2", "1.0");
    let index = format!("file://{}", index.path().display());
    let import = "import sklearn2\nprint(sklearn2.name)";
    let block = format!("# /// script\n# dependencies = ['sklearn2']\n# ///\n{import}");
    for (options, code) in [
        (&["--index-url", &index, "--deps", "sklearn2"][..], import),
        (&["--index-url", &index, "--allow-packages", "sklearn*"], import),
        (&["--index-url", &index], &block),
        // A directory of wheels is the operator's choice.
        (&["--index-url", &index, "--find-links", wheels.path()], import),
    ] {
        let run = Belljar::new().arg("run").args(options).args(["-c", code]).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), "declared\n"), "{options:?}: {run:?}");
        assert_eq!(run.stderr, "installed sklearn2 1.0\n");
    }
    let run = Belljar::new().args(["run", "--index-url", &index, "-c", import]).run();
    assert!(run.status == Some(1) && run.stderr.contains("its name resembles sklearn"), "{run:?}");
}

#[test]
fn installation_error_names_the_package_without_a_wheel_and_is_short() {
    let reason = reason(&[], "import torch, tensorflow, spacy");
    assert!(reason.len() < 2048 && reason.contains("no wheel for this platform"), "{reason}");
    assert!(
        reason.contains("\nhint: use another package") && reason.contains("native kernels can install"),
        "{reason}"
    );
}

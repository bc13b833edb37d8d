//! Modules in the folder of a script or notebook: they are part of the program, and nothing else of it is visible.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Belljar, Run};
use crate::wheels::Wheels;

/// Returns a folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// Runs `main.py` of a folder, without any package.
fn run(folder: &Path) -> Run {
    Belljar::new().directory(folder).env("UV_NO_INDEX", "1").args(["run", "main.py"]).run()
}

#[test]
fn modules_in_the_scripts_folder_are_found_before_packages() {
    // The package index has packages of the names `helper` and `utils`.
    let folder = folder(&[
        (
            "main.py",
            "import helper, utils.text\nfrom utils import numbers\nprint(helper.name, utils.text.name, numbers.two)",
        ),
        ("helper.py", "import inner\nname = 'helper and ' + inner.name"),
        ("inner.py", "name = 'inner'"),
        ("utils/__init__.py", "from . import numbers"),
        ("utils/numbers.py", "from ._one import one\ntwo = one + one"),
        ("utils/_one.py", "one = 1"),
        ("utils/text.py", "name = 'text'"),
        ("unused.py", "1 / 0"),
    ]);
    let elsewhere = tempfile::tempdir().unwrap();
    let script = folder.path().join("main.py");
    for belljar in [
        Belljar::new().directory(folder.path()).args(["run", "main.py"]),
        Belljar::new().directory(elsewhere.path()).arg("run").arg(&script),
    ] {
        let run = belljar.run();
        let wanted = (Some(0), "helper and inner text 2\n", "");
        assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), wanted, "{run:?}");
    }
    let options = ["run", "-c", "import inner"];
    let run = Belljar::new().directory(folder.path()).env("UV_NO_INDEX", "1").args(options).run();
    assert!(run.stderr.contains("No module named 'inner'"), "{run:?}");
}

#[test]
fn nothing_else_of_the_folder_is_visible() {
    let folder = folder(&[
        (
            "main.py",
            "import os, pkg.used\nprint(sorted(os.listdir('.')), sorted(f for f in os.listdir('pkg') if f[0] != '_'))",
        ),
        ("pkg/used.py", ""),
        ("pkg/unused.py", ""),
        ("pkg/data.json", "{}"),
        ("secret.txt", "secret"),
        ("other.py", ""),
    ]);
    let run = run(folder.path());
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "['pkg'] ['used.py']\n"), "{run:?}");
}

#[test]
fn folder_without_init_is_a_package_only_for_the_modules_in_it() {
    let wheels = Wheels::new().with("alpha", "1.0", &[("alpha.py", "name = 'package'")]);
    let files = [("alpha/part.py", "name = 'part'"), ("json/part.py", "1 / 0")];
    for (code, out) in [
        ("import alpha\nprint(alpha.name)", "package\n"),
        ("from alpha import name\nprint(name)", "package\n"),
        ("import alpha.part\nprint(alpha.part.name)", "part\n"),
        ("from alpha import part\nprint(part.name)", "part\n"),
        ("import json\nprint(json.dumps([]))", "[]\n"),
    ] {
        let folder = folder(&files);
        std::fs::write(folder.path().join("main.py"), code).unwrap();
        let run = wheels.belljar().arg(folder.path().join("main.py")).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), out), "{code}: {run:?}");
    }
}

#[test]
fn packages_that_modules_of_the_folder_import_are_installed() {
    let wheels = Wheels::with_dependency();
    let folder = folder(&[
        ("main.py", "import helper\nprint(helper.gamma.beta.name)"),
        ("helper.py", "import gamma\ntry:\n    import helper_extra\nexcept ImportError:\n    pass"),
    ]);
    let run = wheels.belljar().arg(folder.path().join("main.py")).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "beta\n"), "{run:?}");
    assert_eq!(run.stderr, "installed gamma 1.0 and 1 dependency\n");
    let script = folder.path().join("main.py");
    let lock = Belljar::new().env("UV_NO_INDEX", "1").args(["packages", "lock", "--find-links", wheels.path()]);
    let lock = lock.arg(script).run();
    assert!(lock.status == Some(0) && lock.stdout.contains("name = \"gamma\""), "{lock:?}");
}

#[test]
fn error_in_a_module_names_its_file_and_line() {
    let folder = folder(&[
        ("main.py", "import helper\n\nhelper.fail()"),
        ("helper.py", "def fail():\n    return 1 / 0"),
        ("broken.py", "def ("),
        ("syntax.py", "import broken"),
    ]);
    let failed = run(folder.path());
    assert_eq!(failed.status, Some(1), "{failed:?}");
    for part in [
        "File \"main.py\", line 3, in <module>\n    helper.fail()\n",
        "File \"/home/helper.py\", line 2, in fail\n    return 1 / 0\n",
    ] {
        assert!(failed.stderr.contains(part), "{part}: {failed:?}");
    }
    let failed = Belljar::new().directory(folder.path()).args(["run", "syntax.py"]).run();
    assert!(
        failed.stderr.contains("File \"syntax.py\", line 1") && failed.stderr.contains("/home/broken.py"),
        "{failed:?}"
    );
}

#[cfg(unix)]
#[test]
fn links_that_leave_the_folder_are_not_followed() {
    let outside = folder(&[("secret.py", "x = 1"), ("package/__init__.py", "")]);
    let folder = folder(&[
        (
            "main.py",
            "for name in ('inside', 'helper', 'package'):\n    try:\n        print(__import__(name).x)\n    except ImportError as error:\n        print(error)\n\
                     def never():\n    import inside, helper, package",
        ),
        ("real.py", "x = 'real'"),
    ]);
    std::os::unix::fs::symlink("real.py", folder.path().join("inside.py")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret.py"), folder.path().join("helper.py")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("package"), folder.path().join("package")).unwrap();
    let run = run(folder.path());
    assert_eq!(run.stdout, "real\nNo module named 'helper'\nNo module named 'package'\n", "{run:?}");
    for path in ["helper.py", "package"] {
        assert!(run.stderr.contains(&format!("belljar: {path} is not copied into the sandbox")), "{run:?}");
    }
    // Python looks in the folder of the file itself if the script is a link.
    let links = tempfile::tempdir().unwrap();
    let link = links.path().join("link.py");
    std::fs::write(folder.path().join("other.py"), "import real\nprint(real.x)").unwrap();
    std::os::unix::fs::symlink(folder.path().join("other.py"), &link).unwrap();
    let run = Belljar::new().arg("run").arg(&link).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "real\n"), "{run:?}");
}

#[test]
fn number_and_size_of_modules_are_limited() {
    let folder = folder(&[("main.py", "import large"), ("large.py", "")]);
    let large = std::fs::File::create(folder.path().join("large.py")).unwrap();
    large.set_len(17 << 20).unwrap();
    let refused = run(folder.path());
    assert!(refused.status == Some(2) && refused.stderr.contains("more than 16 MiB of modules"), "{refused:?}");
    let mut imports = String::new();
    for number in 0..1001 {
        std::fs::write(folder.path().join(format!("m{number}.py")), "").unwrap();
        imports.push_str(&format!("import m{number}\n"));
    }
    std::fs::write(folder.path().join("main.py"), imports).unwrap();
    let refused = run(folder.path());
    assert!(refused.status == Some(2) && refused.stderr.contains("more than 1000 files of modules"), "{refused:?}");
}

#[test]
fn mounted_folder_takes_the_place_of_the_scripts_folder() {
    let mounted = folder(&[("helper.py", "name = 'mounted'")]);
    let folder = folder(&[("main.py", "import helper\nprint(helper.name)"), ("helper.py", "name = 'folder'")]);
    for (mode, written) in [("ro", false), ("rw", true)] {
        let mount = format!("{}:/home:{mode}", mounted.path().display());
        let script = folder.path().join("main.py");
        let run = Belljar::new().env("UV_NO_INDEX", "1").args(["run", "--mount", &mount]).arg(&script).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), "mounted\n"), "{written}: {run:?}");
        assert_eq!(std::fs::read_to_string(mounted.path().join("helper.py")).unwrap(), "name = 'mounted'");
    }
}

#[test]
fn notebooks_import_modules_of_their_folder() {
    let wheels = Wheels::new().with("belljar_made_delta", "1.0", &[("belljar_made_delta.py", "name = 'delta'")]);
    let folder = folder(&[
        ("helper.py", "from tools.sums import add\nimport belljar_made_delta as package"),
        ("tools/__init__.py", ""),
        ("tools/sums.py", "def add(a, b):\n    return a + b\ndef fail():\n    raise KeyError('x')"),
        ("secret.txt", ""),
    ]);
    let cell = |source: &str| json!({ "cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": null });
    let cells = [
        cell("import os\nimport helper\nprint(helper.add(20, 22), helper.package.name, os.path.exists('secret.txt'))"),
        cell("from tools import sums\nsums.fail()"),
    ];
    let notebook = json!({ "nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells });
    let path = folder.path().join("in.ipynb");
    std::fs::write(&path, notebook.to_string()).unwrap();
    // The image of sessions may have to be built, with packages of the index.
    let run = Belljar::new().args(["run", "--find-links", wheels.path()]).arg(&path).run();
    let ran: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
    assert_eq!(ran["cells"][0]["outputs"][0]["text"], json!(["42 delta False\n"]), "{ran}");
    assert_eq!(ran["cells"][1]["outputs"][0]["ename"], "KeyError", "{ran}");
    assert!(ran["cells"][1]["outputs"][0]["traceback"].to_string().contains("sums.py"), "{ran}");
}

#[cfg(unix)]
#[test]
fn script_in_a_pipe_has_no_folder() {
    let run =
        Belljar::new().args(["run", "--no-install", "/dev/stdin"]).input("import json\nprint(json.dumps(1))").run();
    assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "1\n", ""), "{run:?}");
}

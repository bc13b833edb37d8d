//! Tests of pip in a session: the guest requests, the host installs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar_core::{CellResult, CellStatus, Limits, Output, Stream};
use belljar_native::environment::Environment;
use belljar_native::{NativeBackend, NativeOptions, NativePackages, PackagePolicy};
use belljar_testing::Trial;

use crate::trials::harness::{PYTHON, Session, in_each_but_weak, options, strongest, text_of};

pub(crate) fn trials() -> Vec<Trial> {
    let policy = Trial::test("policy_refuses_packages_by_name", || {
        policy_refuses_packages_by_name();
        Ok(())
    });
    let bounded = Trial::test("oversized_packages_are_rolled_back", || {
        packages_are_bounded();
        Ok(())
    });
    let clock = Trial::test("installation_time_is_not_cell_time", || {
        installation_time_is_not_cell_time();
        Ok(())
    });
    let imported = Trial::test("imports_of_cells_are_installed", || {
        imports_of_cells_are_installed();
        Ok(())
    });
    let uninstalled = Trial::test("missing_module_is_explained", || {
        missing_module_is_explained();
        Ok(())
    });
    let once = Trial::test("imports_of_one_cell_have_one_time_limit", || {
        imports_have_one_time_limit();
        Ok(())
    });
    [
        in_each_but_weak("installed_package_can_be_imported", installed_and_imported),
        in_each_but_weak("pip_works_as_magic_command_and_module", all_forms),
        in_each_but_weak("urls_paths_and_indexes_are_refused", elsewhere_is_refused),
        in_each_but_weak("failures_of_pip_are_summarised", failures_are_summarised),
        vec![policy, bounded, clock, imported, uninstalled, once],
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn installed_and_imported(session: &mut Session) {
    assert!(session.error("import humanize").starts_with("ModuleNotFoundError"));
    let output = session.text("%pip install -q humanize==4.9.0");
    assert_eq!(output, "Successfully installed humanize==4.9.0\n");
    assert_eq!(session.text("import humanize\nhumanize.intcomma(1234567)"), "'1,234,567'");
    assert!(session.text("%pip install numpy").contains("already satisfied"));
    session.kernel.restart().unwrap();
    assert_eq!(session.text("import humanize\nhumanize.__version__"), "'4.9.0'");
}

/// An installation takes longer than the time limit of a cell.
fn installation_time_is_not_cell_time() {
    // Long enough for a cell that installs nothing, also on a busy machine.
    let limits = Limits { wall_time: Some(Duration::from_secs(5)), ..Limits::default() };
    let slow: Arc<PackagePolicy> = Arc::new(|_| {
        std::thread::sleep(Duration::from_secs(6));
        Ok(())
    });
    let packages = NativePackages { policy: Some(slow.clone()), ..NativePackages::default() };
    let native =
        NativeBackend::new(NativeOptions { packages: Some(packages), limits, ..options(strongest()) }).unwrap();
    let mut session = Session::new(&native);
    let executed = session.run("%pip install numpy");
    assert!(text_of(&executed).contains("already satisfied"), "{executed:?}");
    // The rest of the cell has the usual time.
    assert!(session.error("%pip install numpy\nimport time; time.sleep(30)").starts_with("TimeoutError"));

    let timeout = Duration::from_millis(1);
    let packages = NativePackages { policy: Some(slow), timeout, ..NativePackages::default() };
    let native = NativeBackend::new(NativeOptions { packages: Some(packages), ..options(strongest()) }).unwrap();
    assert!(Session::new(&native).error("%pip install numpy").contains("took longer than 0.001 s"));
}

/// Returns options with which imports are installed.
fn with_imports(packages: Option<NativePackages>) -> NativeOptions {
    let environment = PYTHON.parent().and_then(Path::parent).unwrap();
    let python_version = Environment::from_directory(environment).unwrap().python;
    NativeOptions { python_version, packages, ..options(strongest()) }
}

fn imports_of_cells_are_installed() {
    let native = NativeBackend::new(with_imports(Some(NativePackages::default()))).unwrap();
    let mut session = Session::new(&native);
    let executed = session.run("%matplotlib inline\nimport numpy, iniconfig\niniconfig.__name__");
    assert_eq!(executed.status, CellStatus::Ok, "{executed:?}");
    let Output::Text { stream: Stream::Stderr, text: note } = &executed.outputs[0] else { panic!("{executed:?}") };
    assert!(note.starts_with("[installed iniconfig ") && note.ends_with("]\n") && !note.contains("numpy"), "{note}");
    assert!(text_of(&executed).ends_with("'iniconfig'"), "{executed:?}");
    assert_eq!(*session.listener.written.lock().unwrap().first().unwrap(), (Stream::Stderr, note.clone()));
    // Nothing is installed again, and modules of the session are not looked for.
    session.kernel.write("mine.py", b"value = 5").unwrap();
    let executed = session.run("import iniconfig, mine\nmine.value");
    assert_eq!((text_of(&executed).as_str(), executed.outputs.len()), ("5", 1), "{executed:?}");
    // The cell chooses the version itself.
    let pinned = session.text("%pip install humanize==4.8.0\nimport humanize\nhumanize.__version__");
    assert!(pinned.starts_with("Successfully installed humanize==4.8.0\n") && pinned.ends_with("'4.8.0'"), "{pinned}");
    // A failed installation is explained where the module is missing, also in later cells, and nowhere else.
    let failed = "try:\n    pass\nfinally:\n    import belljar_no_such_module";
    for _ in 0..2 {
        let traceback = traceback(&session.run(failed));
        assert!(traceback.contains("\nbelljar_no_such_module cannot be installed: "), "{traceback}");
    }
    session.kernel.restart().unwrap();
    assert_eq!(session.text("import iniconfig\niniconfig.__name__"), "'iniconfig'");
}

fn traceback(executed: &CellResult) -> String {
    let CellStatus::Error(error) = &executed.status else { panic!("{executed:?}") };
    error.traceback.join("\n")
}

fn missing_module_is_explained() {
    let native = NativeBackend::new(with_imports(Some(NativePackages::default()))).unwrap();
    let mut session = Session::new(&native);
    // Libraries import optional dependencies in this way.
    let dynamic = "import importlib\nimportlib.import_module('cv2')";
    let hinted = traceback(&session.run(dynamic));
    assert!(hinted.contains("hint: `%pip install opencv-python` installs it"), "{hinted}");
    let native = NativeBackend::new(with_imports(None)).unwrap();
    let mut session = Session::new(&native);
    for code in [dynamic, "import cv2"] {
        let explained = traceback(&session.run(code));
        assert!(explained.contains("cv2 is not installed, and this session installs no packages"), "{explained}");
    }
    let other = traceback(&session.run("raise ModuleNotFoundError('No module named what')"));
    assert!(!other.contains("not installed"), "{other}");
}

fn imports_have_one_time_limit() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let slow: Arc<PackagePolicy> = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(6));
        Ok(())
    });
    // One package takes less by a margin that a busy machine keeps.
    let timeout = Duration::from_secs(10);
    let native = NativeBackend::new(with_imports(Some(NativePackages {
        policy: Some(slow),
        timeout,
        ..NativePackages::default()
    })))
    .unwrap();
    let explained = traceback(&Session::new(&native).run("import belljar_no_such_a, belljar_no_such_b"));
    assert!(
        explained.contains("belljar_no_such_a cannot be installed: the installation took longer than 10 s"),
        "{explained}"
    );
    // Both together, and then neither alone.
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

fn all_forms(session: &mut Session) {
    for (code, expected) in [
        ("!pip install humanize==4.9.0", "Successfully installed humanize==4.9.0"),
        ("!python -m pip list", "humanize"),
        ("!pip show humanize", "Version: 4.9.0"),
        ("!pip install", "ERROR: You must give at least one requirement"),
        ("!pip uninstall humanize", "ERROR: unknown command"),
    ] {
        let executed = session.run(code);
        assert_eq!(executed.status, CellStatus::Ok, "{code}: {executed:?}");
        assert!(text_of(&executed).contains(expected), "{code}: {executed:?}");
    }
    // A program fails by its exit status, and a magic by an error of the cell, which has its reason and nothing else.
    let executed = session.run("%pip uninstall humanize\nprint('on')");
    let traceback = traceback(&executed);
    assert!(traceback.starts_with("PipError: unknown command") && traceback.lines().count() == 1, "{traceback}");
    assert_eq!(text_of(&executed), "");
    assert_eq!(session.text("!python -c 'import humanize; print(humanize.__version__)'").trim(), "4.9.0");
}

fn elsewhere_is_refused(session: &mut Session) {
    for code in [
        "%pip install https://example.org/x-1-py3-none-any.whl",
        "%pip install git+https://example.org/x",
        "%pip install ./x",
        "%pip install --index-url https://example.org x",
        "%pip install -e .",
        "%pip install x.whl",
    ] {
        let error = session.error(code);
        assert!(error.starts_with("PipError: "), "{code}: {error}");
    }
    // The guest reads the requirements file, and the same rules apply.
    session.kernel.write("requirements.txt", b"--index-url https://example.org\nx\n").unwrap();
    assert!(session.error("%pip install -r requirements.txt").starts_with("PipError: "));
    // The host checks requests itself: the guest need not use pip.
    let code = "import os, socket\nhost = socket.socket(socket.AF_UNIX)\nhost.connect(os.environ['BELLJAR_BROKER'])\n\
                host.sendall(b'{\"install\": [\"--target=/ x\"]}\\n')\nprint(host.recv(10000))";
    assert!(session.text(code).contains("is not a requirement"));
    assert!(session.error("%pip install belljar-there-is-no-such-package").starts_with("PipError: "));
}

/// Checks that errors of the session's installer, uv or pip, are a sentence that names the package and the reason.
pub(crate) fn failures_are_summarised(session: &mut Session) {
    for (requirement, reason) in [
        ("belljar-there-is-no-such-package", "the package index has no package of this name"),
        ("humanize==0.0.0.1", "no version that can be installed matches"),
        // Its releases are sources.
        ("docopt==0.6.2", "has a wheel for this Python and machine"),
        // Hundreds of versions, of which pip prints a list and uv a proof.
        ("numpy<0.1", "numpy<0.1: no "),
        ("humanize==4.9.0 humanize==4.8.0", "conflict"),
    ] {
        let printed = session.error(&format!("%pip install {requirement}"));
        assert!(printed.starts_with("PipError: ") && printed.contains(reason), "{requirement}: {printed}");
        assert!(printed.len() < 2000 && printed.lines().count() < 4, "{requirement}: {printed}");
    }
}

fn packages_are_bounded() {
    let native = NativeBackend::new(NativeOptions { package_bytes: 200_000, ..options(strongest()) }).unwrap();
    let mut session = Session::new(&native);
    let listing = "import os\nsorted(os.listdir(os.environ['BELLJAR_SITE']))";
    assert_eq!(session.text("%pip install iniconfig==2.1.0"), "Successfully installed iniconfig==2.1.0\n");
    let before = session.text(listing);
    let refused = session.error("%pip install humanize==4.9.0");
    assert!(refused.contains("would take more than 200000 bytes"), "{refused}");
    assert_eq!(session.text(listing), before);
    assert!(session.error("import humanize").starts_with("ModuleNotFoundError"));
    assert_eq!(session.text("import iniconfig\niniconfig.__name__"), "'iniconfig'");
}

fn policy_refuses_packages_by_name() {
    let packages = NativePackages {
        policy: Some(Arc::new(|name| {
            if name == "humanize" { Err(format!("`{name}` is not allowed").into()) } else { Ok(()) }
        })),
        ..NativePackages::default()
    };
    let native = NativeBackend::new(NativeOptions { packages: Some(packages), ..options(strongest()) }).unwrap();
    assert!(Session::new(&native).error("%pip install Humanize").contains("`humanize` is not allowed"));
    let native = NativeBackend::new(NativeOptions { packages: None, ..options(strongest()) }).unwrap();
    assert!(Session::new(&native).error("%pip install humanize").contains("cannot be installed in this session"));
}

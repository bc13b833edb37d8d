//! pip in a session: asked inside, done by the host.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::Limits;
use belljar_core::kernel::End;
use belljar_jupyter::{Native, NativeOptions, NativePackages, PackagePolicy};
use libtest_mimic::Trial;

use crate::trials::harness::{Session, in_each_but_weak, options, strongest, text_of};

pub(crate) fn trials() -> Vec<Trial> {
    let policy = Trial::test("a_policy_refuses_packages_by_name", || {
        a_policy_refuses_packages_by_name();
        Ok(())
    });
    let bounded = Trial::test("packages_that_take_too_much_room_are_refused_and_leave_nothing", || {
        packages_are_bounded();
        Ok(())
    });
    let clock = Trial::test("installing_takes_no_time_of_the_cell", || {
        installing_takes_no_time_of_the_cell();
        Ok(())
    });
    [
        in_each_but_weak("a_package_is_installed_and_imported_at_once", installed_and_imported),
        in_each_but_weak("pip_is_there_in_all_its_forms", all_forms),
        in_each_but_weak("what_pip_would_fetch_from_elsewhere_is_refused", elsewhere_is_refused),
        vec![policy, bounded, clock],
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn installed_and_imported(session: &mut Session) {
    assert!(session.error("import humanize").starts_with("ModuleNotFoundError"));
    let said = session.text("%pip install -q humanize==4.9.0");
    assert_eq!(said, "Successfully installed humanize==4.9.0\n");
    assert_eq!(session.text("import humanize\nhumanize.intcomma(1234567)"), "'1,234,567'");
    assert!(session.text("%pip install numpy").contains("already satisfied"));
    session.kernel.restart().unwrap();
    assert_eq!(session.text("import humanize\nhumanize.__version__"), "'4.9.0'");
}

/// Has the clock of this session's cells stand while it installs.
fn installing_takes_no_time_of_the_cell() {
    let limits = Limits { wall_time: Some(Duration::from_secs(1)), ..Limits::default() };
    let slow: Arc<PackagePolicy> = Arc::new(|_| {
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    });
    let packages = NativePackages { policy: Some(slow.clone()), ..NativePackages::default() };
    let native = Native::new(NativeOptions { packages: Some(packages), limits, ..options(strongest()) }).unwrap();
    let mut session = Session::of(&native);
    let executed = session.run("%pip install numpy");
    assert!(text_of(&executed).contains("already satisfied"), "{executed:?}");
    // What is left of the cell has the time it had.
    assert!(session.error("%pip install numpy\nimport time; time.sleep(30)").starts_with("TimeoutError"));

    let timeout = Duration::from_millis(1);
    let packages = NativePackages { policy: Some(slow), timeout, ..NativePackages::default() };
    let native = Native::new(NativeOptions { packages: Some(packages), ..options(strongest()) }).unwrap();
    assert!(Session::of(&native).text("%pip install numpy").contains("longer than 0.001 s (--install-timeout)"));
}

fn all_forms(session: &mut Session) {
    for (code, expected) in [
        ("!pip install humanize==4.9.0", "Successfully installed humanize==4.9.0"),
        ("!python -m pip list", "humanize"),
        ("!pip show humanize", "Version: 4.9.0"),
        ("%pip install", "ERROR: You must give at least one requirement"),
        ("%pip uninstall humanize", "ERROR: unknown command"),
    ] {
        let executed = session.run(code);
        assert_eq!(executed.end, End::Success, "{code}: {executed:?}");
        assert!(text_of(&executed).contains(expected), "{code}: {executed:?}");
    }
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
        let executed = session.run(code);
        assert!(text_of(&executed).contains("ERROR: "), "{code}: {executed:?}");
    }
    // The file of requirements is read inside, and held to the same.
    session.kernel.write("requirements.txt", b"--index-url https://example.org\nx\n").unwrap();
    assert!(session.text("%pip install -r requirements.txt").contains("ERROR: "));
    // What speaks to the host without pip gets no further.
    let code = "import os, socket\nhost = socket.socket(socket.AF_UNIX)\nhost.connect(os.environ['BELLJAR_BROKER'])\n\
                host.sendall(b'{\"install\": [\"--target=/ x\"]}\\n')\nprint(host.recv(10000))";
    assert!(session.text(code).contains("is no requirement"));
    assert!(session.text("%pip install belljar-there-is-no-such-package").contains("ERROR: "));
}

fn packages_are_bounded() {
    let native = Native::new(NativeOptions { package_bytes: 200_000, ..options(strongest()) }).unwrap();
    let mut session = Session::of(&native);
    let listing = "import os\nsorted(os.listdir(os.environ['BELLJAR_SITE']))";
    assert_eq!(session.text("%pip install iniconfig==2.1.0"), "Successfully installed iniconfig==2.1.0\n");
    let before = session.text(listing);
    let refused = text_of(&session.run("%pip install humanize==4.9.0"));
    assert!(refused.contains("would take more than 200000 bytes"), "{refused}");
    assert!(refused.contains("native setup"), "{refused}");
    assert_eq!(session.text(listing), before);
    assert!(session.error("import humanize").starts_with("ModuleNotFoundError"));
    assert_eq!(session.text("import iniconfig\niniconfig.__name__"), "'iniconfig'");
}

fn a_policy_refuses_packages_by_name() {
    let packages = NativePackages {
        policy: Some(Arc::new(|name| {
            if name == "humanize" { Err(format!("`{name}` is not allowed (--deny-packages)")) } else { Ok(()) }
        })),
        ..NativePackages::default()
    };
    let native = Native::new(NativeOptions { packages: Some(packages), ..options(strongest()) }).unwrap();
    assert!(Session::of(&native).text("%pip install Humanize").contains("`humanize` is not allowed"));
    let native = Native::new(NativeOptions { packages: None, ..options(strongest()) }).unwrap();
    assert!(Session::of(&native).text("%pip install humanize").contains("cannot be installed in this session"));
}

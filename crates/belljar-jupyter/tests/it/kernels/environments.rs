//! Environments that uv makes, and sessions in them: uv is installed for this, from the package index.

use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_core::NoProgress;
use belljar_jupyter::environment::{Environment, Environments, Plan};
use belljar_jupyter::{Native, NativeOptions, NativePackages};
use libtest_mimic::Trial;

use crate::trials::harness::{PYTHON, Session, options, strongest, text_of};

/// The first argument of a process that is to make an environment, with uv on its path.
pub(crate) const PART: &str = "__environment";

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("an_environment_that_uv_makes_has_kernels_and_packages", || {
        uv_makes_an_environment();
        Ok(())
    })]
}

/// uv, in an environment of its own in the build folder. An error says why there is none.
fn uv() -> Result<PathBuf, String> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("belljar-jupyter/uv");
    let uv = directory.join("bin/uv");
    if uv.exists() {
        return Ok(uv);
    }
    let run = |command: &mut Command| {
        let output = command.output().map_err(|error| error.to_string())?;
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(words) }
    };
    run(Command::new(&*PYTHON).args(["-m", "venv"]).arg(&directory))?;
    run(Command::new(directory.join("bin/python")).args(["-m", "pip", "install", "--quiet", "uv"]))?;
    Ok(uv)
}

/// In a process of its own: makes an environment in this folder, and prints its Python.
#[expect(clippy::print_stdout, reason = "whoever started this reads it")]
pub(crate) fn make(folder: &str) {
    let environments = Environments::new(Some(folder.into())).unwrap();
    let plan = Plan { python: Some(PYTHON.display().to_string()), packages: vec!["ipykernel".into()] };
    let made = environments.set_up(&plan, &NoProgress).unwrap();
    assert_eq!(environments.current().unwrap(), made);
    println!("{}", made.interpreter().display());
}

fn uv_makes_an_environment() {
    let uv = match uv() {
        Ok(uv) => uv,
        Err(reason) => {
            eprintln!("SKIPPED: an_environment_that_uv_makes_has_kernels_and_packages: there is no uv: {reason}");
            return;
        }
    };
    let place = tempfile::tempdir().unwrap();
    let made = |path: String| {
        let mut command = Command::new("/proc/self/exe");
        let output = command.arg(PART).arg(place.path()).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    };
    let with_uv = format!("{}:{}", uv.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let python = made(with_uv.clone());
    let directory = python.parent().and_then(Path::parent).unwrap().to_owned();
    let configured = std::fs::read_to_string(directory.join("pyvenv.cfg")).unwrap();
    assert!(configured.contains("uv = "), "{configured}");
    // Again, and without any tool: nothing is made.
    let marked = || std::fs::metadata(directory.join("belljar.json")).unwrap().modified().unwrap();
    let before = marked();
    assert_eq!((made(with_uv), made("/nonexistent".into())), (python.clone(), python.clone()));
    assert_eq!(marked(), before);
    Environment::of_directory(&directory).unwrap();

    let packages = NativePackages { uv: Some(uv), ..NativePackages::default() };
    let options = NativeOptions { python, packages: Some(packages), ..options(strongest()) };
    let native = Native::new(options.clone()).unwrap();
    let mut session = Session::of(&native);
    assert!(session.error("import humanize").starts_with("ModuleNotFoundError"));
    assert_eq!(session.text("%pip install humanize==4.9.0"), "Successfully installed humanize==4.9.0\n");
    assert_eq!(session.text("import humanize\nhumanize.intcomma(1234567)"), "'1,234,567'");
    assert!(session.text("%pip install humanize==4.8.0").contains("humanize==4.8.0"));
    let listed = session.text("!pip list");
    assert!(listed.contains("ipykernel") && listed.contains("humanize"), "{listed}");
    drop(session);

    let native = Native::new(NativeOptions { package_bytes: 100_000, ..options }).unwrap();
    let mut session = Session::of(&native);
    let refused = text_of(&session.run("%pip install humanize==4.9.0"));
    assert!(refused.contains("would take more than 100000 bytes"), "{refused}");
    assert_eq!(session.text("import os\nos.listdir(os.environ['BELLJAR_SITE'])"), "[]");
}

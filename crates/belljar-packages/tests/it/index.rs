//! Resolving and fetching from the real index.

use belljar_core::progress::NoProgress;
use belljar_packages::{InstallError, Installed, Kind, Request, Requirement, Resolution};

use crate::support::{Bench, request};

fn names(resolution: &Resolution) -> Vec<&str> {
    resolution.pinned().iter().map(|pinned| pinned.name.as_str()).collect()
}

#[test]
fn pydantic_is_resolved_fetched_and_unpacked_with_its_compiled_core() {
    let bench = Bench::new();
    let (resolution, wheels) = bench.install(&["pydantic>=2"]).unwrap();
    assert_eq!(
        names(&resolution),
        ["annotated-types", "pydantic", "pydantic-core", "typing-extensions", "typing-inspection"]
    );
    let core = wheels.iter().find(|wheel| wheel.name == "pydantic-core").unwrap();
    assert!(core.filename.ends_with("-cp314-cp314-pyemscripten_2026_0_wasm32.whl"), "{}", core.filename);
    let unpacked = core.unpack().unwrap();
    assert_eq!(unpacked.top_level, ["pydantic_core"]);
    assert_eq!(unpacked.files.iter().filter(|file| file.is_library).count(), 1);
}

#[test]
fn many_real_wheels_pass_the_checks() {
    let bench = Bench::new();
    let wanted = [
        "rich<13",
        "email-validator",
        "msgpack",
        "jiter",
        "attrs",
        "sympy",
        "networkx",
        "beautifulsoup4",
        "jinja2",
        "httpx",
        "plotly",
        "tabulate",
        "python-dateutil",
        "tqdm",
        "typer",
        "pygments",
        "pyyaml",
    ];
    let (resolution, wheels) = bench.install(&wanted).unwrap();
    assert!(resolution.get("rich").unwrap().version.starts_with("12."));
    assert!(resolution.get("mpmath").is_some());
    for wheel in &wheels {
        let unpacked = wheel.unpack().unwrap_or_else(|error| panic!("{error}"));
        assert!(!unpacked.top_level.is_empty(), "{}", wheel.filename);
    }
    let bs4 = wheels.iter().find(|wheel| wheel.name == "beautifulsoup4").unwrap();
    assert_eq!(bs4.unpack().unwrap().top_level, ["bs4"]);
}

#[test]
fn extras_bring_what_they_name() {
    let bench = Bench::new();
    assert!(bench.resolve(&["pydantic"]).unwrap().get("email-validator").is_none());
    assert!(bench.resolve(&["pydantic[email]"]).unwrap().get("email-validator").is_some());
}

#[test]
fn markers_are_evaluated_for_the_guest() {
    let bench = Bench::new();
    let resolution = bench.resolve(&["six; sys_platform == 'emscripten'", "attrs; sys_platform == 'linux'"]).unwrap();
    assert_eq!(names(&resolution), ["six"]);
}

#[test]
fn a_package_that_does_not_exist_is_answered_with_names_that_do() {
    let error = Bench::new().resolve(&["beautiful-soup-4"]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, InstallError::Unknown { .. }), "{text}");
    assert!(text.contains("did you mean beautifulsoup4?"), "{text}");
}

#[test]
fn a_package_without_a_wheel_for_the_platform_is_answered_with_what_there_is() {
    let error = Bench::new().resolve(&["tensorflow"]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, InstallError::NoWheel { .. }), "{text}");
    for part in
        ["tensorflow: no wheel for this platform", "pyemscripten_2026_0_wasm32", "available versions: ", "Linux"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_package_with_a_source_distribution_only_is_never_built() {
    // Its versions are source distributions alone, and its setup.py would run code.
    let error = Bench::new().resolve(&["pyspark<4"]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("source"), "{text}");
}

#[test]
fn requirements_that_exclude_each_other_are_explained() {
    let error = Bench::new().resolve(&["rich<13", "rich>=13"]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, InstallError::Conflict { .. }), "{text}");
    assert!(text.contains("rich<13") && text.contains("rich>=13"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn optional_requirements_that_cannot_be_met_are_left_out() {
    let bench = Bench::new();
    let optional = ["tensorflow", "six"].map(|name| Requirement::parse(name).unwrap());
    let request = Request { optional: optional.to_vec(), ..request(&["attrs"]) };
    let resolution = bench.installer.resolve(&request, &NoProgress).unwrap();
    assert_eq!(names(&resolution), ["attrs", "six"]);
}

#[test]
fn what_is_installed_keeps_its_version() {
    let bench = Bench::new();
    let installed = vec![Installed { name: "attrs".into(), version: "24.2.0".into() }];
    let resolution = bench.installer.resolve(&Request { installed, ..request(&["attrs"]) }, &NoProgress).unwrap();
    assert_eq!(resolution.get("attrs").unwrap().version, "24.2.0");
}

#[test]
fn constraints_bind_and_do_not_install() {
    let bench = Bench::new();
    let constraints = ["attrs==24.2.0", "six==1.16.0"].map(|text| Requirement::parse(text).unwrap()).to_vec();
    let resolution = bench.installer.resolve(&Request { constraints, ..request(&["attrs"]) }, &NoProgress).unwrap();
    assert_eq!(names(&resolution), ["attrs"]);
    assert_eq!(resolution.get("attrs").unwrap().version, "24.2.0");
}

#[test]
fn files_newer_than_the_date_are_ignored() {
    let bench = Bench::with(|settings| settings.exclude_newer = Some("2023-06-01".into()));
    let version = bench.resolve(&["attrs"]).unwrap().get("attrs").unwrap().version.clone();
    assert_eq!(version, "23.1.0");
}

#[test]
fn a_hash_that_a_requirement_gives_must_be_the_files() {
    let bench = Bench::new();
    let line = format!("six==1.16.0 --hash=sha256:{}", "0".repeat(64));
    let request = Request { requirements: Requirement::parse_lines(&line).unwrap(), ..Request::default() };
    let error = bench.installer.resolve(&request, &NoProgress).unwrap_err();
    assert!(matches!(error, InstallError::HashMismatch { .. }), "{error}");
}

#[test]
fn offline_what_was_resolved_is_known_and_what_was_not_is_an_error_that_says_so() {
    let online = Bench::new();
    let (resolution, wheels) = online.install(&["six", "attrs"]).unwrap();
    let offline = Bench::with_cache(online.cache.path(), |settings| settings.offline = true);
    let (again, same) = offline.install(&["six", "attrs"]).unwrap();
    assert_eq!((again, same), (resolution, wheels));
    // The index's pages are there, so another question about the same packages can be answered too.
    assert_eq!(names(&offline.resolve(&["six>=1.15"]).unwrap()), ["six"]);
    let error = offline.resolve(&["networkx"]).unwrap_err();
    assert!(matches!(error, InstallError::Offline { .. }), "{error}");
    assert!(error.to_string().contains("offline"), "{error}");
}

#[test]
fn an_index_that_does_not_answer_is_a_network_error_that_names_it() {
    let bench = Bench::with(|settings| settings.index_url = Some("http://127.0.0.1:9/simple".into()));
    let error = bench.resolve(&["six"]).unwrap_err();
    assert!(matches!(error, InstallError::Network { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1:9"), "{error}");
}

#[test]
fn the_time_for_installing_is_bounded() {
    let bench = Bench::with(|settings| settings.timeout = std::time::Duration::ZERO);
    let error = bench.resolve(&["six"]).unwrap_err();
    assert!(matches!(error, InstallError::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("resolving six"), "{error}");
}

#[test]
fn packages_that_do_without_their_compiled_part_are_taken_without_it() {
    let bench = Bench::new();
    let (resolution, wheels) = bench.install(&["jinja2", "pyyaml"]).unwrap();
    for (name, module) in [("markupsafe", "_native.py"), ("pyyaml", "loader.py")] {
        assert_eq!(resolution.get(name).unwrap().kind, Kind::PythonOnly);
        let unpacked = wheels.iter().find(|wheel| wheel.name == name).unwrap().unpack().unwrap();
        assert!(unpacked.files.iter().any(|file| file.path.ends_with(module)), "{name}");
        assert!(!unpacked.files.iter().any(|file| file.path.ends_with(".so")), "{name}");
    }
}

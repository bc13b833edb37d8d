//! Tests of resolving and fetching with the real index.

use belljar_core::NoProgress;
use belljar_packages::{
    FileKind, GeneralHint as _, InstallError, InstalledPackage, PackageRequest, Requirement, Resolution,
};

use crate::support::{Fixture, request};

fn names(resolution: &Resolution) -> Vec<&str> {
    resolution.pinned().iter().map(|pinned| pinned.name.as_str()).collect()
}

#[test]
fn compiled_dependency_is_resolved_fetched_and_unpacked() {
    let fixture = Fixture::new();
    let (resolution, wheels) = fixture.install(&["pydantic>=2"]).unwrap();
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
    let fixture = Fixture::new();
    let requirements = [
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
    let (resolution, wheels) = fixture.install(&requirements).unwrap();
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
fn extras_add_their_dependencies() {
    let fixture = Fixture::new();
    assert!(fixture.resolve(&["pydantic"]).unwrap().get("email-validator").is_none());
    assert!(fixture.resolve(&["pydantic[email]"]).unwrap().get("email-validator").is_some());
}

#[test]
fn markers_are_evaluated_for_the_guest() {
    let fixture = Fixture::new();
    let resolution = fixture.resolve(&["six; sys_platform == 'emscripten'", "attrs; sys_platform == 'linux'"]).unwrap();
    assert_eq!(names(&resolution), ["six"]);
}

#[test]
fn unknown_package_error_suggests_existing_names() {
    let error = Fixture::new().resolve(&["beautiful-soup-4"]).unwrap_err();
    let text = error.with_general_hint();
    assert!(matches!(error, InstallError::UnknownPackage { .. }), "{text}");
    assert!(text.ends_with("\nhint: did you mean beautifulsoup4?"), "{text}");
}

#[test]
fn no_wheel_error_lists_versions_and_platforms() {
    let error = Fixture::new().resolve(&["tensorflow"]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, InstallError::NoWheel { .. }), "{text}");
    for part in
        ["tensorflow: no wheel for this platform", "pyemscripten_2026_0_wasm32", "available versions: ", "Linux"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn source_distribution_is_never_built() {
    // These versions have only source distributions, whose setup.py would run code.
    let error = Fixture::new().resolve(&["pyspark<4"]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("source"), "{text}");
}

#[test]
fn conflicting_requirements_are_explained() {
    let error = Fixture::new().resolve(&["rich<13", "rich>=13"]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, InstallError::Conflict { .. }), "{text}");
    assert!(text.contains("rich<13") && text.contains("rich>=13"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn unsatisfiable_optional_requirements_are_left_out() {
    let fixture = Fixture::new();
    let optional = ["tensorflow", "six"].map(|name| Requirement::parse(name).unwrap());
    let request = PackageRequest { optional: optional.to_vec(), ..request(&["attrs"]) };
    let resolution = fixture.installer.resolve(&request, &NoProgress).unwrap();
    assert_eq!(names(&resolution), ["attrs", "six"]);
}

#[test]
fn installed_package_keeps_its_version() {
    let fixture = Fixture::new();
    let installed = vec![InstalledPackage { name: "attrs".into(), version: "24.2.0".into() }];
    let resolution =
        fixture.installer.resolve(&PackageRequest { installed, ..request(&["attrs"]) }, &NoProgress).unwrap();
    assert_eq!(resolution.get("attrs").unwrap().version, "24.2.0");
}

#[test]
fn constraints_limit_versions_without_installing() {
    let fixture = Fixture::new();
    let constraints = ["attrs==24.2.0", "six==1.16.0"].map(|text| Requirement::parse(text).unwrap()).to_vec();
    let resolution =
        fixture.installer.resolve(&PackageRequest { constraints, ..request(&["attrs"]) }, &NoProgress).unwrap();
    assert_eq!(names(&resolution), ["attrs"]);
    assert_eq!(resolution.get("attrs").unwrap().version, "24.2.0");
}

#[test]
fn files_newer_than_exclude_newer_are_ignored() {
    let fixture = Fixture::with(|settings| settings.exclude_newer = Some("2023-06-01".into()));
    let version = fixture.resolve(&["attrs"]).unwrap().get("attrs").unwrap().version.clone();
    assert_eq!(version, "23.1.0");
}

#[test]
fn hash_of_a_requirement_must_match_the_file() {
    let fixture = Fixture::new();
    let line = format!("six==1.16.0 --hash=sha256:{}", "0".repeat(64));
    let request =
        PackageRequest { requirements: Requirement::parse_lines(&line).unwrap(), ..PackageRequest::default() };
    let error = fixture.installer.resolve(&request, &NoProgress).unwrap_err();
    assert!(matches!(error, InstallError::HashMismatch { .. }), "{error}");
}

#[test]
fn offline_installer_serves_cached_packages_only() {
    let online = Fixture::new();
    let (resolution, wheels) = online.install(&["six", "attrs"]).unwrap();
    let offline = Fixture::with_cache(online.cache.path(), |settings| settings.offline = true);
    let (again, same) = offline.install(&["six", "attrs"]).unwrap();
    assert_eq!((again, same), (resolution, wheels));
    // The index's pages are cached, so another request for the same packages can be resolved too.
    assert_eq!(names(&offline.resolve(&["six>=1.15"]).unwrap()), ["six"]);
    let error = offline.resolve(&["networkx"]).unwrap_err();
    assert!(matches!(error, InstallError::Offline { .. }), "{error}");
    assert!(error.to_string().contains("offline"), "{error}");
}

#[test]
fn unreachable_index_is_named_in_the_network_error() {
    let fixture = Fixture::with(|settings| settings.index_url = Some("http://127.0.0.1:9/simple".into()));
    let error = fixture.resolve(&["six"]).unwrap_err();
    assert!(matches!(error, InstallError::Network { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1:9"), "{error}");
}

#[test]
fn installing_has_a_time_limit() {
    let fixture = Fixture::with(|settings| settings.timeout = std::time::Duration::ZERO);
    let error = fixture.resolve(&["six"]).unwrap_err();
    assert!(matches!(error, InstallError::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("resolving six"), "{error}");
}

#[test]
fn python_only_packages_are_installed_without_libraries() {
    let fixture = Fixture::new();
    let (resolution, wheels) = fixture.install(&["jinja2", "pyyaml"]).unwrap();
    for (name, module) in [("markupsafe", "_native.py"), ("pyyaml", "loader.py")] {
        assert_eq!(resolution.get(name).unwrap().kind, FileKind::PythonOnly);
        let unpacked = wheels.iter().find(|wheel| wheel.name == name).unwrap().unpack().unwrap();
        assert!(unpacked.files.iter().any(|file| file.path.ends_with(module)), "{name}");
        assert!(!unpacked.files.iter().any(|file| file.path.ends_with(".so")), "{name}");
    }
}

#[test]
fn packages_that_need_a_python_only_one_are_not_searched_for_old_releases() {
    let fixture = Fixture::new();
    let resolution = fixture.resolve(&["flask"]).unwrap();
    assert_eq!(resolution.get("markupsafe").unwrap().kind, FileKind::PythonOnly);
    // uv keeps the metadata of each release that the resolver has considered.
    let considered = |directory: std::fs::DirEntry| {
        let releases = directory.path().join("pypi/flask").read_dir().ok()?;
        Some(releases.map(|release| release.unwrap().file_name()).collect::<Vec<_>>())
    };
    let buckets = fixture.cache.path().join("uv").read_dir().unwrap().map(Result::unwrap);
    let releases: Vec<_> = buckets.filter_map(considered).flatten().collect();
    assert_eq!(releases.len(), 1, "{releases:?}");
}

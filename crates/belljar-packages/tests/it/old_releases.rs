//! Tests of resolving packages whose newest releases cannot be installed, with an index in a directory.

use std::path::Path;

use belljar_core::NoProgress;
use belljar_packages::{GeneralHint as _, InstallError, PackageRequest, Requirement};
use tempfile::TempDir;

use crate::forge::Forge;
use crate::support::{Fixture, request};

/// Adds a release to an index in a directory.
fn publish(index: &Path, wheel: Forge, uploaded: &str) {
    let directory = index.join(wheel.name);
    std::fs::create_dir_all(&directory).unwrap();
    wheel.write(&directory, &wheel.bytes());
    let page = directory.join("index.html");
    let before = std::fs::read_to_string(&page).unwrap_or_default();
    let file = wheel.filename();
    let link = format!("<a href=\"{file}\" data-upload-time=\"{uploaded}\">{file}</a>\n");
    std::fs::write(page, before + &link).unwrap();
}

fn index() -> TempDir {
    let index = tempfile::tempdir().unwrap();
    for (name, old) in [("stalepackage", "2021-01-01T00:00:00Z"), ("freshpackage", "2023-06-01T00:00:00Z")] {
        publish(index.path(), Forge::new(name, "1.0"), old);
        publish(index.path(), Forge::new(name, "2.0").requires("linuxonly"), "2023-05-01T00:00:00Z");
        publish(index.path(), Forge::new(name, "3.0").requires("linuxonly"), "2025-01-01T00:00:00Z");
    }
    let tag = "cp314-cp314-manylinux_2_28_x86_64";
    publish(index.path(), Forge::new("linuxonly", "1.0").tag(tag), "2025-01-01T00:00:00Z");
    publish(index.path(), Forge::new("dependent", "1.0").requires("stalepackage"), "2025-01-01T00:00:00Z");
    index
}

fn fixture(index: &TempDir) -> Fixture {
    let url = format!("file://{}", index.path().display());
    Fixture::with(|settings| settings.index_url = Some(url))
}

#[test]
fn release_that_is_years_older_than_the_newest_is_refused_with_the_reason() {
    let index = index();
    let fixture = fixture(&index);
    let inferred = vec![Requirement::parse("stalepackage").unwrap()];
    for request in [request(&["stalepackage"]), PackageRequest { inferred, ..PackageRequest::default() }] {
        let error = fixture.installer.resolve(&request, &NoProgress).unwrap_err();
        let text = error.with_general_hint();
        assert!(matches!(error, InstallError::OldRelease { .. }), "{text}");
        for part in [
            "stalepackage: 3.0, its newest release, cannot be installed, only 1.0 of 2021. linuxonly: no wheel",
            "(required by stalepackage)",
            "1.0 has wheels for Linux only",
            "\nhint: to use the old release, ask for it: dependencies = [\"stalepackage==1.0\"]",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn optional_package_with_only_old_releases_is_left_out() {
    let index = index();
    let optional = vec![Requirement::parse("stalepackage").unwrap()];
    let request = PackageRequest { optional, ..request(&["freshpackage"]) };
    let resolution = fixture(&index).installer.resolve(&request, &NoProgress).unwrap();
    assert!(resolution.get("stalepackage").is_none() && resolution.get("freshpackage").is_some());
}

#[test]
fn old_release_is_chosen_if_it_is_asked_for_or_not_very_old() {
    let index = index();
    let fixture = fixture(&index);
    for asked in ["stalepackage==1.0", "stalepackage<2", "freshpackage", "stalepackage>=0"] {
        let resolution = fixture.resolve(&[asked]).unwrap();
        assert_eq!(resolution.pinned()[0].version, "1.0", "{asked}");
    }
    let constraints = vec![Requirement::parse("stalepackage<2").unwrap()];
    let request = PackageRequest { constraints, ..request(&["stalepackage"]) };
    assert_eq!(fixture.installer.resolve(&request, &NoProgress).unwrap().pinned()[0].version, "1.0");
    // A dependency's version is the choice of the package that requires it.
    assert_eq!(fixture.resolve(&["dependent"]).unwrap().get("stalepackage").unwrap().version, "1.0");
    let until = Fixture::with(|settings| {
        settings.index_url = Some(format!("file://{}", index.path().display()));
        settings.exclude_newer = Some("2022-01-01".into());
    });
    assert_eq!(until.resolve(&["stalepackage"]).unwrap().pinned()[0].version, "1.0");
}

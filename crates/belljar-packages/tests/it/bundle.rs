//! Tests of bundles: directories of wheels for machines without a network.

use belljar_core::NoProgress;
use belljar_packages::{InstallError, LOCK_FILE};

use crate::forge::Forge;
use crate::support::Fixture;

#[test]
fn bundle_serves_a_resolution_without_a_network() {
    let bundle = tempfile::tempdir().unwrap();
    let online = Fixture::new();
    let resolution = online.resolve(&["python-dateutil<3", "msgpack", "markupsafe"]).unwrap();
    let written = online.installer.download(&resolution, bundle.path(), &NoProgress).unwrap();
    assert_eq!(written.len(), resolution.pinned().len() + 1);

    // The index is unreachable, and the cache is empty.
    let offline = Fixture::with(|settings| {
        settings.offline = true;
        settings.index_url = Some("http://127.0.0.1:9/simple".into());
        settings.find_links = vec![bundle.path().to_str().unwrap().to_owned()];
    });
    let (again, wheels) = offline.install(&["python-dateutil<3", "msgpack", "markupsafe"]).unwrap();
    assert_eq!(again.key(), resolution.key());
    for wheel in wheels {
        wheel.unpack().unwrap();
    }
    let error = offline.resolve(&["attrs"]).unwrap_err();
    assert!(matches!(error, InstallError::Offline { .. }), "{error}");
}

#[test]
fn lock_file_of_a_bundle_lists_every_wheel_with_its_hash() {
    let bundle = tempfile::tempdir().unwrap();
    let fixture = Fixture::new();
    let resolution = fixture.resolve(&["six"]).unwrap();
    fixture.installer.download(&resolution, bundle.path(), &NoProgress).unwrap();
    let lock: toml::Table = toml::from_str(&std::fs::read_to_string(bundle.path().join(LOCK_FILE)).unwrap()).unwrap();
    assert_eq!(lock["lock-version"].as_str(), Some("1.0"));
    let package = &lock["packages"][0];
    assert_eq!(package["name"].as_str(), Some("six"));
    let wheel = &package["wheels"][0];
    assert_eq!(wheel["hashes"]["sha256"].as_str(), Some(resolution.pinned()[0].sha256.as_str()));
    assert!(bundle.path().join(wheel["path"].as_str().unwrap()).is_file());
    let text = resolution.to_pylock(fixture.installer.platform()).unwrap();
    assert!(text.contains(&resolution.pinned()[0].url), "{text}");
}

#[test]
fn changed_directory_of_wheels_is_resolved_again() {
    let directory = tempfile::tempdir().unwrap();
    let old = Forge::new("thing", "1.0");
    old.write(directory.path(), &old.bytes());
    let fixture = Fixture::with(|settings| {
        settings.no_index = true;
        settings.find_links = vec![directory.path().to_str().unwrap().to_owned()];
    });
    assert_eq!(fixture.install(&["thing"]).unwrap().0.get("thing").unwrap().version, "1.0");
    let new = Forge::new("thing", "1.1");
    new.write(directory.path(), &new.bytes());
    assert_eq!(fixture.install(&["thing"]).unwrap().0.get("thing").unwrap().version, "1.1");
}

#[test]
fn dependency_by_url_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let forge = Forge::new("thing", "1.0").requires("other @ https://example.org/other-1-py3-none-any.whl");
    forge.write(directory.path(), &forge.bytes());
    let fixture = Fixture::with(|settings| {
        settings.no_index = true;
        settings.find_links = vec![directory.path().to_str().unwrap().to_owned()];
    });
    let error = fixture.resolve(&["thing"]).unwrap_err();
    assert!(matches!(&error, InstallError::UrlDependency { name, .. } if name == "other"), "{error}");
}

#[test]
fn cached_wheels_are_listed_and_cleaned() {
    let fixture = Fixture::new();
    let (resolution, _) = fixture.install(&["six"]).unwrap();
    let cache = &fixture.installer.settings().cache;
    let listed = belljar_packages::cached_wheels(cache).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].filename, resolution.pinned()[0].filename);
    assert!(belljar_packages::clean_wheels(cache, std::time::Duration::from_secs(3600)).unwrap().is_empty());
    assert_eq!(belljar_packages::clean_wheels(cache, std::time::Duration::ZERO).unwrap(), listed);
    assert!(belljar_packages::cached_wheels(cache).unwrap().is_empty());
    fixture.install(&["six"]).unwrap();
}

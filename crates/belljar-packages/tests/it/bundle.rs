//! Directories of wheels for machines without a network.

use belljar_core::progress::NoProgress;
use belljar_packages::{InstallError, LOCK_FILE};

use crate::forge::Forge;
use crate::support::Bench;

#[test]
fn a_bundle_serves_what_was_resolved_where_there_is_no_network() {
    let bundle = tempfile::tempdir().unwrap();
    let online = Bench::new();
    let resolution = online.resolve(&["python-dateutil<3", "msgpack", "markupsafe"]).unwrap();
    let written = online.installer.download(&resolution, bundle.path(), &NoProgress).unwrap();
    assert_eq!(written.len(), resolution.pinned().len() + 1);

    // An index that nobody answers at, and nothing in the cache.
    let offline = Bench::with(|settings| {
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
fn a_bundles_lock_is_a_pylock_that_names_every_wheel_with_its_hash() {
    let bundle = tempfile::tempdir().unwrap();
    let bench = Bench::new();
    let resolution = bench.resolve(&["six"]).unwrap();
    bench.installer.download(&resolution, bundle.path(), &NoProgress).unwrap();
    let lock: toml::Table = toml::from_str(&std::fs::read_to_string(bundle.path().join(LOCK_FILE)).unwrap()).unwrap();
    assert_eq!(lock["lock-version"].as_str(), Some("1.0"));
    let package = &lock["packages"][0];
    assert_eq!(package["name"].as_str(), Some("six"));
    let wheel = &package["wheels"][0];
    assert_eq!(wheel["hashes"]["sha256"].as_str(), Some(resolution.pinned()[0].sha256.as_str()));
    assert!(bundle.path().join(wheel["path"].as_str().unwrap()).is_file());
    let text = resolution.to_pylock(bench.installer.platform()).unwrap();
    assert!(text.contains(&resolution.pinned()[0].url), "{text}");
}

#[test]
fn a_directory_of_wheels_that_changed_is_looked_at_anew() {
    let directory = tempfile::tempdir().unwrap();
    let old = Forge::new("thing", "1.0");
    old.write(directory.path(), &old.bytes());
    let bench = Bench::with(|settings| {
        settings.no_index = true;
        settings.find_links = vec![directory.path().to_str().unwrap().to_owned()];
    });
    assert_eq!(bench.install(&["thing"]).unwrap().0.get("thing").unwrap().version, "1.0");
    let new = Forge::new("thing", "1.1");
    new.write(directory.path(), &new.bytes());
    assert_eq!(bench.install(&["thing"]).unwrap().0.get("thing").unwrap().version, "1.1");
}

#[test]
fn a_wheel_that_asks_for_another_by_address_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let forge = Forge::new("thing", "1.0").requires("other @ https://example.org/other-1-py3-none-any.whl");
    forge.write(directory.path(), &forge.bytes());
    let bench = Bench::with(|settings| {
        settings.no_index = true;
        settings.find_links = vec![directory.path().to_str().unwrap().to_owned()];
    });
    let error = bench.resolve(&["thing"]).unwrap_err();
    assert!(error.to_string().contains("other: not allowed here"), "{error}");
}

#[test]
fn wheels_in_the_cache_are_listed_and_cleaned() {
    let bench = Bench::new();
    let (resolution, _) = bench.install(&["six"]).unwrap();
    let cache = &bench.installer.settings().cache;
    let listed = belljar_packages::cached_wheels(cache).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].filename, resolution.pinned()[0].filename);
    assert!(belljar_packages::clean_wheels(cache, std::time::Duration::from_secs(3600)).unwrap().is_empty());
    assert_eq!(belljar_packages::clean_wheels(cache, std::time::Duration::ZERO).unwrap(), listed);
    assert!(belljar_packages::cached_wheels(cache).unwrap().is_empty());
    bench.install(&["six"]).unwrap();
}

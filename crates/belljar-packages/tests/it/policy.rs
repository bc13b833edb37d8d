//! What may be installed at all.

use belljar_core::progress::NoProgress;
use belljar_packages::{InstallError, Policy, Request, Requirement};

use crate::support::{Bench, request};

const NONE: [&str; 0] = [];

#[test]
fn a_denied_package_is_refused_by_its_rule() {
    let bench = Bench::with(|settings| settings.policy = Policy::new(NONE, ["six"]).unwrap());
    let error = bench.resolve(&["six"]).unwrap_err();
    assert!(matches!(error, InstallError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("`six` is denied (--deny-packages)"), "{error}");
}

#[test]
fn a_package_that_another_asks_for_is_refused_too() {
    let bench = Bench::with(|settings| settings.policy = Policy::new(NONE, ["six"]).unwrap());
    let error = bench.resolve(&["python-dateutil<3"]).unwrap_err();
    assert!(error.to_string().contains("six: not allowed here"), "{error}");
    assert!(error.to_string().contains("(required by python-dateutil)"), "{error}");
}

#[test]
fn only_what_is_allowed_is_installed() {
    let bench = Bench::with(|settings| settings.policy = Policy::new(["python-*"], NONE).unwrap());
    let error = bench.resolve(&["python-dateutil<3"]).unwrap_err();
    assert!(error.to_string().contains("only python-* are allowed"), "{error}");
    let bench = Bench::with(|settings| settings.policy = Policy::new(["python-*", "six"], NONE).unwrap());
    assert!(bench.resolve(&["python-dateutil<3"]).is_ok());
}

#[test]
fn an_optional_package_that_is_denied_is_left_out() {
    let bench = Bench::with(|settings| settings.policy = Policy::new(NONE, ["six"]).unwrap());
    let optional = vec![Requirement::parse("six").unwrap()];
    let resolution = bench.installer.resolve(&Request { optional, ..request(&["attrs"]) }, &NoProgress).unwrap();
    assert!(resolution.get("six").is_none());
}

#[test]
fn nothing_is_installed_when_installing_is_switched_off() {
    let bench = Bench::with(|settings| settings.no_install = true);
    let error = bench.resolve(&["six"]).unwrap_err();
    assert!(matches!(error, InstallError::NoInstall { .. }), "{error}");
    assert!(bench.resolve(&[]).unwrap().is_empty());
}

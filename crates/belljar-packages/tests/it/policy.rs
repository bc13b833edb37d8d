//! Tests of the package policy.

use belljar_core::NoProgress;
use belljar_packages::{InstallError, PackageRequest, Policy, PolicyViolation, Requirement};

use crate::support::{Fixture, request};

const NONE: [&str; 0] = [];

#[test]
fn denied_package_is_refused_with_the_matching_pattern() {
    let fixture = Fixture::with(|settings| settings.policy = Policy::new(NONE, ["six"]).unwrap());
    let error = fixture.resolve(&["six"]).unwrap_err();
    let denied = |violation: &PolicyViolation| *violation == PolicyViolation::Denied { pattern: "six".to_owned() };
    assert!(matches!(&error, InstallError::Denied { violation, .. } if denied(violation)), "{error}");
}

#[test]
fn denied_dependency_of_a_package_is_refused() {
    let fixture = Fixture::with(|settings| settings.policy = Policy::new(NONE, ["six"]).unwrap());
    let error = fixture.resolve(&["python-dateutil<3"]).unwrap_err();
    assert!(error.to_string().contains("six is not allowed"), "{error}");
    assert!(error.to_string().contains("(required by python-dateutil)"), "{error}");
}

#[test]
fn packages_outside_the_allow_list_are_refused() {
    let fixture = Fixture::with(|settings| settings.policy = Policy::new(["python-*"], NONE).unwrap());
    let error = fixture.resolve(&["python-dateutil<3"]).unwrap_err();
    assert!(error.to_string().contains("only python-* are allowed"), "{error}");
    let fixture = Fixture::with(|settings| settings.policy = Policy::new(["python-*", "six"], NONE).unwrap());
    assert!(fixture.resolve(&["python-dateutil<3"]).is_ok());
}

#[test]
fn denied_optional_package_is_left_out() {
    let fixture = Fixture::with(|settings| settings.policy = Policy::new(NONE, ["six"]).unwrap());
    let optional = vec![Requirement::parse("six").unwrap()];
    let resolution =
        fixture.installer.resolve(&PackageRequest { optional, ..request(&["attrs"]) }, &NoProgress).unwrap();
    assert!(resolution.get("six").is_none());
}

#[test]
fn requirement_is_an_error_when_installing_is_disabled() {
    let fixture = Fixture::with(|settings| settings.no_install = true);
    let error = fixture.resolve(&["six"]).unwrap_err();
    assert!(matches!(error, InstallError::InstallDisabled { .. }), "{error}");
    assert!(fixture.resolve(&[]).unwrap().is_empty());
}

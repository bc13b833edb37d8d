"""Checks the files of `deploy`: python check.py BELLJAR DEPLOY."""

import pathlib
import subprocess
import sys

import kubernetes_validate
import yaml

belljar, deploy = sys.argv[1], pathlib.Path(sys.argv[2])


def check_command(arguments):
    """Fails if the program does not know an option."""
    run = subprocess.run([belljar, *arguments, "--help"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, (arguments, run.stderr)


manifests = list(yaml.safe_load_all((deploy / "kubernetes/belljar.yaml").read_text()))
for manifest in manifests:
    kubernetes_validate.validate(manifest, "1.37", strict=True)
kinds = {manifest["kind"] for manifest in manifests}
assert kinds >= {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy"}, kinds
[deployment] = [manifest for manifest in manifests if manifest["kind"] == "Deployment"]
[container] = deployment["spec"]["template"]["spec"]["containers"]
check_command(container["args"])

compose = yaml.safe_load((deploy / "compose/compose.yaml").read_text())
replicas = [service for service in compose["services"].values() if service["image"] == "belljar"]
assert len(replicas) == 3
for replica in replicas:
    check_command(replica["command"])
    # HAProxy's file names the replicas by their services.
    address = replica["environment"]["BELLJAR_ADVERTISE"].removeprefix("http://")
    assert f" {address}\n" in (deploy / "compose/haproxy.cfg").read_text(), address
print("checked", len(manifests), "manifests and", len(replicas), "replicas")

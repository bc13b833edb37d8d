"""Data classes made, compared, replaced and sorted."""

from dataclasses import asdict, dataclass, replace


@dataclass(order=True, frozen=True)
class Version:
    major: int
    minor: int
    name: str = "x"


def run() -> None:
    versions = [Version(i % 13, i % 7, f"v{i % 5}") for i in range(4000)]
    versions = [replace(version, minor=version.minor + 1) for version in versions]
    versions.sort()
    assert len({*versions}) <= 13 * 7 * 5
    assert sum(asdict(version)["minor"] for version in versions[:500]) > 0

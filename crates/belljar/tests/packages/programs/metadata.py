# /// script
# dependencies = ["rich[jupyter]<13; python_version < '3'", "rich<14", "pygments", "certifi"]
# ///
from importlib import metadata, resources

import certifi
import rich

assert int(metadata.version("rich").split(".")[0]) < 14
assert "pygmentize" in {point.name for point in metadata.entry_points(group="console_scripts")}
assert resources.files(certifi).joinpath("cacert.pem").read_text().startswith(("\n", "#"))

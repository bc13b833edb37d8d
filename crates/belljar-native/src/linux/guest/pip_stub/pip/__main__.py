"""``python -m pip``: the host serves its requests."""

import os
import sys

sys.path.append(os.environ["BELLJAR_CODE"])

from belljar_kernel.pip import main  # noqa: E402

sys.exit(main(sys.argv[1:]))

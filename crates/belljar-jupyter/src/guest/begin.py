"""Where a nursery's process begins: `python -I begin.py MODULE…`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from belljar_kernel.nursery import main  # noqa: E402

main()

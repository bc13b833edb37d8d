"""The entry point of the guest's processes.

``python -I bootstrap.py MODULE…`` runs a zygote that imports these modules; ``python -I bootstrap.py --kernel`` runs
one kernel, and reads its configuration from standard input.
"""

import gc
import json
import os
import sys

# Imports allocate many objects and little garbage.
gc.disable()
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

if sys.argv[1:2] == ["--kernel"]:
    from belljar_kernel import kernel

    gc.enable()
    kernel.serve(json.load(sys.stdin))
else:
    from belljar_kernel import zygote

    zygote.main()

"""Where a process begins: `python -I begin.py MODULE…` is a nursery, `python -I begin.py --kernel` one kernel,
whose plan standard input says."""

import gc
import json
import os
import sys

# What is imported makes many objects and little garbage.
gc.disable()
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

if sys.argv[1:2] == ["--kernel"]:
    from belljar_kernel import kernel

    gc.enable()
    kernel.serve(json.load(sys.stdin))
else:
    from belljar_kernel import nursery

    nursery.main()

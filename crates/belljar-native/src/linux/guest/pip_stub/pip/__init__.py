"""Replaces pip in the programs that a session starts: see `belljar_kernel.pip`."""

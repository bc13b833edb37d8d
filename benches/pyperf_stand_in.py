"""Prepended to a benchmark of pyperformance. Replaces `pyperf`, so that one process can time it with timing.py."""

import argparse as _argparse
import asyncio as _asyncio
import sys as _sys
import time as _clock
import types as _types

_benchmarks = []


class Runner:
    def __init__(self, *_arguments, **_options):
        self.metadata, self.argparser, self.args = {}, _argparse.ArgumentParser(), _argparse.Namespace()

    def parse_args(self):
        self.args = self.argparser.parse_args([])
        return self.args

    def bench_func(self, _name, function, *arguments, **_options):
        _benchmarks.append(lambda: function(*arguments))

    def bench_time_func(self, _name, function, *arguments, **_options):
        _benchmarks.append(lambda: function(1, *arguments))

    def bench_async_func(self, _name, function, *arguments, **_options):
        _benchmarks.append(lambda: _asyncio.run(function(*arguments)))


def run():
    for benchmark in _benchmarks:
        benchmark()


_sys.modules["pyperf"] = _types.SimpleNamespace(Runner=Runner, perf_counter=_clock.perf_counter)

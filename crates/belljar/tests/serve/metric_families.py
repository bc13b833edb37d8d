"""Parses metrics from standard input with Prometheus's own parser, which is strict, and prints them as JSON."""

import json
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

families = [
    {
        "name": family.name,
        "type": family.type,
        "unit": family.unit,
        "help": family.documentation,
        "samples": [[sample.name, sample.labels, sample.value] for sample in family.samples],
    }
    for family in text_string_to_metric_families(sys.stdin.read())
]
json.dump(families, sys.stdout)

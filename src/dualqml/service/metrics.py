# SPDX-License-Identifier: BSD-3-Clause
"""Numbers about the service for Prometheus, without anything of people."""

import os

from prometheus_client import REGISTRY as _OWN
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
    multiprocess,
)

from dualqml.service.settings import METRICS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

REQUESTS = Counter(
    "dualqml_requests_total",
    "Requests by route, method and status.",
    ["route", "method", "status"],
)
SECONDS = Histogram(
    "dualqml_request_seconds",
    "Time from the first byte of a request to the last one of its answer.",
    ["route"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
FACES = Counter("dualqml_faces_total", "Faces by decision.", ["decision"])
BUILDS = Counter("dualqml_model_builds_total", "Models that were built.")
BUILD_SECONDS = Histogram(
    "dualqml_model_build_seconds",
    "Time to build and publish a model.",
    buckets=(0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0),
)
ERASURES = Counter("dualqml_erasures_total", "Erasures that were completed.")


def exposition() -> bytes:
    """All numbers, of all processes, in the format of Prometheus.

    Returns
    -------
    bytes
        The text.
    """
    if os.environ.get(METRICS):
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
    return generate_latest(_OWN)

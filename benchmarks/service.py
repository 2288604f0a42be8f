# SPDX-License-Identifier: BSD-3-Clause
"""``python -m benchmarks.service``: the service under load, and killed at any moment.

The service runs as users start it, with one BLAS thread. Clients are in this process.
All parts print a table:

- ``start``: from ``dualqml serve`` in an empty folder to the first answer about the
  demo;
- ``load``: eight clients for a minute, with the times of the same search by the
  library: alone, by eight threads, and in a process beside the same load;
- ``crops``: the same load with people whose samples are pictures;
- ``kills``: the service is killed at random moments of that load, and started again;
- ``uploads``: malformed uploads, and what another client notices of them.

Options: ``--seconds``, ``--kills``, ``--people``, ``--workers``, ``--uploads``, and
the names of parts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.timing import markdown_table
from tests.service.load import (
    Connection,
    check_people,
    new_gallery,
    person_samples,
    run_clients,
)
from tests.service.malformed import MemoryWatch, SlowSender, send_all
from tests.service.process import ServiceProcess

LIMITS = ("--requests-per-second", "1000000", "--quiet")

#: Search with a saved model all the time; times in milliseconds as JSON at the end.
LIBRARY = """
import base64, io, json, sys, threading, time
import numpy as np
from PIL import Image
from dualqml.recognition import Recognizer
from tests.service.load import person_samples
model, pause = Recognizer.load(sys.argv[1]), float(sys.argv[2])
def probe_of(person):
    sample = person_samples(sys.argv[4], person, 4)[3]
    if "vector" in sample:
        return np.array(sample["vector"], np.float32)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(sample["image"]))))
probes = [probe_of(person) for person in range(50)]
found, end = [], time.monotonic() + float(sys.argv[3])
def search():
    while time.monotonic() < end:
        for probe in probes:
            begin = time.perf_counter()
            model.identify(probe)
            found.append(time.perf_counter() - begin)
            if pause:
                time.sleep(pause)
threads = [threading.Thread(target=search) for _ in range(int(sys.argv[5]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(found))
"""


def milliseconds(seconds) -> list[str]:
    """Median and 99th percentile."""
    return [f"{1000 * np.percentile(seconds, q):.2f}" for q in (50, 99)]


def library_process(
    path: Path, seconds: float, inputs: str, n_threads: int = 1
) -> subprocess.Popen[str]:
    """Searches by the library: one now and then, or by several threads all the time."""
    pause = 0.02 if n_threads == 1 else 0.0
    words = [str(path), str(pause), str(seconds), inputs, str(n_threads)]
    return subprocess.Popen(
        [sys.executable, "-c", LIBRARY, *words],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )


def start_part(options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        service = ServiceProcess(folder, *LIMITS)
        service.start()
        ready = time.monotonic() - begin
        with service.client() as client:
            job = client.post("/v1/demo").json()
            gallery = f"/v1/galleries/{job['gallery_id']}"
            while client.get(f"{gallery}/jobs/{job['id']}").json()["state"] != "done":
                time.sleep(0.05)
            probes = client.get(f"{gallery}/demo-probes").json()["items"]
            right = 0
            first = None
            for probe in probes:
                picture = client.get(f"{gallery}/demo-probes/{probe['id']}/image")
                answer = client.post(
                    f"{gallery}/identify?wait=model",
                    files={"file": ("a.png", picture.content)},
                )
                face = answer.json()["faces"][0]
                first = first or time.monotonic() - begin
                name = face["subject"] and face["subject"]["name"]
                right += name == (probe["person"] if probe["enrolled"] else None)
        service.stop()
    print(
        markdown_table(
            ["ready, s", "first answer about the demo, s", "right answers"],
            [[f"{ready:.1f}", f"{first:.1f}", f"{right} of {len(probes)}"]],
        )
    )


def load_part(options, inputs: str = "vectors") -> None:
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceProcess(folder, *LIMITS, "--workers", str(options.workers))
        with service:
            connection = Connection(service.url, service.key)
            gallery = new_gallery(connection, options.people, inputs)
            model = Path(folder, "model")
            path = next(service.data.joinpath("models").rglob("*.dualqml"))
            model.write_bytes(path.read_bytes())
            calm_library = json.loads(
                library_process(model, 3.0, inputs).communicate()[0]
            )
            crowd = library_process(model, 3.0, inputs, options.clients)
            crowd_library = json.loads(crowd.communicate()[0])
            calm = []
            for person in range(200):
                probe = person_samples(inputs, person % options.people, 4)[3]
                begin = time.perf_counter()
                connection.send("POST", f"{gallery}/identify", probe)
                calm.append(time.perf_counter() - begin)
            beside = library_process(model, options.seconds, inputs)
            clients = run_clients(
                service.url,
                service.key,
                gallery,
                n_clients=options.clients,
                seconds=options.seconds,
                n_people=options.people,
                inputs=inputs,
            )
            busy_library = json.loads(beside.communicate()[0])
            faults = [fault for client in clients for fault in client.faults]
            faults += check_people(connection, gallery, options.people, clients)
    times = {
        kind: [s for client in clients for s in client.seconds[kind]]
        for kind in ("identify", "enrol", "erase")
    }
    rows = [
        ["identify, library, alone", *milliseconds(calm_library), ""],
        ["identify, service, one client", *milliseconds(calm), ""],
        [
            f"identify, library, {options.clients} threads",
            *milliseconds(crowd_library),
            "",
        ],
        ["identify, library, beside the load", *milliseconds(busy_library), ""],
    ]
    rows += [
        [f"{kind}, service, load", *milliseconds(found), f"{len(found)}"]
        for kind, found in times.items()
        if found
    ]
    total = sum(map(len, times.values()))
    print(markdown_table(["what", "p50, ms", "p99, ms", "requests"], rows))
    ratio = np.median(times["identify"]) / np.median(busy_library)
    calm_ratio = np.median(calm) / np.median(calm_library)
    crowd_ratio = np.median(times["identify"]) / np.median(crowd_library)
    print(
        f"\n{total / options.seconds:.0f} requests a second of {options.clients} "
        f"clients; identify / library p50: {calm_ratio:.1f} for one client, "
        f"{crowd_ratio:.1f} for {options.clients} clients and as many threads, "
        f"{ratio:.1f} for {options.clients} clients and one thread; "
        f"{len(faults)} faults {faults[:3]}"
    )


def crops_part(options) -> None:
    load_part(options, "crops")


def kills_part(options) -> None:
    rng = np.random.default_rng(options.seed)
    rows, ended, faults = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceProcess(folder, *LIMITS)
        service.start()
        connection = Connection(service.url, service.key)
        gallery = new_gallery(connection, options.people)
        connection.close()
        for kill in range(options.kills):
            threading.Timer(0.3 + 4.0 * rng.random(), service.kill).start()
            ended += run_clients(
                service.url,
                service.key,
                gallery,
                n_clients=options.clients,
                seconds=60.0,
                n_people=options.people,
                seed=1000 * (kill + 1),
            )
            rows.append(service.start())
            connection = Connection(service.url, service.key)
            faults += check_people(connection, gallery, options.people, ended)
            faults += [f for client in ended[-options.clients :] for f in client.faults]
            connection.close()
            faults += _model_faults(service, gallery)
        service.stop()
    print(
        f"{options.kills} kills: ready again after {np.median(rows):.1f} s (median), "
        f"{max(rows):.1f} s (most); {len(faults)} faults {faults[:3]}"
    )


def _model_faults(service: ServiceProcess, gallery: str) -> list[str]:
    """Compare the published model with a fit to what the database has."""
    from dualqml.service.transfer import model_of_export

    with service.client() as client:
        while True:
            before = client.get(gallery).json()
            content = client.get(f"{gallery}/export").content
            after = client.get(gallery).json()
            if before["revision"] == after["revision"] and after["model"]["current"]:
                break
    if model_of_export(content).model_id != after["model"]["model_id"]:
        return ["the model is not that of the database"]
    return []


def uploads_part(options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceProcess(folder, *LIMITS, "--body-seconds", "5")
        with service:
            connection = Connection(service.url, service.key)
            gallery = new_gallery(connection, options.people)
            places = []
            for inputs in ("photographs", "crops"):
                body = {"name": inputs, "inputs": inputs}
                _, made = connection.send("POST", "/v1/galleries", body)
                places.append(f"/v1/galleries/{made['id']}")
            paths = [
                f"{place}/{verb}"
                for place in places
                for verb in ("identify", "samples")
            ]
            probe = person_samples("vectors", 1, 4)[3]

            def searches(is_over) -> list[float]:
                found = []
                while not is_over():
                    begin = time.perf_counter()
                    connection.send("POST", f"{gallery}/identify", probe)
                    found.append(time.perf_counter() - begin)
                return found

            end = time.monotonic() + 10.0
            calm = searches(lambda: time.monotonic() > end)
            slow = [SlowSender(service.url, service.key, paths[0]) for _ in range(20)]
            results = []
            sender = threading.Thread(
                target=lambda: results.append(
                    send_all(
                        service.url, service.key, paths, options.seed, options.uploads
                    )
                )
            )
            begin = time.monotonic()
            for thread in (*slow, sender):
                thread.start()
            with MemoryWatch(service.process.pid) as memory:
                busy = searches(lambda: not sender.is_alive())
            seconds = time.monotonic() - begin
            for thread in slow:
                thread.join()
            alive = service.process.poll() is None
            connection.close()
    statuses, faults = results[0]
    by_status: Counter[int] = Counter()
    for (_, status), count in statuses.items():
        by_status[status] += count
    rows = [["calm", *milliseconds(calm)], ["during the uploads", *milliseconds(busy)]]
    print(markdown_table(["identify of another client", "p50, ms", "p99, ms"], rows))
    ratio = np.percentile(busy, 99) / np.percentile(calm, 99)
    cut = sum(b" 408 " in one.answer for one in slow)
    print(
        f"\n{options.uploads} uploads in {seconds:.0f} s; statuses "
        f"{dict(sorted(by_status.items()))}; {cut} of {len(slow)} slow bodies cut off; "
        f"p99 {ratio:.1f} times the calm one; memory of all processes at most "
        f"{memory.most / 1e6:.0f} MB; alive: {alive}; {len(faults)} faults "
        f"{faults[:3]}"
    )


PARTS = {
    "start": start_part,
    "load": load_part,
    "crops": crops_part,
    "kills": kills_part,
    "uploads": uploads_part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--uploads", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for part in options.parts:
        print(f"\n## {part}\n", flush=True)
        PARTS[part](options)


if __name__ == "__main__":
    main()

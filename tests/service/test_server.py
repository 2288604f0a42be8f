"""The processes of a service: all end with the first, and the folder is for one."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from dualqml.exceptions import FileError
from dualqml.service import server
from dualqml.service.settings import Settings
from tests.service.process import PATIENCE, ServiceProcess
from tests.service.test_erasure import enrol_others, new_gallery


def test_the_service_stops_cleanly_and_leaves_no_process(tmp_path):
    service = ServiceProcess(tmp_path, "--workers", "2")
    service.start()
    with service.client() as client:
        gallery = new_gallery(client)
        enrol_others(client, gallery)
    service.kill()
    # All other processes notice it: a new service gets the folder.
    service.start()
    with service.client() as client:
        assert client.get(gallery).json()["n_subjects"] == 8
    assert service.stop() == 0
    # Python's own helper of several processes ends a moment after the last of them.
    end = time.monotonic() + PATIENCE
    while _living(service) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _living(service)


def _living(service):
    """Command lines of processes that use the folder of a service."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(service.data).encode() in path.read_bytes():
                found.append(path.with_name("cmdline").read_bytes())
        except OSError:
            continue
    return found


def test_a_process_whose_parent_has_ended_before_it_looks_ends_too():
    code = "import time; from dualqml.service.server import end_with; end_with({}); "
    code += "time.sleep(600)"
    orphan = subprocess.run([sys.executable, "-c", code.format(2**22 + 1)], check=False)
    assert orphan.returncode == -signal.SIGKILL
    child = subprocess.Popen([sys.executable, "-c", code.format(os.getpid())])
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(3.0)
    child.kill()
    child.wait()


def test_two_services_cannot_have_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "_PATIENCE", 0.0)
    settings = Settings(str(tmp_path / "data"))
    umask = os.umask(0o022)
    try:
        with server._own_folder(settings):
            assert (tmp_path / "data").stat().st_mode & 0o077 == 0
            with pytest.raises(FileError, match="--data"), server._own_folder(settings):
                pass
        with server._own_folder(settings):
            pass
    finally:
        os.umask(umask)


def test_a_wide_service_without_tls_is_warned_of():
    said = []
    server._warn(Settings("unused", host="0.0.0.0"), said.append)
    assert "without TLS" in said[0]
    said.clear()
    server._warn(Settings("unused", host="127.0.0.1"), said.append)
    server._warn(Settings("unused", host="0.0.0.0", tls_cert="cert.pem"), said.append)
    assert said == []


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_the_service_speaks_tls(tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", *words.split(), *names, "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
    )
    options = ("--tls-cert", str(cert), "--tls-key", str(key))
    with ServiceProcess(tmp_path, *options, certificate=str(cert)) as service:
        assert service.url.startswith("https://")
        with service.client() as client:
            signed_in = client.post("/v1/session", json={"key": service.key})
            assert signed_in.status_code == 201
            assert "Secure" in signed_in.headers["set-cookie"]
            assert "max-age" in signed_in.headers["strict-transport-security"]
        with pytest.raises(httpx.HTTPError):
            httpx.get(service.url.replace("https", "http"))

"""Starts and stops private quarryds, for tests."""

import http.client
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Long enough for a build with sanitizers on a busy machine; a test that waits this long fails.
DEADLINE_S = 60

READY = re.compile(
    r"^quarryd ready grpc=(?P<grpc>\S+:\d+) transfer=(?P<transfer>\S+:\d+) "
    r"metrics=(?P<metrics>\S+:\d+) socket=(?P<socket>\S*)$")


def clean_environment(extra=None):
    """This process's environment without settings of quarryd, and `extra`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("QUARRY_") and k != "NOTIFY_SOCKET"}
    environment.update(extra or {})
    return environment


def wait_until(condition, what):
    """Polls until `condition()` is true and returns what it returned."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"not within {DEADLINE_S} s: {what}")


def private_flags(**override):
    """Flags of a small daemon that is in nobody's way; None leaves a flag out."""
    flags = {
        "memory": "192MiB",
        "listen-grpc": "127.0.0.1:0",
        "listen-transfer": "127.0.0.1:0",
        "listen-metrics": "127.0.0.1:0",
        "socket": "none",
    }
    flags.update({k.replace("_", "-"): v for k, v in override.items()})
    return [part for name, value in flags.items() if value is not None for part in (f"--{name}", value)]


def run_to_exit(binary, arguments, environment=None):
    """Runs a quarryd that is expected to exit by itself."""
    return subprocess.run([binary, *arguments], env=clean_environment(environment), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def http_get(address, path, method="GET"):
    """Status and body of an answer."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=DEADLINE_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8")
    finally:
        connection.close()


class Quarryd:
    """A running daemon. Use as a context manager; leaving it kills what still runs.

    ready_line, grpc, transfer, metrics, socket: as the daemon said. pid: of the process.
    """

    def __init__(self, binary, arguments=None, environment=None):
        self._log = tempfile.NamedTemporaryFile(prefix="quarryd-", suffix=".log", mode="w+", encoding="utf-8")
        self._process = subprocess.Popen([binary, *(private_flags() if arguments is None else arguments)],
                                         env=clean_environment(environment), stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=self._log, text=True)
        self.pid = self._process.pid
        if not select.select([self._process.stdout], [], [], DEADLINE_S)[0]:
            self.kill()
            raise AssertionError(f"neither ready nor gone within {DEADLINE_S} s; log:\n{self.log()}")
        # An empty line when the daemon has exited instead.
        self.ready_line = self._process.stdout.readline().rstrip("\n")
        match = READY.match(self.ready_line)
        if match is None:
            self.kill()
            raise AssertionError(f"no ready line but {self.ready_line!r}; log:\n{self.log()}")
        self.grpc = match["grpc"]
        self.transfer = match["transfer"]
        self.metrics = match["metrics"]
        self.socket = match["socket"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def log(self):
        """What it has written to stderr so far."""
        with open(self._log.name, encoding="utf-8", errors="replace") as log:
            return log.read()

    def wait_for_log(self, text):
        wait_until(lambda: text in self.log(), f"{text!r} in the log:\n{self.log()}")

    def http(self, path, method="GET"):
        """Status and body of an answer on the port of the metrics."""
        return http_get(self.metrics, path, method)

    def samples(self):
        """Every series of /metrics, with its value."""
        lines = self.http("/metrics")[1].splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {series: float(value) for series, value in pairs}

    def send(self, number):
        self._process.send_signal(number)

    def wait(self):
        """Its exit code, and what it wrote to stdout after the ready line."""
        rest, _ = self._process.communicate(timeout=DEADLINE_S)
        return self._process.returncode, rest

    def stop(self, number=signal.SIGTERM):
        self.send(number)
        return self.wait()

    def kill(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def generate_stubs():
    """Compiles the protos for Python; returns an object with the modules cache_pb2, cache_pb2_grpc, admin_pb2,
    admin_pb2_grpc, transfer_pb2, types_pb2 and google_rpc_pb2."""
    names = [f"quarry/v1/{name}.proto" for name in ("types", "transfer", "cache", "admin")]
    here = pathlib.Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory(prefix="quarry-stubs-") as out:
        subprocess.run(["protoc", "-I", str(ROOT / "proto"), "-I", str(here), f"--python_out={out}",
                        f"--grpc_out={out}", "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin",
                        *names, "google_rpc.proto"], check=True)
        sys.path.insert(0, out)
        # pylint: disable=import-outside-toplevel, import-error
        import google_rpc_pb2
        from quarry.v1 import admin_pb2, admin_pb2_grpc, cache_pb2, cache_pb2_grpc, transfer_pb2, types_pb2
        sys.path.remove(out)
    return types.SimpleNamespace(admin_pb2=admin_pb2, admin_pb2_grpc=admin_pb2_grpc, cache_pb2=cache_pb2,
                                 cache_pb2_grpc=cache_pb2_grpc, google_rpc_pb2=google_rpc_pb2,
                                 transfer_pb2=transfer_pb2, types_pb2=types_pb2)

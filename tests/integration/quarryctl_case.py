"""What the tests of quarryctl's commands that ask a node share."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time

import quarryd
from grpc_case import GrpcCase, block_hash

BINARY = ""


def hexes(names):
    return [block_hash(name).hex() for name in names]


class ControlCase(GrpcCase):
    def run_ctl(self, *arguments, server=None, stdin=None):
        """What came of it; stdout and stderr as bytes."""
        return subprocess.run([BINARY, "--server", server or self.daemon.grpc, *arguments],
                              env=quarryd.clean_environment(), input=stdin or b"", capture_output=True,
                              timeout=quarryd.DEADLINE_S, check=False)

    def ctl(self, *arguments, code=0, **options):
        """The text that it prints."""
        result = self.run_ctl(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (code, b""), result.stdout)
        return result.stdout.decode()

    def json(self, *arguments, **options):
        return json.loads(self.ctl("--json", *arguments, **options))

    def refused(self, *parts, arguments, code=2, **options):
        """An exit code, nothing on stdout, and one line on stderr that has all the parts."""
        result = self.run_ctl(*arguments, **options)
        error = result.stderr.decode()
        self.assertEqual((result.returncode, result.stdout), (code, b""), error)
        self.assertEqual(error.count("\n"), 1, error)
        for part in ("quarryctl: ", *parts):
            self.assertIn(part, error)

    def match(self, names):
        chain = self.C.MatchChain(hashes=[block_hash(n) for n in names])
        self.call(self.cache.Match, self.C.MatchRequest(namespace=self.ns, chains=[chain]))

    def folder(self):
        folder = tempfile.mkdtemp(prefix="quarry-ctl-")
        self.addCleanup(shutil.rmtree, folder)
        return folder

    def file(self, name, content):
        """The path of a file with this content; None: of none."""
        path = os.path.join(self.folder(), name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        return path


class Follower:
    """A quarryctl that goes on until it is told to stop; its stdout is read line by line."""

    def __init__(self, case, *arguments, server=None):
        # A shell that runs tests in the background has SIGINT ignored, which would be inherited. Not by
        # preexec_fn: Python code between fork and exec can hang beside gRPC's threads.
        self.process = subprocess.Popen(
            ["env", "--default-signal=INT", BINARY, "--server", server or case.daemon.grpc, *arguments],
            env=quarryd.clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        case.addCleanup(self.close)
        self._seen = b""

    def line(self):
        deadline = time.monotonic() + quarryd.DEADLINE_S
        while b"\n" not in self._seen:
            left = max(0, deadline - time.monotonic())
            assert select.select([self.process.stdout], [], [], left)[0], f"no line; so far {self._seen!r}"
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            assert piece, f"it ended: {self.process.stderr.read()!r}"
            self._seen += piece
        line, self._seen = self._seen.split(b"\n", 1)
        return line.decode()

    def event(self):
        return json.loads(self.line())

    def until(self, condition):
        """The first event of which it holds."""
        deadline = time.monotonic() + quarryd.DEADLINE_S
        event = self.event()
        while not condition(event):
            assert time.monotonic() < deadline, f"still {event}"
            event = self.event()
        return event

    def end(self, number=None):
        """Its exit code and stderr, after this signal."""
        if number is not None:
            self.process.send_signal(number)
        _, error = self.process.communicate(timeout=quarryd.DEADLINE_S)
        return self.process.returncode, error.decode()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

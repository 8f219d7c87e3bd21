"""What the tests of quarryctl's commands that ask a node share."""

import json
import os
import shutil
import subprocess
import tempfile

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

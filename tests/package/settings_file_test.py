#!/usr/bin/python3
"""deploy/quarryd.toml against the quarryd that it is installed with.

Usage: settings_file_test.py QUARRYD
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
import quarryd  # pylint: disable=import-error, wrong-import-position

BINARY = ""
FILE = ROOT / "deploy/quarryd.toml"


def uncommented():
    """The file with every setting in force. Prose has a space behind its #."""
    return "\n".join(line.removeprefix("#") if not line.startswith("# ") else line
                     for line in FILE.read_text(encoding="utf-8").splitlines())


class SettingsFileTest(unittest.TestCase):

    def test_it_is_what_help_says(self):
        made = subprocess.run([ROOT / "deploy/example-config", BINARY], stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(FILE.read_text(encoding="utf-8"), made.stdout,
                         "out of date: run deploy/example-config QUARRYD > deploy/quarryd.toml")

    def test_as_shipped_it_sets_nothing(self):
        lines = FILE.read_text(encoding="utf-8").splitlines()
        self.assertEqual([line for line in lines if line and not line.startswith("#")], [])

    def test_quarryd_starts_with_every_setting_in_force(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file, \
                tempfile.TemporaryDirectory(prefix="quarry-test-", dir="/var/tmp") as ssd:
            file.write(uncommented())
            file.flush()
            # What the file says of these is not for a test: flags win.
            with quarryd.Quarryd(BINARY, ["--config", file.name, *quarryd.private_flags(ssd_dir=ssd)]) as daemon:
                self.assertEqual(daemon.grpc, "192.0.2.1:7420", "the file's --advertise-grpc is not in force")
                self.assertIn("cache-1", daemon.log())
                self.assertEqual(daemon.stop()[0], 0)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()

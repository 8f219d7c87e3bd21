#!/usr/bin/env python3
"""A node with an SSD tier, as its operator sees it: settings, metrics, quarryctl ssd, --check.

usage: ssd_test.py QUARRYD QUARRYCTL MANY_RECORDS
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import quarryd
import raw_session

QUARRYD, QUARRYCTL, MANY_RECORDS = "", "", ""
SHARD = 256 << 10
# Half as much again as the arena of 192 MiB holds.
BLOCKS = 600
AT_ONCE = 10


class SsdTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="quarry-test-", dir="/var/tmp")
        self.addCleanup(directory.cleanup)
        self.dir = directory.name

    def start(self, *switches, **flags):
        flags = {"ssd-dir": self.dir, "ssd-size": "512MiB", **flags}
        daemon = quarryd.Quarryd(QUARRYD, [*quarryd.private_flags(**flags), *switches])
        self.addCleanup(daemon.kill)
        return daemon

    def fill(self, daemon):
        """Puts BLOCKS blocks, no faster than the SSD takes them."""
        session = raw_session.Session(daemon.transfer)
        handle = session.open("ns", raw_session.model_spec(SHARD))
        hashes = raw_session.hashes_of("block", BLOCKS)
        for first in range(0, BLOCKS, AT_ONCE):
            session.put(handle, hashes[first:first + AT_ONCE], size=SHARD)
            quarryd.wait_until(lambda: self.room(daemon) >= AT_ONCE * SHARD, "room for the next blocks")
        session.close()
        return hashes

    def room(self, daemon):
        samples = daemon.samples()
        # A 32nd of the arena is for what comes from the SSD.
        free = samples['quarry_arena_bytes{tier="dram"}'] * 31 / 32 - samples['quarry_used_bytes{tier="dram"}']
        return free + samples["quarry_ready_bytes"]

    def stop(self, daemon):
        code, _ = daemon.stop()
        self.assertEqual(code, 0, daemon.log())

    def check(self):
        return quarryd.run_to_exit(QUARRYD, ["--check", self.dir])

    def ctl(self, daemon, *arguments):
        done = subprocess.run([QUARRYCTL, "--server", daemon.grpc, "--json", *arguments], stdin=subprocess.DEVNULL,
                              env=quarryd.clean_environment(), capture_output=True, text=True,
                              timeout=quarryd.DEADLINE_S, check=False)
        return done.returncode, json.loads(done.stdout)

    def refused(self, *flags):
        done = quarryd.run_to_exit(QUARRYD, [*quarryd.private_flags(), *flags])
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_settings_that_do_not_fit_together_are_refused_by_name(self):
        self.assertIn("--ssd-dir: without --ssd-size", self.refused("--ssd-dir", self.dir))
        self.assertIn("--ssd-size: without --ssd-dir", self.refused("--ssd-size", "1GiB"))
        self.assertIn("--ssd-size: 1MiB is below the least, 64MiB",
                      self.refused("--ssd-dir", self.dir, "--ssd-size", "1MiB"))
        self.assertIn("--ssd-extent: 128MiB is above the most, a 8th of --ssd-size",
                      self.refused("--ssd-dir", self.dir, "--ssd-size", "512MiB", "--ssd-extent", "128MiB"))
        self.assertIn("is given twice", self.refused("--ssd-dir", self.dir, "--ssd-dir", self.dir, "--ssd-size", "1GiB"))
        self.assertIn("--ssd-io", self.refused("--ssd-io", "mmap"))
        many = [flag for i in range(8) for flag in ("--ssd-dir", f"{self.dir}/{i}")]
        self.assertIn("--memory: 192MiB leaves less than 16MiB beside the catalogs of 8 --ssd-dir",
                      self.refused(*many, "--ssd-size", "1GiB"))

    def test_metrics_and_quarryctl_say_what_lies_there(self):
        daemon = self.start(**{"ssd-io": "threads"})
        self.fill(daemon)
        samples = daemon.samples()
        live = samples[f'quarry_ssd_live_records{{dir="{self.dir}"}}']
        self.assertGreater(live, BLOCKS / 4)
        self.assertEqual(samples[f'quarry_ssd_io_info{{dir="{self.dir}",engine="threads",direct="true"}}'], 1)
        code, ssd = self.ctl(daemon, "ssd", "--extents", "--ssd-endurance", "1TiB")
        self.assertEqual(code, 0)
        disk, io = ssd["disks"][0], ssd["io"][0]
        self.assertEqual((disk["dir"], disk["writing"], io["io_engine"]), (self.dir, True, "threads"))
        self.assertGreaterEqual(disk["live_records"], live)
        self.assertEqual(sum(extent["live_records"] for extent in ssd["extents"]), disk["live_records"])
        self.assertEqual(io["record_bytes"], SHARD + 4096)
        self.assertGreater(io["mean_write_bytes"], SHARD)
        self.assertLess(disk["write_amplification"], 1.02)
        self.assertGreater(disk["days_left"], 0)
        self.stop(daemon)

    def test_a_check_finds_a_stopped_store_good_and_a_flipped_byte_bad(self):
        daemon = self.start()
        self.fill(daemon)
        running = self.check()
        self.assertEqual(running.returncode, 1)
        self.assertIn(self.dir, running.stderr)
        self.stop(daemon)
        good = self.check()
        self.assertEqual(good.returncode, 0, good.stderr)
        self.assertIn(f"{BLOCKS} of {BLOCKS} records good, {BLOCKS * SHARD} payload bytes", good.stdout)
        extent = sorted(pathlib.Path(self.dir, "extents").iterdir())[0]
        with open(extent, "r+b") as file:
            file.seek(4096 + SHARD // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        bad = self.check()
        self.assertEqual(bad.returncode, 1)
        self.assertIn("its payload's sums do not hold", bad.stderr)
        self.assertIn(f"{BLOCKS - 1} of {BLOCKS} records good", bad.stdout)

    def test_it_is_alive_but_not_ready_while_it_reads_its_catalogs(self):
        records = 300_000
        subprocess.run([MANY_RECORDS, self.dir, str(records)], check=True, stdout=subprocess.DEVNULL)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            metrics = f"127.0.0.1:{probe.getsockname()[1]}"
        answers, ready = [], threading.Event()

        def look():
            while not ready.is_set():
                try:
                    answers.append(tuple(quarryd.http_get(metrics, path) for path in ("/readyz", "/livez", "/metrics")))
                except OSError:
                    pass  # not there yet

        looks = threading.Thread(target=look)
        looks.start()
        self.addCleanup(looks.join)
        self.addCleanup(ready.set)
        daemon = self.start("--no-prefault", **{"memory": "2GiB", "ssd-size": "32GiB", "listen-metrics": metrics})
        ready.set()
        looks.join()
        early = [answer for answer in answers if answer[0] == (503, "reading the catalogs of the SSDs\n")]
        self.assertGreater(len(early), 0, f"{len(answers)} answers")
        for _, alive, samples in early:
            self.assertEqual(alive, (200, "ok\n"))
            self.assertEqual(samples[0], 200)
        self.assertEqual(daemon.http("/readyz"), (200, "ok\n"))
        # The newest are read, and are zeros.
        checked = 64 << 20
        self.assertGreaterEqual(daemon.samples()["quarry_ssd_blocks"], records - checked / (64 << 10))
        self.assertLess(daemon.samples()["quarry_ssd_blocks"], records)

    def test_an_empty_directory_cannot_be_checked(self):
        self.assertEqual(self.check().returncode, 1)
        self.assertEqual(list(pathlib.Path(self.dir).iterdir()), [])


if __name__ == "__main__":
    MANY_RECORDS = sys.argv.pop(3)
    QUARRYCTL = sys.argv.pop(2)
    QUARRYD = sys.argv.pop(1)
    raw_session.load_stubs()
    unittest.main()

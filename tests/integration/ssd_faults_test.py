#!/usr/bin/python3
"""quarryd on disks that are full, not writable, not its own, or not what they were at its last stop.

Usage: ssd_faults_test.py QUARRYD [unittest arguments]

Runs itself again in a user and a mount namespace of its own, where anyone may mount the small
file systems that it needs; where that is not allowed, it fails.
"""

import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import protocol_case
import quarryd
import raw_session
from raw_session import hashes_of, model_spec

MIB = 1 << 20
SIZE = 64 << 10
BATCH = 64
INSIDE = "QUARRY_TEST_IN_NAMESPACE"


def bytes_of(block):
    return block * (SIZE // len(block))


class SsdCase(unittest.TestCase):
    """A directory of the test's own, and daemons on it."""

    size = "256MiB"

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="quarry-ssd-", dir=os.environ.get("TMPDIR", "/var/tmp"))
        self.addCleanup(holder.cleanup)
        self.dir = pathlib.Path(holder.name, "ssd")
        self.dir.mkdir()

    def mount(self, kind, options="rw"):
        subprocess.run(["mount", "-t", kind, "-o", options, kind, self.dir], check=True)
        self.addCleanup(subprocess.run, ["umount", self.dir], check=True)

    def flags(self, **more):
        return quarryd.private_flags(memory="128MiB", ssd_dir=str(self.dir), ssd_size=self.size, ssd_extent="4MiB",
                                     **more)

    def start(self, **more):
        self.daemon = quarryd.Quarryd(protocol_case.BINARY, self.flags(**more))
        self.addCleanup(self.daemon.kill)
        self.session = raw_session.Session(self.daemon.transfer)
        self.addCleanup(self.session.close)
        self.handle = self.session.open("ssd", model_spec(shard_bytes=SIZE))

    def stop(self):
        self.session.close()
        code, _ = self.daemon.stop()
        self.assertEqual(code, 0, self.daemon.log())

    def fails_to_start(self, *parts, **more):
        ended = quarryd.run_to_exit(protocol_case.BINARY, self.flags(**more))
        self.assertNotIn(ended.returncode, (0, 2), ended.stderr)
        self.assertGreater(ended.returncode, 0, ended.stderr)  # not by a signal
        for part in ("--ssd-dir", str(self.dir), *parts):
            self.assertIn(part, ended.stderr)

    def metric(self, name):
        return self.daemon.samples()[f'quarry_ssd_{name}{{dir="{self.dir}"}}']

    def put(self, blocks):
        for begin in range(0, len(blocks), BATCH):
            part = blocks[begin:begin + BATCH]
            ends = self.session.put(self.handle, part, [bytes_of(block) for block in part], size=SIZE)
            self.assertEqual({outcome for outcome, _ in ends} -
                             {raw_session.T.PUT_OUTCOME_STORED, raw_session.T.PUT_OUTCOME_ALREADY_THERE}, set())

    def get(self, blocks):
        """How many there are, each right to the byte, and the causes of the others' absence."""
        hits, causes = 0, set()
        for begin in range(0, len(blocks), BATCH):
            part = blocks[begin:begin + BATCH]
            for block, got in zip(part, self.session.get(self.handle, part)):
                if isinstance(got, bytes):
                    self.assertTrue(got == bytes_of(block), "wrong bytes")
                    hits += 1
                else:
                    causes.add(raw_session.types.MissCause.Name(got[1]).removeprefix("MISS_CAUSE_"))
        return hits, causes

    def extents(self):
        return sorted((self.dir / "extents").iterdir())

    def put_and_stop(self, count):
        blocks = hashes_of(self.id(), count)
        self.start()
        self.put(blocks)
        self.stop()
        return blocks

    def come_back_once_put_again(self, blocks, *causes):
        """After a start some are missing, for these reasons; they can be put again."""
        self.start()
        hits, missed = self.get(blocks)
        self.assertLess(hits, len(blocks))
        self.assertEqual(missed, set(causes))
        self.put(blocks)
        self.assertEqual(self.get(blocks), (len(blocks), set()))
        self.stop()
        self.start()
        self.assertEqual(self.get(blocks), (len(blocks), set()))
        self.stop()
        return hits


class SmallFileSystemTest(SsdCase):

    def test_a_full_file_system_stops_the_spilling_and_nothing_else(self):
        self.mount("tmpfs", "size=72m")
        self.start()
        blocks = hashes_of(self.id(), 16384)
        done = 0
        while self.metric("writing") == 1:
            self.assertLess(done, 12288, "far more than the file system holds")
            self.put(blocks[done:done + BATCH])
            done += BATCH
        self.daemon.wait_for_log("writes nothing for 10 s")
        self.put(blocks[done:done + 1024])  # goes on
        done += 1024
        hits, causes = self.get(blocks[:done])
        self.assertGreater(hits, 256)
        self.assertEqual(causes, {"EVICTED"})
        self.assertEqual(self.daemon.http("/livez")[0], 200)
        # There is room again: what is put from now on is spilled.
        subprocess.run(["mount", "-o", "remount,size=400m", self.dir], check=True)
        spilled = self.metric("spilled_records_total")

        rounds = iter(range(1_000_000))

        def spills_again():
            self.put(hashes_of(f"{self.id()}/{next(rounds)}", BATCH))
            return self.metric("spilled_records_total") > spilled + 64

        quarryd.wait_until(spills_again, "blocks that are spilled again")
        present = self.get(blocks)[0]
        self.stop()
        self.start()
        hits, _ = self.get(blocks)
        self.assertGreater(hits, present / 2)
        self.stop()

    def test_a_file_system_without_direct_io(self):
        self.mount("ramfs")
        blocks = hashes_of(self.id(), 1024)
        for _ in range(2):
            self.start()
            direct = [s for s in self.daemon.samples() if s.startswith("quarry_ssd_io_info{")]
            self.assertEqual(len(direct), 1)
            self.assertIn('direct="false"', direct[0])
            self.daemon.wait_for_log("no direct IO here")
            self.put(blocks)
            self.assertEqual(self.get(blocks)[1] - {"EVICTED"}, set())
            self.stop()
        self.start()
        self.assertGreater(self.get(blocks)[0], 512)
        self.stop()

    def test_a_directory_that_cannot_be_written_to_is_named(self):
        self.mount("tmpfs", "ro")
        self.fails_to_start("Read-only file system")

    def test_a_directory_under_a_file_is_named(self):
        self.dir.rmdir()
        self.dir.write_text("a file", encoding="ascii")
        self.fails_to_start("Not a directory")


class OneDirectoryTest(SsdCase):

    def test_a_second_daemon_on_it_is_refused_and_the_first_goes_on(self):
        blocks = hashes_of(self.id(), 1024)
        self.start()
        self.put(blocks)
        self.fails_to_start("in use by another process")
        self.assertEqual(self.get(blocks)[1] - {"EVICTED"}, set())
        self.put(blocks)
        self.stop()

    def test_a_newer_format_is_refused_or_wiped(self):
        blocks = self.put_and_stop(256)
        # The catalog's "format", as 4 bytes, little-endian.
        subprocess.run(["ldb", f"--db={self.dir / 'catalog'}", "--hex", "put", "0x" + b"format".hex(),
                        "0x" + struct.pack("<I", 2).hex()], check=True, stdout=subprocess.DEVNULL)
        self.fails_to_start("format 2", "--ssd-on-newer=wipe")
        self.start(ssd_on_newer="wipe")
        self.assertEqual(self.get(blocks), (0, {"NEVER_STORED"}))
        self.assertEqual([file for file in self.extents() if file.suffix == ".extent"], [])
        self.put(blocks)
        self.stop()
        self.start()
        self.assertEqual(self.get(blocks), (256, set()))
        self.stop()


class ChangedFilesTest(SsdCase):
    """All are among the newest records, which are checked at the start."""

    def test_extents_that_changed_places(self):
        blocks = self.put_and_stop(400)
        one, other, *_ = self.extents()
        one.rename(one.with_suffix(".aside"))
        other.rename(one)
        one.with_suffix(".aside").rename(other)
        self.assertGreater(self.come_back_once_put_again(blocks, "NEVER_STORED"), 200)

    def test_an_extent_that_is_missing(self):
        blocks = self.put_and_stop(400)
        self.extents()[1].unlink()
        self.assertGreater(self.come_back_once_put_again(blocks, "NEVER_STORED"), 300)

    def test_an_extent_that_is_cut_off(self):
        blocks = self.put_and_stop(400)
        os.truncate(self.extents()[1], 2 * MIB + 100)
        self.assertGreater(self.come_back_once_put_again(blocks, "NEVER_STORED"), 340)

    def test_bits_that_flipped(self):
        blocks = self.put_and_stop(400)
        with open(self.extents()[0], "r+b") as extent:
            for at in range(0, 4 * MIB, 256 << 10):
                extent.seek(at + 5000)
                changed = bytes([extent.read(1)[0] ^ 1])
                extent.seek(at + 5000)
                extent.write(changed)
        self.assertGreater(self.come_back_once_put_again(blocks, "NEVER_STORED"), 370)

    def test_the_catalog_without_the_extents_and_the_extents_without_the_catalog(self):
        blocks = self.put_and_stop(100)
        shutil.rmtree(self.dir / "extents")
        self.assertEqual(self.come_back_once_put_again(blocks, "NEVER_STORED"), 0)
        shutil.rmtree(self.dir / "catalog")
        self.assertEqual(self.come_back_once_put_again(blocks, "NEVER_STORED"), 0)


if __name__ == "__main__":
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--mount", sys.executable, *sys.argv])
    protocol_case.main()

#!/usr/bin/python3
"""kill -9 at random moments under load, again and again, with the same --ssd-dir: what the daemon
then claims to have is right to the byte, and what it had committed is there.

Usage: kill_test.py QUARRYD [unittest arguments]

QUARRY_CRASH_CYCLES: kills of the longer test (20); QUARRY_CRASH_SEED: of the random moments.
"""

import hashlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
# pylint: disable=wrong-import-position
import quarryd
import raw_session
from raw_session import hash_of, model_spec

MIB = 1 << 20
CYCLES = int(os.environ.get("QUARRY_CRASH_CYCLES", "20"))
SEED = int(os.environ.get("QUARRY_CRASH_SEED", str(time.time_ns() % 1_000_000)))
BATCH = 32
BASE = hashlib.shake_256(b"base").digest(2 * MIB)

BINARY = ""
CACHE = None  # cache_pb2 and its stubs


class Kind:
    """Blocks of one size, in a namespace of their own: those put so far, by number."""

    def __init__(self, name, size, most_live):
        self.name, self.size = name, size
        self.most_live = most_live  # what is more is removed; 0: nothing is, and the SSD is too small
        self.next = 0         # what has this number or a higher one was never put
        self.oldest = 0       # what has a lower one was removed
        self.committed = set()  # were seen on the SSD alone, or after a start: so they had been committed
        self.handle = None

    def hash(self, number):
        return hash_of(self.name, number)

    def payload(self, number):
        """No two alike, nor any two pages of one."""
        key = self.hash(number)
        begin = int.from_bytes(key[:4], "little") % (len(BASE) - self.size)
        return key + BASE[begin:begin + self.size - len(key)]


class WrongBytes(Exception):
    """A get had other bytes than were put."""


class Load:
    """Puts, gets and removes until the daemon is killed."""

    def __init__(self, daemon, kinds, removes, rng):
        self._daemon, self._kinds, self._removes, self._rng = daemon, kinds, removes, rng
        self.error = None
        self.rounds = 0
        self.killed = False
        self._session = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self):
        self._thread.join(quarryd.DEADLINE_S)
        assert not self._thread.is_alive(), "the load goes on without a daemon"
        if self._session:
            self._session.close()
        if self.error:
            raise self.error

    def _run(self):
        try:
            session = self._session = raw_session.Session(self._daemon.transfer)
            channel = grpc.insecure_channel(self._daemon.grpc, options=[("grpc.enable_http_proxy", 0)])
            stub = CACHE.cache_pb2_grpc.CacheStub(channel)
            with channel:
                for kind in self._kinds:
                    kind.handle = session.open(kind.name, model_spec(shard_bytes=kind.size))
                while True:
                    for kind in self._kinds:
                        self._step(session, stub, kind)
                    self.rounds += 1
        except WrongBytes as error:
            self.error = error
        except Exception as error:  # pylint: disable=broad-except
            # Once the daemon is to go, it drains, and streams end anywhere.
            self.error = None if self.killed else error

    def _step(self, session, stub, kind):
        numbers = list(range(kind.next, kind.next + BATCH))
        kind.next += BATCH
        session.put(kind.handle, [kind.hash(n) for n in numbers], [kind.payload(n) for n in numbers], size=kind.size)
        self._look(session, kind)
        live = range(kind.oldest, kind.next)
        some = self._rng.sample(live, min(8, len(live)))
        for number, got in zip(some, session.get(kind.handle, [kind.hash(n) for n in some])):
            if isinstance(got, bytes):
                if got != kind.payload(number):
                    raise WrongBytes(f"{kind.name} {number}, while the daemon runs")
        if self._removes and len(live) > kind.most_live:
            gone = range(kind.oldest, kind.oldest + BATCH)
            kind.oldest += BATCH  # whether or not the daemon lives to do it
            kind.committed.difference_update(gone)
            stub.Remove(CACHE.cache_pb2.RemoveRequest(namespace=kind.name, hashes=[kind.hash(n) for n in gone]),
                        timeout=quarryd.DEADLINE_S)

    def _look(self, session, kind):
        live = range(max(kind.oldest, kind.next - 1500), kind.next)
        states = session.match(kind.handle, [kind.hash(n) for n in live], no_touch=True).chains[0].states
        on_ssd = {number for number, state in zip(live, states) if state == raw_session.types.BLOCK_STATE_SSD}
        kind.committed.update(on_ssd)


class KillTest(unittest.TestCase):

    def setUp(self):
        print(f"QUARRY_CRASH_SEED={SEED}", flush=True)
        self.rng = random.Random(SEED)
        parent = os.environ.get("TMPDIR", "/var/tmp")
        holder = tempfile.TemporaryDirectory(prefix="quarry-crash-", dir=parent)
        self.addCleanup(holder.cleanup)
        self.dir = holder.name
        self.looked_for = 0

    def flags(self, ssd_size):
        return quarryd.private_flags(memory="128MiB", ssd_dir=self.dir, ssd_size=ssd_size, ssd_extent="4MiB")

    def start(self, ssd_size):
        daemon = quarryd.Quarryd(BINARY, self.flags(ssd_size))
        self.addCleanup(daemon.kill)
        return daemon

    def kill_while_it_starts(self, ssd_size):
        with subprocess.Popen([BINARY, *self.flags(ssd_size)], env=quarryd.clean_environment(),
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(self.rng.uniform(0, 0.3))
            process.kill()

    def end(self, daemon, load):
        """Kills it under load, or while it stops, which writes all that is in memory."""
        # Memory holds twenty rounds; more begin to be written.
        rounds = self.rng.randrange(10, 36)
        quarryd.wait_until(lambda: load.rounds >= rounds or load.error, f"{rounds} rounds of load")
        time.sleep(self.rng.uniform(0, 0.05))
        load.killed = True
        if self.rng.random() < 0.3:
            daemon.send(quarryd.signal.SIGTERM)
            time.sleep(self.rng.uniform(0, 0.3))
        daemon.kill()

    def check(self, daemon, kinds, removed_are_gone=False):
        """Every block that it claims; returns how many, and those by kind."""
        session = raw_session.Session(daemon.transfer)
        claimed = {}
        for kind in kinds:
            handle = session.open(kind.name, model_spec(shard_bytes=kind.size))
            claimed[kind.name] = self.check_kind(session, handle, kind)
            self.assertEqual(kind.committed - claimed[kind.name], set(), f"{kind.name}: committed, but gone")
            self.looked_for += len(kind.committed)
            kind.committed.update(n for n in claimed[kind.name] if n >= kind.oldest)
            if removed_are_gone:
                self.assertEqual({n for n in claimed[kind.name] if n < kind.oldest}, set(), "removed, but there")
            never = [kind.hash(kind.next + 1 + i) for i in range(100)]
            self.assertEqual(set(session.match(handle, never).chains[0].states), {0})
            self.assertEqual({type(got) for got in session.get(handle, never)}, {tuple})
        session.close()
        return claimed

    def check_kind(self, session, handle, kind):
        claimed = set()
        for begin in range(0, kind.next, 4096):
            numbers = range(begin, min(kind.next, begin + 4096))
            states = session.match(handle, [kind.hash(n) for n in numbers], no_touch=True).chains[0].states
            claimed.update(n for n, state in zip(numbers, states) if state != raw_session.types.BLOCK_STATE_ABSENT)
        ordered = sorted(claimed)
        for begin in range(0, len(ordered), 128):
            numbers = ordered[begin:begin + 128]
            for number, got in zip(numbers, session.get(handle, [kind.hash(n) for n in numbers])):
                if got == ("miss", raw_session.types.MISS_CAUSE_EVICTED) and kind.most_live == 0:
                    continue  # since it was claimed, its extent has been emptied
                self.assertIsInstance(got, bytes, f"{kind.name} {number} is claimed, but not there: {got}")
                self.assertTrue(got == kind.payload(number), f"{kind.name} {number}: wrong bytes")
        return claimed

    def cycles(self, count, ssd_size, kinds, removes):
        daemon = self.start(ssd_size)
        for cycle in range(count):
            load = Load(daemon, kinds, removes, self.rng)
            self.end(daemon, load)
            load.wait()
            if cycle % 5 == 4:
                self.kill_while_it_starts(ssd_size)
            daemon = self.start(ssd_size)
            if not removes:
                for kind in kinds:
                    kind.committed.clear()  # may have given way to others
            self.check(daemon, kinds)
        return daemon

    def test_nothing_is_wrong_and_what_was_committed_is_there(self):
        kinds = [Kind("large", 64 << 10, 800), Kind("small", 2 << 10, 1000)]
        daemon = self.cycles(CYCLES, "32GiB", kinds, removes=True)
        self.assertGreater(self.looked_for, 100 * CYCLES)
        # In the end it is stopped as it should be: all is there then, and nothing that was removed.
        # What a kill has brought back is removed again.
        channel = grpc.insecure_channel(daemon.grpc, options=[("grpc.enable_http_proxy", 0)])
        stub = CACHE.cache_pb2_grpc.CacheStub(channel)
        for kind in kinds:
            for begin in range(0, kind.oldest, 4096):
                gone = range(begin, min(kind.oldest, begin + 4096))
                stub.Remove(CACHE.cache_pb2.RemoveRequest(namespace=kind.name, hashes=[kind.hash(n) for n in gone]),
                            timeout=quarryd.DEADLINE_S)
        channel.close()
        before = self.check(daemon, kinds, removed_are_gone=True)
        self.assertEqual(daemon.stop()[0], 0)
        self.assertEqual(self.check(self.start("32GiB"), kinds, removed_are_gone=True), before)

    def test_nothing_is_wrong_while_extents_are_emptied_and_written_again(self):
        kinds = [Kind("large", 64 << 10, 0), Kind("small", 2 << 10, 0)]
        daemon = self.cycles(max(1, CYCLES // 3), "64MiB", kinds, removes=False)
        load = Load(daemon, kinds, False, self.rng)
        reclaimed = f'quarry_ssd_reclaimed_extents_total{{dir="{self.dir}"}}'
        quarryd.wait_until(lambda: daemon.samples()[reclaimed] > 16, "extents that were emptied")
        load.killed = True
        daemon.kill()
        load.wait()
        for kind in kinds:
            kind.committed.clear()
        self.assertGreater(sum(map(len, self.check(self.start("64MiB"), kinds).values())), 100)
        extents = pathlib.Path(self.dir, "extents")
        self.assertLessEqual(sum(file.stat().st_size for file in extents.iterdir()), 64 * MIB)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    CACHE = quarryd.generate_stubs()
    raw_session.T, raw_session.types = CACHE.transfer_pb2, CACHE.types_pb2
    unittest.main(verbosity=2)

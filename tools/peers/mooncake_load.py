#!/usr/bin/env python3
"""Load for Mooncake Store, and the process that holds its memory.

usage: mooncake_load.py serve --master HOST:PORT --memory BYTES
       mooncake_load.py load --master HOST:PORT --blocks-library FILE [sizes as the other load programs]

Runs in a Python that has the package mooncake-transfer-engine-non-cuda. README.md says what it
reads and prints. Buffers are registered, and every call moves a batch straight from or into them.
"""

import argparse
import ctypes
import hashlib
import json
import math
import mmap
import os
import random
import sys
import threading
import time

from mooncake.store import MooncakeDistributedStore

SERVE_ADDRESS = "127.0.0.1:17001"
LOAD_ADDRESS = "127.0.0.1:17002"
LOCAL_BUFFER_BYTES = 16 << 20
MADV_HUGEPAGE = 14


def connect(address, segment_bytes, master):
    store = MooncakeDistributedStore()
    code = store.setup(address, "P2PHANDSHAKE", segment_bytes, LOCAL_BUFFER_BYTES, "tcp", "", master)
    if code != 0:
        raise SystemExit(f"mooncake_load.py: MooncakeDistributedStore.setup returned {code}")
    return store


def key_of(block):
    return hashlib.blake2b(block.to_bytes(8, "little"), digest_size=32).hexdigest()


def percentile(samples, share):
    """Nearest rank, in microseconds."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1e6 if ordered else 0


class Outcome:
    """What one thread did in a round."""

    def __init__(self):
        self.blocks = self.queries = self.errors = 0
        self.first_error = ""
        self.latencies = []

    def add_error(self, what):
        self.first_error = self.first_error or what
        self.errors += 1

    def merge(self, other):
        self.blocks += other.blocks
        self.queries += other.queries
        self.errors += other.errors
        self.first_error = self.first_error or other.first_error
        self.latencies += other.latencies


class Load:
    """Rounds of puts, gets and queries, as rounds.h has them."""

    def __init__(self, options):
        self._options = options
        self._blocks = ctypes.CDLL(options.blocks_library)
        self._blocks.fill_block.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64]
        self._blocks.poison_block.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self._blocks.wrong_bytes.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64]
        self._blocks.wrong_bytes.restype = ctypes.c_uint64
        size = options.blocks * options.block
        self._memory = mmap.mmap(-1, size)
        self._memory.madvise(MADV_HUGEPAGE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        ctypes.memset(self._base, 1, size)
        self._store = connect(LOAD_ADDRESS, 0, options.master)
        code = self._store.register_buffer(self._base, size)
        if code != 0:
            raise SystemExit(f"mooncake_load.py: register_buffer returned {code}")
        self._next_id = time.time_ns()
        self._ids = []
        self._batches = []
        self._queries = []
        self._op = "put"
        # How many threads share the work; "threads N" sets it.
        self._threads = options.connections

    def set_threads(self, count):
        self._threads = count
        return Outcome()

    def prepare(self, op):
        self._op = op
        outcome = Outcome()
        if op == "put":
            # Room for the next round. Objects that were read lately are kept otherwise.
            code = self._store.remove_all(True)
            if code < 0:
                outcome.add_error(f"remove_all returned {code}")
            self._ids = list(range(self._next_id, self._next_id + self._options.blocks))
            self._next_id += self._options.blocks
            self._place(shuffled=False)
            self._for_each_block(self._blocks.fill_block)
        elif op == "get":
            self._place(shuffled=True)
            self._poison()
        else:
            # One at a time a connection.
            self._threads = self._options.connections
            count = self._options.queries * self._options.connections
            keys = [key_of(block) for block in self._ids]
            starts = [random.randrange(len(keys)) for _ in range(count)]
            self._queries = [[keys[(start + k) % len(keys)] for k in range(self._options.hashes)] for start in starts]
        return outcome

    def _place(self, shuffled):
        """Deals the blocks to random places, and to calls: keys, addresses, sizes, ids."""
        order = list(self._ids)
        if shuffled:
            random.shuffle(order)
        size = self._options.block
        places = [self._base + i * size for i in range(len(order))]
        random.shuffle(places)
        self._batches = []
        for first in range(0, len(order), self._options.batch):
            ids = order[first:first + self._options.batch]
            addresses = places[first:first + self._options.batch]
            self._batches.append(([key_of(block) for block in ids], addresses, [size] * len(ids), ids))

    def _for_each_block(self, use):
        return sum(use(block, address, size) or 0 for _, addresses, sizes, ids in self._batches
                   for block, address, size in zip(ids, addresses, sizes))

    def _poison(self):
        self._for_each_block(lambda _, address, size: self._blocks.poison_block(address, size))

    def _on_each_thread(self, work, use):
        outcomes = [Outcome() for _ in range(self._threads)]

        def run(number):
            for piece in work[number::self._threads]:
                begin = time.perf_counter()
                use(piece, outcomes[number])
                outcomes[number].latencies.append(time.perf_counter() - begin)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(self._threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for other in outcomes[1:]:
            outcomes[0].merge(other)
        return outcomes[0]

    def _put(self, batch, outcome):
        for code in self._store.batch_put_from(*batch[:3]):
            if code == 0:
                outcome.blocks += 1
            else:
                outcome.add_error(f"batch_put_from returned {code}")

    def _get(self, batch, outcome):
        for code in self._store.batch_get_into(*batch[:3]):
            if code == self._options.block:
                outcome.blocks += 1
            else:
                outcome.add_error(f"batch_get_into returned {code}")

    def _query(self, keys, outcome):
        present = self._store.batch_is_exist(keys).count(1)
        if present == len(keys):
            outcome.queries += 1
        else:
            outcome.add_error(f"{present} of {len(keys)} blocks are said to be there")

    def run(self):
        begin = time.perf_counter()
        if self._op == "exists":
            outcome = self._on_each_thread(self._queries, self._query)
        else:
            outcome = self._on_each_thread(self._batches, self._put if self._op == "put" else self._get)
        elapsed = time.perf_counter() - begin
        return outcome, {
            "bytes": outcome.blocks * self._options.block,
            "queries": outcome.queries,
            "elapsed_s": elapsed,
            "p50_us": percentile(outcome.latencies, 0.50),
            "p99_us": percentile(outcome.latencies, 0.99),
        }

    def check(self):
        outcome = Outcome()
        if self._op == "exists":
            asked = [key_of(self._ids[k] if k % 2 == 0 else self._next_id + k) for k in range(self._options.hashes)]
            expected = [1 - k % 2 for k in range(self._options.hashes)]
            return outcome, {"wrong": int(list(self._store.batch_is_exist(asked)) != expected)}
        if self._op == "put":
            self._place(shuffled=True)
            self._poison()
            outcome = self._on_each_thread(self._batches, self._get)
        return outcome, {"wrong": self._for_each_block(self._blocks.wrong_bytes)}

    def obey(self, command):
        word, _, argument = command.partition(" ")
        if word == "prepare" and argument in ("put", "get", "exists"):
            outcome, more = self.prepare(argument), {}
        elif word == "threads":
            outcome, more = self.set_threads(int(argument)), {}
        elif command in ("run", "check"):
            outcome, more = self.run() if command == "run" else self.check()
        else:
            outcome, more = Outcome(), {}
            outcome.add_error(f"no such command: {command}")
        answer = {"errors": outcome.errors, **more}
        if outcome.errors:
            answer["first_error"] = outcome.first_error
        return answer


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("serve", "load"))
    parser.add_argument("--master", required=True)
    parser.add_argument("--memory", type=int, default=1 << 30, help="serve: bytes")
    parser.add_argument("--blocks-library")
    for name, value in (("block", 2 << 20), ("blocks", 512), ("batch", 32), ("connections", 2), ("queries", 500),
                        ("hashes", 512)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args(argv)


def main():
    options = parse(sys.argv[1:])
    # The library writes to stdout as well: answers go where nothing else does.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message):
        print(json.dumps(message), file=answers, flush=True)

    if options.mode == "serve":
        store = connect(SERVE_ADDRESS, options.memory, options.master)
        answer({"ready": True})
        sys.stdin.read()
        store.close()
        return
    load = Load(options)
    answer({"ready": True})
    for line in sys.stdin:
        answer(load.obey(line.strip()))
    # Without the library's own teardown, which may wait for its peers.
    os._exit(0)


if __name__ == "__main__":
    main()

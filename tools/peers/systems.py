"""The systems that are compared: how each is started, and which program loads it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import processes
from processes import CannotRun, Child

HERE = pathlib.Path(__file__).resolve().parent
MOONCAKE_PACKAGE = "mooncake-transfer-engine-non-cuda==0.3.13.post1"
MOONCAKE_LIBRARIES = "libibverbs1 libnuma1 libcurl4"  # that its programs are linked with
QUARRY_RESERVE_BYTES = 256 << 20


class System:
    """A server and its load program. `servers` are the processes whose CPU time counts."""

    name = ""
    ops = ("put", "get", "exists")
    # A command of the load program with a number, and the numbers that are worth trying: the
    # best depends on machine and blocks, and on whether it is a put or a get.
    knob = ""

    def knob_values(self):
        return []

    def __init__(self, flags):
        self.flags = flags
        self.servers = []
        self.load = None
        self.best = {}  # of the knob, by operation

    def prepare(self):
        """Once, before anything is started: CannotRun where something is missing."""

    def start(self, block, scratch):
        raise NotImplementedError

    def before(self, op):
        """Before a round is prepared; says how many rounds of puts have to go first."""
        del op
        return 0

    def cpu_s(self):
        return sum(server.cpu_s() for server in self.servers)

    def stop(self):
        for child in ([self.load] if self.load else []) + self.servers[::-1]:
            child.stop()
        self.servers, self.load = [], None

    def sizes(self, block):
        flags = self.flags
        return ["--block", str(block), "--blocks", str(flags.working_set // block), "--batch", str(flags.batch),
                "--connections", str(flags.connections), "--queries", str(flags.queries), "--hashes", str(flags.hashes)]

    def start_load(self, command, scratch, environment=None):
        self.load = Child(command, scratch / f"{self.name}-load.log", environment)
        if json.loads(self.load.read_line(processes.START_TIMEOUT_S)) != {"ready": True}:
            self.load.fail("is not ready")

    def built(self, path):
        program = self.flags.build / path
        if not os.access(program, os.R_OK):
            raise CannotRun(f"{program} is not built: cmake --preset release && cmake --build build/release")
        return str(program)


class Quarry(System):
    """quarryd with room for two rounds, so that a put evicts the blocks of the round before."""

    name = "quarry"

    def prepare(self):
        self.built("server/quarryd")
        self.built("tools/peers/peer-load-quarry")

    def start(self, block, scratch):
        ready = self.start_server(2 * self.flags.working_set + QUARRY_RESERVE_BYTES, scratch)
        self.start_load([self.built("tools/peers/peer-load-quarry"), "--server", ready["transfer"],
                         "--inflight", str(self.flags.inflight), *self.sizes(block)], scratch)

    def start_server(self, memory, scratch, more=()):
        """What its ready line says."""
        server = Child([self.built("server/quarryd"), "--memory", f"{memory}B", "--socket", "none",
                        "--listen-grpc", "127.0.0.1:0", "--listen-transfer", "127.0.0.1:0",
                        "--listen-metrics", "127.0.0.1:0", "--log-level", "warn", *more], scratch / "quarryd.log")
        self.servers = [server]
        return dict(word.split("=", 1) for word in server.read_line(processes.START_TIMEOUT_S).split() if "=" in word)


class QuarrySsd(Quarry):
    """quarryd whose SSD has room for two rounds and a half, and its memory for one and a quarter.

    Puts find both full and are held to what the SSD takes, so a round of them ends when as many bytes
    as it has were written. Before a round of gets it is stopped and started again: what was in memory
    is then on the SSD alone.
    """

    least_ssd_bytes = 512 << 20  # extents of several blocks each
    drain_timeout_s = processes.STOP_TIMEOUT_S - 5  # all that is in memory is written first

    def __init__(self, flags):
        super().__init__(flags)
        self._memory = flags.working_set * 5 // 4 + QUARRY_RESERVE_BYTES
        self._ssd = max(flags.working_set * 5 // 2, self.least_ssd_bytes)
        self._is_full = False
        self._scratch = None
        self._disk = None

    def start(self, block, scratch):
        self._disk = tempfile.TemporaryDirectory(prefix="quarry-compare-", dir=self.flags.ssd_dir)
        self._scratch = scratch
        self._is_full = False
        self.start_load([self.built("tools/peers/peer-load-quarry"), *self._launch(), "--inflight",
                         str(self.flags.inflight), *self.sizes(block)], scratch)

    def _launch(self):
        """Its addresses, as flags of the load program."""
        ready = self.start_server(self._memory, self._scratch,
                                  ["--ssd-dir", self._disk.name, "--ssd-size", f"{self._ssd}B", "--drain-timeout",
                                   f"{self.drain_timeout_s}s"])
        return ["--server", ready["transfer"], "--metrics", ready["metrics"], "--grpc", ready["grpc"]]

    def before(self, op):
        if op == "put" and not self._is_full:
            self._is_full = True
            return -(-(self._memory + self._ssd) // self.flags.working_set)
        if op == "get":
            self._is_full = False
            self.servers[0].stop()
            answer = self.load.ask("reconnect " + " ".join(self._launch()[1::2]))
            if answer["errors"]:
                self.load.fail(f"cannot reconnect: {answer['first_error']}")
        return 0

    def cpu_s(self):
        """With the client: a peer without a server has both in one."""
        return super().cpu_s() + self.load.cpu_s()

    def stop(self):
        super().stop()
        if self._disk:
            self._disk.cleanup()


class Redis(System):
    """Debian's redis-server, in memory only."""

    name = "redis"
    # Blocks asked for or sent ahead of their replies. With few, much of what is under way is in
    # the caches; with many, small ones wait for each other less.
    knob = "window"

    def knob_values(self):
        most = self.flags.batch * self.flags.inflight
        return sorted({min(most, blocks) for blocks in (1, 2, 4, 16, most)})

    def prepare(self):
        if shutil.which("redis-server") is None:
            raise CannotRun("redis-server is not installed (package redis-server)")
        self.built("tools/peers/peer-load-redis")

    def start(self, block, scratch):
        port = processes.free_port()
        server = Child(["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no",
                        "--dir", str(scratch)], scratch / "redis-server.log")
        self.servers = [server]
        server.wait_for_port(port)
        self.start_load([self.built("tools/peers/peer-load-redis"), "--server", f"127.0.0.1:{port}",
                         "--inflight", str(self.flags.inflight), *self.sizes(block)], scratch)


class Mooncake(System):
    """Its master, a process that holds the memory, and a client with registered buffers."""

    name = "mooncake"
    # More threads may make it slower.
    knob = "threads"

    def knob_values(self):
        return sorted({1, self.flags.connections, self.flags.connections * self.flags.inflight})
    # It reconnects for every transfer otherwise.
    environment = {"MC_TCP_ENABLE_CONNECTION_POOL": "1", "GLOG_minloglevel": "2"}

    def prepare(self):
        self._python = self.flags.build / "mooncake/bin/python"
        self.built("tools/peers/libpeer-load-blocks.so")
        self._install()
        loads = subprocess.run([self._python, "-c", "import mooncake.store"], capture_output=True, text=True,
                               check=False)
        if loads.returncode:
            said = loads.stderr.strip().splitlines()[-1]
            raise CannotRun(f"{MOONCAKE_PACKAGE} does not load ({said}); it needs {MOONCAKE_LIBRARIES}")
        processes.enter_private_network()

    def _install(self):
        """Into a virtual environment in the build folder, once."""
        venv = self._python.parents[1]
        done = venv / "installed"
        if done.exists() and done.read_text() == MOONCAKE_PACKAGE:
            return
        print(f"compare: installing {MOONCAKE_PACKAGE} into {venv}", file=sys.stderr)
        steps = ([sys.executable, "-m", "venv", "--clear", venv],
                 [self._python, "-m", "pip", "install", "--quiet", "--no-deps", MOONCAKE_PACKAGE])
        for step in steps:
            result = subprocess.run(step, capture_output=True, text=True, check=False)
            if result.returncode:
                raise CannotRun(f"cannot install {MOONCAKE_PACKAGE}: {(result.stdout + result.stderr).strip()[-500:]}")
        done.write_text(MOONCAKE_PACKAGE)

    def start(self, block, scratch):
        port = processes.free_port()
        master = f"127.0.0.1:{port}"
        load = str(HERE / "mooncake_load.py")
        package = next(self._python.parents[1].glob("lib/*/site-packages/mooncake"))
        server = Child([str(package / "mooncake_master"), "-rpc_port", str(port), "-metrics_port",
                        str(processes.free_port())], scratch / "mooncake_master.log", self.environment)
        self.servers = [server]
        server.wait_for_port(port)
        holder = Child([str(self._python), load, "serve", "--master", master, "--memory",
                        str(2 * self.flags.working_set)], scratch / "mooncake-serve.log", self.environment)
        self.servers.append(holder)
        holder.read_line(processes.START_TIMEOUT_S)
        self.start_load([str(self._python), load, "load", "--master", master, "--blocks-library",
                         self.built("tools/peers/libpeer-load-blocks.so"), *self.sizes(block)], scratch,
                        self.environment)


class BlobDb(System):
    """RocksDB with values in blob files, in the load program itself: no server and no network."""

    name = "blobdb"
    ops = ("put", "get")
    # Blocks of one write or one MultiGet.
    knob = "window"

    def __init__(self, flags):
        super().__init__(flags)
        self._disk = None

    def knob_values(self):
        return sorted({1, min(4, self.flags.batch), self.flags.batch})

    def prepare(self):
        self.built("tools/peers/peer-load-blobdb")
        if not os.access(self.flags.ssd_dir, os.W_OK):
            raise CannotRun(f"--ssd-dir: {self.flags.ssd_dir} is not there or not writable")

    def start(self, block, scratch):
        self._disk = tempfile.TemporaryDirectory(prefix="quarry-compare-", dir=self.flags.ssd_dir)
        self.start_load([self.built("tools/peers/peer-load-blobdb"), "--dir", self._disk.name, *self.sizes(block)],
                        scratch)

    def cpu_s(self):
        return self.load.cpu_s()

    def stop(self):
        super().stop()
        if self._disk:
            self._disk.cleanup()


PEERS = {"redis": Redis, "mooncake": Mooncake, "blobdb": BlobDb}
# What they are compared with, where it is not Quarry in memory.
QUARRY_FOR = {"blobdb": QuarrySsd}

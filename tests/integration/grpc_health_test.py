#!/usr/bin/python3
"""Admin.GetHealth and /readyz: every part is made unhealthy, and well again.

Usage: grpc_health_test.py QUARRYD [unittest arguments]
"""

import contextlib
import ctypes
import http.client
import os
import pathlib
import resource
import socket
import sys

import grpc

import grpc_case
import quarryd
import raw_session
from grpc_case import BLOCK_BYTES, GrpcCase, block_hash

MAX_CONNECTIONS = 64  # of the HTTP port
MAX_WATCHES = 1024
STREAMS_PER_CONNECTION = 256


@contextlib.contextmanager
def stopped_thread(pid, name):
    """One thread of a process does not run: a tracer holds it."""
    seize, interrupt, detach, wall = 0x4206, 0x4207, 17, 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long

    def ptrace(request, thread):
        if libc.ptrace(request, thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")
    thread = next(int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
                  if (task / "comm").read_text(encoding="utf-8").strip() == name)
    ptrace(seize, thread)
    ptrace(interrupt, thread)
    os.waitpid(thread, wall)
    try:
        yield
    finally:
        ptrace(detach, thread)


class HealthCase(GrpcCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        raw_session.T, raw_session.types = grpc_case.STUBS.transfer_pb2, grpc_case.STUBS.types_pb2

    def health(self):
        return self.call(self.admin.GetHealth, self.A.GetHealthRequest())

    def part(self, name):
        return next(part for part in self.health().parts if part.part == name)

    def readyz(self):
        connection = http.client.HTTPConnection(self.daemon.metrics, timeout=quarryd.DEADLINE_S)
        self.addCleanup(connection.close)
        connection.request("GET", "/readyz", headers={"Connection": "close"})
        response = connection.getresponse()
        return response.status, response.read().decode()

    def become(self, name, healthy, *words):
        """Waits until the part is so, and says so."""
        def reached():
            part = self.part(name)
            return part if part.healthy == healthy and all(word in part.detail for word in words) else None
        return quarryd.wait_until(reached, f"{name} is {'healthy' if healthy else 'not healthy'}, with {words}")

    def assert_not_ready(self, name, word):
        self.assertFalse(self.health().ready)
        status, body = self.readyz()
        self.assertEqual((status, name in body and word in body), (503, True), body)

    def assert_ready(self):
        quarryd.wait_until(lambda: self.health().ready, "ready again")
        self.assertEqual(self.readyz(), (200, "ok\n"))


class HealthTest(HealthCase):
    flags = {"memory": "128MiB", "slab": "16MiB", "max-sessions": "3"}

    def test_memory_is_unhealthy_while_puts_find_no_room(self):
        names = [f"{self.ns}{i}" for i in range(320)]  # all slabs
        self.put(names, sums=False)
        there = [name for name, there in zip(names, self.has(names)) if there][:280]
        pin = self.call(self.admin.Pin, self.A.PinRequest(namespace=self.ns, hashes=[block_hash(n) for n in there]))
        # Blocks of another size need a slab, and none can be emptied.
        small = self.T.GroupSpec(kind=self.T.GROUP_KIND_FULL, tokens_per_block=16, shards=1, shard_bytes=50_000)
        self.open("other size", groups=[small])

        def put_small(number):
            parts = self.put_parts([(f"small{number}", b"x" * 50_000)], ns="other size")
            return self.call(self.cache.Put, parts).outcomes[0]
        for number in range(20):
            self.assertEqual(put_small(number).reason, self.T.REFUSAL_REASON_NO_SPACE)
        self.become("memory", False, "20 of ", "refused for want of room", "pinned")
        self.assertTrue(self.health().ready, "what is there is still served")
        self.assertEqual(self.readyz()[0], 200)
        self.call(self.admin.Unpin, self.A.UnpinRequest(pin=pin.pin))
        self.assertEqual(put_small(20).kind, self.C.PutResponse.Outcome.KIND_STORED)
        self.become("memory", True)

    def test_sessions_are_unhealthy_while_no_more_may_open(self):
        self.become("sessions", True, "0 open")
        sessions = [raw_session.Session(self.daemon.transfer) for _ in range(3)]
        self.become("sessions", False, "--max-sessions")
        self.assert_not_ready("sessions", "--max-sessions")
        for session in sessions:
            session.close()
        self.become("sessions", True, "0 open")
        self.assert_ready()

    def test_sessions_are_unhealthy_while_connections_cannot_be_accepted(self):
        pid = self.daemon.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        self.addCleanup(resource.prlimit, pid, resource.RLIMIT_NOFILE, before)
        open_now = max(int(fd.name) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_now + 1, before[1]))
        host, port = self.daemon.transfer.rsplit(":", 1)
        waiting = []
        self.addCleanup(lambda: [one.close() for one in waiting])

        def fill():
            # Gaps below the greatest descriptor are taken first.
            waiting.append(socket.create_connection((host, int(port)), timeout=quarryd.DEADLINE_S))
            return not self.part("sessions").healthy
        quarryd.wait_until(fill, "no descriptor is left")
        self.become("sessions", False, "file descriptors")
        self.assertFalse(self.health().ready)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        self.become("sessions", True)
        self.assert_ready()

    def test_sessions_are_unhealthy_while_a_control_thread_does_not_run(self):
        with stopped_thread(self.daemon.pid, "q-control-0"):
            self.become("sessions", False, "control thread")
            self.assert_not_ready("sessions", "control thread")
        self.become("sessions", True)
        self.assert_ready()

    def test_the_scheduler_is_unhealthy_while_a_data_thread_does_not_run(self):
        with stopped_thread(self.daemon.pid, "q-data-1"):
            self.become("scheduler", False, "data thread")
            self.assert_not_ready("scheduler", "data thread")
        self.become("scheduler", True)
        self.assert_ready()

    def test_grpc_is_unhealthy_while_no_more_streams_may_begin(self):
        self.become("grpc", True, "0 gets, 0 puts, 0 watches")
        calls = []
        while len(calls) < MAX_WATCHES:
            channel = self.open_channel(("grpc.use_local_subchannel_pool", 1))
            cache = grpc_case.STUBS.cache_pb2_grpc.CacheStub(channel)
            calls += [cache.Watch(self.C.WatchRequest()) for _ in range(STREAMS_PER_CONNECTION - 8)]
        for call in calls[:MAX_WATCHES]:
            call.initial_metadata()
        self.become("grpc", False, f"{MAX_WATCHES} watches under way, as many as may be")
        self.assertTrue(self.health().ready)
        for call in calls:
            call.cancel()
        self.become("grpc", True, "0 watches")

    def test_metrics_are_unhealthy_while_all_connections_are_taken(self):
        host, port = self.daemon.metrics.rsplit(":", 1)
        with contextlib.ExitStack() as stack:
            for _ in range(MAX_CONNECTIONS):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=quarryd.DEADLINE_S))
            self.become("metrics", False, f"{MAX_CONNECTIONS} HTTP connections")
            self.assertTrue(self.health().ready)
        self.become("metrics", True)
        self.assertEqual(self.readyz()[0], 200)


class DrainTest(HealthCase):
    def test_a_drained_node_is_not_ready_and_its_sessions_say_why(self):
        self.call(self.admin.Drain, self.A.DrainRequest())
        self.assertFalse(self.health().ready)
        self.assertEqual(self.readyz(), (503, "draining\n"))
        self.become("sessions", False, "draining")
        self.assertEqual(self.daemon.stop()[0], 0)


if __name__ == "__main__":
    grpc_case.main(sys.argv)

#!/usr/bin/python3
"""Gets and puts over gRPC whose client stops doing its part.

Usage: grpc_idle_test.py QUARRYD [unittest arguments]
"""

import sys
import threading
import urllib.request

import grpc

import grpc_case
import quarryd
from grpc_case import BLOCK_BYTES, GrpcCase, block_hash, payload

LIMIT = "2s"


class IdleTest(GrpcCase):
    flags = {"grpc-stream-idle": LIMIT}

    def stats(self):
        return self.call(self.cache.Stats, self.C.StatsRequest())

    def errors(self, op):
        text = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=quarryd.DEADLINE_S).read()
        series = f'quarry_request_errors_total{{op="{op}"}} '
        return next(float(line[len(series):]) for line in text.decode().splitlines() if line.startswith(series))

    def stall(self, parts):
        """A put without a deadline that sends these messages and then nothing."""
        ended = threading.Event()
        self.addCleanup(ended.set)

        def messages():
            yield from parts
            ended.wait()
        return self.cache.Put.future(messages())

    def assert_idle(self, error):
        self.assertEqual(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertIn(LIMIT, error.details())
        self.assertIn("--grpc-stream-idle", error.details())

    def test_a_put_that_stalls_is_ended_and_the_limit_is_named(self):
        used = self.stats().used_bytes
        parts = list(self.put_parts([("whole", payload("whole")), ("part", payload("part"))]))
        call = self.stall(parts[:-1])
        quarryd.wait_until(lambda: self.stats().used_bytes >= used + 2 * BLOCK_BYTES, "slots for both")
        self.assertEqual(self.put(["part"])[0].reason, self.T.REFUSAL_REASON_IN_FLIGHT)
        self.assert_idle(call.exception(timeout=quarryd.DEADLINE_S))
        self.assertEqual(self.has(["whole", "part"]), [True, False], "what was whole stays, and nothing else is there")
        self.call(self.cache.Remove, self.C.RemoveRequest(namespace=self.ns, hashes=[block_hash("whole")]))
        quarryd.wait_until(lambda: self.stats().used_bytes == used, "the reservation is back")
        self.assertEqual(self.put(["part"])[0].kind, self.C.PutResponse.Outcome.KIND_STORED)

    def test_a_put_that_never_begins_is_ended(self):
        self.assert_idle(self.stall([]).exception(timeout=quarryd.DEADLINE_S))

    def test_a_put_that_goes_on_outlives_the_limit(self):
        other_ended = threading.Event()

        def messages():
            parts = iter(list(self.put_parts([("slow", payload("slow"))], piece=100)))
            yield next(parts)
            # Begun later, so when this one is ended the put has lasted longer than the limit.
            self.stall([]).add_done_callback(lambda _: other_ended.set())
            for part in parts:
                other_ended.wait(0.02)
                yield part
        outcomes = self.call(self.cache.Put, messages()).outcomes
        self.assertTrue(other_ended.is_set(), "it has lasted longer than the limit")
        self.assertEqual(outcomes[0].kind, self.C.PutResponse.Outcome.KIND_STORED)

    def test_a_get_that_is_not_taken_is_ended_and_holds_nothing(self):
        used, errors = self.stats().used_bytes, self.errors("get")
        names = [f"{self.ns}{i}" for i in range(100)]
        self.put(names)
        call = self.cache.Get(self.C.GetRequest(namespace=self.ns, hashes=[block_hash(n) for n in names] * 20))
        next(call)
        quarryd.wait_until(lambda: self.errors("get") == errors + 1, "the get is ended")
        # A slot that the call held would keep its memory from coming back.
        self.call(self.cache.Remove, self.C.RemoveRequest(namespace=self.ns, hashes=[block_hash(n) for n in names]))
        quarryd.wait_until(lambda: self.stats().used_bytes == used, "all slots are free")
        with self.assertRaises(grpc.RpcError) as caught:
            list(call)
        self.assert_idle(caught.exception)

    def test_a_watch_may_be_quiet(self):
        watch = self.cache.Watch(self.C.WatchRequest(namespace=self.ns))
        watch.initial_metadata()
        self.assert_idle(self.stall([]).exception(timeout=quarryd.DEADLINE_S))
        self.put([self.ns])
        self.assertEqual(next(watch).events[0].kind, self.C.WatchEvent.KIND_STORED)
        watch.cancel()


if __name__ == "__main__":
    grpc_case.main(sys.argv)

#!/usr/bin/python3
"""quarry.v1.Admin against a running daemon.

Usage: grpc_admin_test.py QUARRYD [unittest arguments]
"""

import re
import sys
import urllib.request

import grpc

import grpc_case
import quarryd
from grpc_case import BLOCK_BYTES, GrpcCase, block_hash, payload


class AdminTest(GrpcCase):
    flags = {"memory": "160MiB", "max-lease": "5s", "max-leased-blocks": "200"}

    def usage(self):
        usages = self.call(self.admin.ListNamespaces, self.A.ListNamespacesRequest()).namespaces
        return next((u for u in usages if u.namespace.name == self.ns), None)

    def stats(self):
        return self.call(self.cache.Stats, self.C.StatsRequest())

    def test_stats_tell_of_requests_their_time_and_the_bytes_served(self):
        def counts():
            stats = self.stats()
            return stats.served_bytes, {o.operation: (o.requests, o.errors, o.timed, o.time_ns) for o in stats.operations}

        served, before = counts()
        self.put([self.ns])
        self.get([self.ns, "none"])
        self.refused(grpc.StatusCode.NOT_FOUND, self.cache.Get, self.C.GetRequest(
            namespace="nowhere", hashes=[block_hash(self.ns)]))
        served_then, after = counts()
        self.assertEqual(served_then - served, BLOCK_BYTES)
        growth = {name: [a - b for a, b in zip(after[name], before[name])] for name in after}
        self.assertEqual((growth["put"][:3], growth["get"][:3], growth["match"]), ([1, 0, 1], [2, 1, 1], [0] * 4))
        self.assertTrue(growth["put"][3] > 0 and growth["get"][3] > 0, growth)

    def test_the_config_in_force_names_every_setting(self):
        values = {v.name: v for v in self.call(self.admin.GetConfig, self.A.GetConfigRequest()).values}
        self.assertEqual((values["memory"].value, values["memory"].given), ("160MiB", True))
        self.assertEqual((values["max-sessions"].value, values["max-sessions"].given), ("4096", False))
        self.assertEqual((values["insecure"].value, values["log-level"].reloadable), ("false", True))
        helped = quarryd.run_to_exit(grpc_case.BINARY, ["--help"]).stdout
        for name in values:
            self.assertIn(f"--{name}", helped)

    def test_namespaces_are_listed_with_what_they_hold_and_saved(self):
        names = [f"{self.ns}{i}" for i in range(4)]
        self.put(names)
        chain = self.C.MatchChain(hashes=[block_hash(n) for n in names] + [block_hash("none")])
        self.call(self.cache.Match, self.C.MatchRequest(namespace=self.ns, chains=[chain]))
        usage = self.usage()
        self.assertEqual((usage.blocks, usage.payload_bytes), (4, 4 * BLOCK_BYTES))
        self.assertEqual((usage.match_hashes, usage.match_hits, usage.saved_tokens), (5, 4, 4 * 16))
        self.assertEqual(usage.namespace.spec.model, "m")
        nobody = self.call(self.admin.ListNamespaces, self.A.ListNamespacesRequest(tenant="nobody"))
        self.assertEqual(len(nobody.namespaces), 0)

    def test_a_time_to_live_is_set_told_and_kept(self):
        request = self.C.OpenNamespaceRequest(namespace="brief", spec=self.spec(), ttl_ms=600_000)
        self.assertEqual(self.call(self.cache.OpenNamespace, request).namespace.ttl_ms, 600_000)
        self.put(["brief"], ns="brief")
        (block,) = self.call(self.cache.Lookup, self.C.LookupRequest(
            namespace="brief", hashes=[block_hash("brief")])).blocks
        self.assertLess(block.age_ms, 600_000)
        self.call(self.admin.SetNamespaceTtl, self.A.SetNamespaceTtlRequest(namespace="brief", ttl_ms=1_000))
        # Gone without anyone's asking for it.
        quarryd.wait_until(lambda: self.daemon.samples()['quarry_expired_blocks_total{tier="dram"}'] == 1, "its end")
        (block,) = self.call(self.cache.Lookup, self.C.LookupRequest(
            namespace="brief", hashes=[block_hash("brief")])).blocks
        self.assertEqual(block.miss, self.T.MISS_CAUSE_EXPIRED)
        self.assertEqual(self.call(self.cache.OpenNamespace, request).namespace.ttl_ms, 1_000)

    def test_bad_times_to_live_are_refused_by_field(self):
        for ttl_ms in (1, 999, 315_360_000_001):
            self.refuses_field("ttl_ms", self.admin.SetNamespaceTtl,
                               self.A.SetNamespaceTtlRequest(namespace=self.ns, ttl_ms=ttl_ms))
            self.refuses_field("ttl_ms", self.cache.OpenNamespace,
                               self.C.OpenNamespaceRequest(namespace="bad", spec=self.spec(), ttl_ms=ttl_ms))
        self.refused(grpc.StatusCode.NOT_FOUND, self.admin.SetNamespaceTtl,
                     self.A.SetNamespaceTtlRequest(namespace="none", ttl_ms=1_000))

    def test_a_flush_empties_the_namespace_at_once_and_gives_the_memory_back(self):
        names = [f"{self.ns}{i}" for i in range(50)]
        used = self.stats().used_bytes
        self.put(names)
        chain = self.C.MatchChain(hashes=[block_hash(n) for n in names])
        lease = self.call(self.cache.Match, self.C.MatchRequest(
            namespace=self.ns, chains=[chain], lease_ms=5_000)).lease
        watch = self.cache.Watch(self.C.WatchRequest(namespace=self.ns), timeout=quarryd.DEADLINE_S)
        watch.initial_metadata()
        flushed = self.call(self.admin.FlushNamespace, self.A.FlushNamespaceRequest(namespace=self.ns))
        self.assertEqual(flushed.blocks, 50)
        self.assertEqual(self.has(names), [False] * 50)
        self.assertEqual(self.usage().blocks, 0)
        self.refused(grpc.StatusCode.NOT_FOUND, self.cache.Get, self.C.GetRequest(
            namespace=self.ns, hashes=[block_hash(names[0])], lease=lease))
        quarryd.wait_until(lambda: self.stats().used_bytes <= used, "the memory is back")
        # It goes on as if new, and watchers are told so in one event.
        self.put(names[:1])
        self.assertEqual(self.get(names[:1])[0][names[0]], payload(names[0]))
        events = []
        while len(events) < 2:
            events += next(watch).events
        watch.cancel()
        self.assertEqual([e.kind for e in events],
                         [self.C.WatchEvent.KIND_CLEARED, self.C.WatchEvent.KIND_STORED])

    def test_a_retired_namespace_is_not_known_and_its_name_is_free(self):
        self.put([self.ns])
        before = self.open(self.ns).namespace
        self.call(self.admin.RetireNamespace, self.A.RetireNamespaceRequest(namespace=self.ns))
        self.assertIsNone(self.usage())
        self.refused(grpc.StatusCode.NOT_FOUND, self.cache.Lookup, self.C.LookupRequest(
            namespace=self.ns, hashes=[block_hash(self.ns)]))
        self.refused(grpc.StatusCode.NOT_FOUND, self.admin.RetireNamespace,
                     self.A.RetireNamespaceRequest(namespace=self.ns))
        other = self.open(self.ns, kv_dtype="fp8").namespace
        self.assertNotEqual(other.id, before.id)
        self.assertEqual(self.has([self.ns]), [False])

    def test_pinned_blocks_outlive_a_flood_and_go_when_unpinned(self):
        kept = [f"kept{i}" for i in range(10)]
        flood = [f"flood{i}" for i in range(800)]
        self.put(kept)
        pin = self.call(self.admin.Pin, self.A.PinRequest(
            namespace=self.ns, hashes=[block_hash(n) for n in kept] + [block_hash("not there")]))
        self.assertEqual(pin.pinned, 10)
        self.put(flood, sums=False)
        self.assertEqual(self.has(kept), [True] * 10)
        self.call(self.admin.Unpin, self.A.UnpinRequest(pin=pin.pin))
        self.put([f"{n}again" for n in flood], sums=False)
        self.assertEqual(self.has(kept), [False] * 10)
        self.refused(grpc.StatusCode.NOT_FOUND, self.admin.Unpin, self.A.UnpinRequest(pin=pin.pin))

    def test_a_pin_beyond_the_bound_on_leases_pins_nothing(self):
        names = [f"{self.ns}{i}" for i in range(201)]
        self.put(names, sums=False)
        quota = self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, self.admin.Pin, self.A.PinRequest(
            namespace=self.ns, hashes=[block_hash(n) for n in names]))
        self.assertEqual(quota.violations[0].subject, "hashes")
        quarryd.wait_until(lambda: self.stats().leases == 0, "no lease is left")
        pin = self.call(self.admin.Pin, self.A.PinRequest(
            namespace=self.ns, hashes=[block_hash(n) for n in names[:200]]))
        self.call(self.admin.Unpin, self.A.UnpinRequest(pin=pin.pin))

    def test_nothing_to_pin_is_no_pin(self):
        pin = self.call(self.admin.Pin, self.A.PinRequest(namespace=self.ns, hashes=[block_hash("not there")]))
        self.assertEqual((pin.pinned, pin.pin), (0, b""))

    def test_warming_is_a_use_and_says_what_is_in_dram(self):
        self.put(["w"])
        warm = self.call(self.admin.Warm, self.A.WarmRequest(
            namespace=self.ns, hashes=[block_hash("w"), block_hash("none")]))
        self.assertEqual(warm.in_dram, 1)

    def test_the_log_level_can_be_changed_and_is_told(self):
        def level(name):
            return self.call(self.admin.SetLogLevel, self.A.SetLogLevelRequest(level=name)).before
        self.assertEqual(level("debug"), "info")
        values = {v.name: v.value for v in self.call(self.admin.GetConfig, self.A.GetConfigRequest()).values}
        self.assertEqual(values["log-level"], "debug")
        self.assertEqual([level("warn"), level("error"), level("off"), level("info")],
                         ["debug", "warn", "error", "off"])
        self.assertIn("trace|debug", self.refuses_field(
            "level", self.admin.SetLogLevel, self.A.SetLogLevelRequest(level="loud")))

    def test_health_tells_of_each_part(self):
        health = self.call(self.admin.GetHealth, self.A.GetHealthRequest())
        self.assertTrue(health.ready)
        self.assertEqual({p.part for p in health.parts},
                         {"memory", "sessions", "scheduler", "grpc", "metrics", "integrity"})
        self.assertTrue(all(p.healthy and p.detail for p in health.parts))

    def test_hashes_are_checked_by_field(self):
        for method, request in ((self.admin.Pin, self.A.PinRequest), (self.admin.Warm, self.A.WarmRequest)):
            self.refuses_field("hashes", method, request(namespace=self.ns))
            self.refuses_field("hashes[0]", method, request(namespace=self.ns, hashes=[b"short"]))
            self.refuses_field("group", method, request(namespace=self.ns, group=1, hashes=[block_hash("x")]))
            self.refused(grpc.StatusCode.NOT_FOUND, method, request(namespace="none", hashes=[block_hash("x")]))


class CountingTest(GrpcCase):
    """Every call of both services is counted and timed; a new one cannot be forgotten."""

    def counts(self, op):
        """How many requests, errors and durations."""
        text = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=quarryd.DEADLINE_S).read()
        lines = text.decode().splitlines()
        series = [f'quarry_{name}{{op="{op}"}} ' for name in (
            "requests_total", "request_errors_total", "request_duration_seconds_count")]
        found = [float(line[len(one):]) for one in series for line in lines if line.startswith(one)]
        self.assertEqual(len(found), 3, f"{op} has no series")
        return found

    def answers(self, stub, method):
        """Whether a call with an empty request is answered well; a watch is left at its beginning."""
        request = getattr(self.C if method.containing_service.name == "Cache" else self.A, method.input_type.name)()
        name = method.name
        try:
            if name == "Put":
                self.call(stub.Put, iter([request]))
            elif name == "Watch":
                call = stub.Watch(request, timeout=quarryd.DEADLINE_S)
                call.initial_metadata()
                call.cancel()
            elif name == "Get":
                list(self.call(stub.Get, request))
            else:
                self.call(getattr(stub, name), request)
        except grpc.RpcError:
            return False
        return True

    def test_every_call_is_counted_once(self):
        services = [(self.cache, self.C.DESCRIPTOR.services_by_name["Cache"]),
                    (self.admin, self.A.DESCRIPTOR.services_by_name["Admin"])]
        calls = [(stub, method) for stub, service in services for method in service.methods]
        self.assertGreaterEqual(len(calls), 20)
        # Afterwards nothing else is served.
        calls.sort(key=lambda call: call[1].name == "Drain")
        for stub, method in calls:
            op = re.sub("(?<=[a-z])(?=[A-Z])", "_", method.name).lower()
            with self.subTest(op):
                before = self.counts(op)
                well = self.answers(stub, method)
                requests, errors, durations = (now - then for now, then in zip(self.counts(op), before))
                self.assertEqual((requests, errors), (1, 0 if well else 1))
                if well and method.name != "Watch":
                    self.assertEqual(durations, 1)


class DrainTest(GrpcCase):
    def test_a_drained_node_refuses_new_work_and_says_so(self):
        self.put([self.ns])
        self.call(self.admin.Drain, self.A.DrainRequest())
        for method, request in ((self.cache.Match, self.C.MatchRequest(namespace=self.ns)),
                                (self.cache.Get, self.C.GetRequest(namespace=self.ns)),
                                (self.cache.OpenNamespace, self.C.OpenNamespaceRequest(namespace="new")),
                                (self.cache.Watch, self.C.WatchRequest())):
            with self.assertRaises(grpc.RpcError) as caught:
                reply = self.call(method, request)
                if hasattr(reply, "__next__"):
                    list(reply)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertFalse(self.call(self.admin.GetHealth, self.A.GetHealthRequest()).ready)
        code, _ = self.daemon.stop()
        self.assertEqual(code, 0)


if __name__ == "__main__":
    grpc_case.main(sys.argv)

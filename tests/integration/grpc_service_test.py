#!/usr/bin/python3
"""What every gRPC server has, and how a drain looks through gRPC: health, reflection, stats.

Usage: grpc_service_test.py QUARRYD [unittest arguments]
"""

import signal
import sys

import grpc

import grpc_case
import quarryd
import raw_session
from grpc_case import GrpcCase

SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse{status: SERVING}
NOT_SERVING = b"\x08\x02"


def health_of(channel, service=b""):
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    request = b"\x0a" + bytes([len(service)]) + service if service else b""
    return check(request, timeout=quarryd.DEADLINE_S, wait_for_ready=True)


class ServiceCase(GrpcCase):
    def setUp(self):
        self.channel = self.open_channel()

    def session(self):
        session = raw_session.Session(self.daemon.transfer)
        self.addCleanup(session.close)
        return session


class ServiceTest(ServiceCase):
    def test_answers_health_and_reflection(self):
        self.assertEqual(health_of(self.channel), SERVING)
        self.assertEqual(health_of(self.channel, b"quarry.v1.Cache"), SERVING)
        with self.assertRaises(grpc.RpcError) as caught:
            health_of(self.channel, b"no.such.Service")
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

        reflect = self.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        list_services = b"\x3a\x01*"
        (reply,) = list(reflect(iter([list_services]), timeout=quarryd.DEADLINE_S))
        for service in (b"quarry.v1.Cache", b"quarry.v1.Admin", b"grpc.health.v1.Health"):
            self.assertIn(service, reply)

    def test_stats_tell_version_memory_and_namespaces(self):
        stats = self.call(self.cache.Stats, self.C.StatsRequest())
        self.assertRegex(stats.version, r"^\d+\.\d+\.\d+$")
        self.assertGreater(stats.arena_bytes, 64 << 20)
        self.assertLess(stats.arena_bytes, 192 << 20)
        self.assertEqual(stats.used_bytes, 0)
        self.assertFalse(stats.draining)
        self.assertEqual(len(stats.namespaces), 0)

        opened = self.session().body("namespace_reply", open_namespace=raw_session.T.OpenNamespace(
            name="demo", spec=raw_session.model_spec()))
        stats = self.call(self.cache.Stats, self.C.StatsRequest())
        self.assertEqual(stats.sessions, 1)
        (namespace,) = stats.namespaces
        self.assertEqual((namespace.tenant, namespace.name, namespace.id), ("default", "demo", opened.id))
        self.assertEqual(namespace.spec.groups[0].tokens_per_block, 16)


class MatchCountTest(ServiceCase):
    def test_a_match_that_is_refused_is_counted_as_an_error(self):
        self.open("demo")

        def refused(code, *parts, namespace="demo", **fields):
            with self.assertRaises(grpc.RpcError) as caught:
                self.call(self.cache.Match, self.C.MatchRequest(namespace=namespace, **fields))
            self.assertEqual(caught.exception.code(), code, caught.exception)
            for part in parts:
                self.assertIn(part, caught.exception.details())

        def chain(*hashes, **fields):
            return [self.C.MatchChain(hashes=hashes, **fields)]

        reply = self.call(self.cache.Match, self.C.MatchRequest(namespace="demo", chains=chain(b"a" * 32, b"b" * 32)))
        self.assertEqual(reply.usable_tokens, 0)
        self.assertEqual(list(reply.chains[0].states), [self.T.BLOCK_STATE_ABSENT] * 2)
        self.assertEqual(reply.first_miss, self.T.MISS_CAUSE_NEVER_STORED)
        self.assertEqual(reply.lease, b"")

        bad = grpc.StatusCode.INVALID_ARGUMENT
        refused(grpc.StatusCode.NOT_FOUND, "nowhere", namespace="nowhere")
        refused(grpc.StatusCode.NOT_FOUND, "demo", tenant="somebody else")
        for size in (0, 15, 65):
            refused(bad, f"chains[0].hashes[1]: {size} bytes", "32", chains=chain(b"a" * 32, b"x" * size))
        refused(bad, "chains[0].group", chains=chain(b"a" * 32, group=1))
        refused(bad, "65536", chains=chain(*[b"a" * 32] * 65537))
        refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "8388608", chains=chain(b"a" * (9 << 20)))

        samples = self.daemon.samples()
        self.assertEqual(samples['quarry_requests_total{op="match"}'], 8)
        self.assertEqual(samples['quarry_request_errors_total{op="match"}'], 7)
        self.assertGreaterEqual(samples["quarry_match_hashes_total"], 2)


class StopTest(ServiceCase):
    def test_stops_with_0_beside_open_sessions_and_calls(self):
        self.session().open("demo")
        self.assertEqual(health_of(self.channel), SERVING)
        code, _ = self.daemon.stop()
        self.assertEqual(code, 0, self.daemon.log())


class DrainTest(ServiceCase):
    flags = {"drain_timeout": "1h"}

    def test_a_drain_refuses_new_work_and_says_so_everywhere(self):
        self.assertEqual(health_of(self.channel), SERVING)
        session = self.session()
        session.start_put(session.open("demo"), raw_session.hashes_of("drain", 1), ())
        session.wait(lambda: session.pulls, "the pull")
        self.daemon.send(signal.SIGTERM)
        session.wait(lambda: 0 in session.messages, "the word that it drains")
        self.assertEqual(session.messages[0][0].WhichOneof("body"), "draining")
        self.assertEqual(health_of(self.channel), NOT_SERVING)
        self.assertEqual(health_of(self.channel, b"quarry.v1.Cache"), NOT_SERVING)
        self.assertEqual(self.daemon.http("/readyz"), (503, "draining\n"))
        self.assertEqual(self.daemon.http("/livez")[0], 200)
        self.assertEqual(self.daemon.samples()["quarry_draining"], 1)
        self.assertTrue(self.call(self.cache.Stats, self.C.StatsRequest()).draining)
        with self.assertRaises(grpc.RpcError) as caught:
            self.call(self.cache.Match, self.C.MatchRequest(namespace="demo"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        # Ends once the request does.
        session.close()
        code, _ = self.daemon.wait()
        self.assertEqual(code, 0, self.daemon.log())
        self.assertIn("drained", self.daemon.log())


if __name__ == "__main__":
    raw_session.load_stubs()
    grpc_case.main(sys.argv)

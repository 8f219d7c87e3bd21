#!/usr/bin/python3
"""The daemon from outside: start, settings, gRPC, metrics, signals, exit codes.

Usage: daemon_test.py QUARRYD [unittest arguments]
"""

import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import grpc

import quarryd

BINARY = ""
CACHE = CACHE_GRPC = TRANSFER = TYPES = None

SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse{status: SERVING}
NOT_SERVING = b"\x08\x02"


def channel_to(address):
    # A proxy of the environment must not come between a test and its daemon.
    return grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])


def stub_for(channel):
    return CACHE_GRPC.CacheStub(channel)


def health_of(channel, service=b""):
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    request = b"\x0a" + bytes([len(service)]) + service if service else b""
    return check(request, timeout=quarryd.DEADLINE_S, wait_for_ready=True)


def http_get(address, path, method="GET"):
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=quarryd.DEADLINE_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8")
    finally:
        connection.close()


def sample(text, series):
    for line in text.splitlines():
        if line.startswith(series + " "):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no series {series} in\n{text}")


class Stream:
    """The least of the session protocol: the preface and messages."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=quarryd.DEADLINE_S)
        self._socket.sendall(b"QUARRY1\n")
        self._request = 0

    def close(self):
        self._socket.close()

    def send(self, **body):
        self._request += 1
        message = TRANSFER.ClientMessage(request=self._request, **body).SerializeToString()
        self._socket.sendall(struct.pack("<I", len(message)) + message)

    def receive(self):
        (size,) = struct.unpack("<I", self._read(4))
        return TRANSFER.ServerMessage.FromString(self._read(size))

    def ask(self, **body):
        self.send(**body)
        return self.receive()

    def _read(self, size):
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise AssertionError("the daemon closed the session")
            data += part
        return data


class Session(Stream):
    def __init__(self, address):
        super().__init__(address)
        self._address = address
        self._data = None
        self._secret = self.ask(hello=TRANSFER.Hello(major=1, client="daemon_test")).hello_reply.session

    def close(self):
        super().close()
        if self._data is not None:
            self._data.close()

    def open_namespace(self, name):
        group = TYPES.GroupSpec(kind=TYPES.GROUP_KIND_FULL, tokens_per_block=16, shards=1, shard_bytes=4096,
                                exact_bytes=True)
        spec = TYPES.ModelSpec(engine="test", model="m", kv_dtype="bfloat16", hash_scheme="sha256", hash_bytes=32,
                               layers=1, groups=[group])
        reply = self.ask(open_namespace=TRANSFER.OpenNamespace(name=name, spec=spec))
        assert reply.WhichOneof("body") == "namespace_reply", reply
        return reply.namespace_reply

    def begin_endless_put(self):
        """Offers a block and never sends it: a request that stays under way."""
        self._data = Stream(self._address)
        self._data.ask(data_hello=TRANSFER.DataHello(major=1, session=self._secret))
        handle = self.open_namespace("demo").handle
        run = TRANSFER.PutRun(hashes=b"a" * 32, bytes=[4096])
        self.send(put=TRANSFER.Put(handle=handle, runs=[run]))


class DaemonTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="quarry-daemon-")
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *extra, environment=None, **override):
        daemon = quarryd.Quarryd(BINARY, [*quarryd.private_flags(**override), *extra], environment)
        self.addCleanup(daemon.kill)
        return daemon

    def channel(self, address):
        channel = channel_to(address)
        self.addCleanup(channel.close)
        return channel

    def file(self, text, name="quarryd.toml"):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def refused(self, arguments, code, *parts, environment=None):
        """Exits with `code` and one line on stderr that has all the parts."""
        result = quarryd.run_to_exit(BINARY, arguments, environment)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        complaints = [line for line in result.stderr.splitlines() if line.startswith("quarryd: ")]
        self.assertEqual(len(complaints), 1, result.stderr)
        for part in parts:
            self.assertIn(part, complaints[0])

    # -------------------------------------------------------------- queries

    def test_answers_health_and_reflection(self):
        channel = self.channel(self.start().grpc)
        self.assertEqual(health_of(channel), SERVING)
        self.assertEqual(health_of(channel, b"quarry.v1.Cache"), SERVING)
        with self.assertRaises(grpc.RpcError) as caught:
            health_of(channel, b"no.such.Service")
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

        reflect = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        list_services = b"\x3a\x01*"
        (reply,) = list(reflect(iter([list_services]), timeout=quarryd.DEADLINE_S))
        for service in (b"quarry.v1.Cache", b"grpc.health.v1.Health"):
            self.assertIn(service, reply)

    def test_stats_tell_version_memory_and_namespaces(self):
        daemon = self.start()
        stub = stub_for(self.channel(daemon.grpc))
        stats = stub.Stats(CACHE.StatsRequest(), timeout=quarryd.DEADLINE_S)
        self.assertRegex(stats.version, r"^\d+\.\d+\.\d+$")
        self.assertGreater(stats.arena_bytes, 64 << 20)
        self.assertLess(stats.arena_bytes, 192 << 20)
        self.assertEqual(stats.used_bytes, 0)
        self.assertFalse(stats.draining)
        self.assertEqual(len(stats.namespaces), 0)

        session = Session(daemon.transfer)
        self.addCleanup(session.close)
        opened = session.open_namespace("demo")
        stats = stub.Stats(CACHE.StatsRequest(), timeout=quarryd.DEADLINE_S)
        self.assertEqual(stats.sessions, 1)
        (namespace,) = stats.namespaces
        self.assertEqual((namespace.tenant, namespace.name, namespace.id), ("default", "demo", opened.id))
        self.assertEqual(namespace.spec.groups[0].tokens_per_block, 16)

    def test_match_answers_and_names_what_is_wrong(self):
        daemon = self.start()
        stub = stub_for(self.channel(daemon.grpc))
        session = Session(daemon.transfer)
        self.addCleanup(session.close)
        session.open_namespace("demo")

        def match(namespace="demo", **fields):
            return stub.Match(CACHE.MatchRequest(namespace=namespace, **fields), timeout=quarryd.DEADLINE_S)

        def refused(code, *parts, **fields):
            with self.assertRaises(grpc.RpcError) as caught:
                match(**fields)
            self.assertEqual(caught.exception.code(), code, caught.exception)
            for part in parts:
                self.assertIn(part, caught.exception.details())

        reply = match(chains=[CACHE.MatchChain(hashes=[b"a" * 32, b"b" * 32])])
        self.assertEqual(reply.usable_tokens, 0)
        self.assertEqual(list(reply.chains[0].states), [TYPES.BLOCK_STATE_ABSENT] * 2)
        self.assertEqual(reply.first_miss, TYPES.MISS_CAUSE_NEVER_STORED)
        self.assertEqual(reply.lease, b"")

        bad = grpc.StatusCode.INVALID_ARGUMENT
        refused(grpc.StatusCode.NOT_FOUND, "nowhere", namespace="nowhere")
        refused(grpc.StatusCode.NOT_FOUND, "demo", tenant="somebody else")
        for size in (0, 15, 65):
            hashes = [b"a" * 32, b"x" * size]
            refused(bad, f"chains[0].hashes[1]: {size} bytes", "32", chains=[CACHE.MatchChain(hashes=hashes)])
        refused(bad, "chains[0].group", chains=[CACHE.MatchChain(group=1, hashes=[b"a" * 32])])
        refused(bad, "65536", chains=[CACHE.MatchChain(hashes=[b"a" * 32] * 65537)])
        refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "8388608",
                chains=[CACHE.MatchChain(hashes=[b"a" * (9 << 20)])])

        _, text = http_get(daemon.metrics, "/metrics")
        self.assertEqual(sample(text, 'quarry_requests_total{op="match"}'), 8)
        self.assertEqual(sample(text, 'quarry_request_errors_total{op="match"}'), 7)
        self.assertGreaterEqual(sample(text, "quarry_match_hashes_total"), 2)

    # -------------------------------------------------------------- metrics

    def test_metrics_pass_promtool(self):
        daemon = self.start()
        session = Session(daemon.transfer)
        self.addCleanup(session.close)
        session.open_namespace("demo")
        status, text = http_get(daemon.metrics, "/metrics")
        self.assertEqual(status, 200)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                                 check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertEqual(checked.stdout + checked.stderr, "")
        self.assertEqual(sample(text, "quarry_sessions"), 1)
        self.assertGreater(sample(text, 'quarry_arena_bytes{tier="dram"}'), 64 << 20)
        for family in ("quarry_build_info", "process_start_time_seconds", "quarry_misses_total",
                       "quarry_refusals_total", "quarry_evicted_blocks_total", "quarry_request_duration_seconds",
                       "quarry_transfer_bytes_total", "quarry_slots", "quarry_leases", "quarry_index_bytes"):
            self.assertIn(f"# TYPE {family} ", text)

    def test_probes_and_other_paths(self):
        daemon = self.start()
        self.assertEqual(http_get(daemon.metrics, "/livez"), (200, "ok\n"))
        self.assertEqual(http_get(daemon.metrics, "/readyz"), (200, "ok\n"))
        self.assertEqual(http_get(daemon.metrics, "/")[0], 404)
        self.assertEqual(http_get(daemon.metrics, "/etc/passwd")[0], 404)
        self.assertEqual(http_get(daemon.metrics, "/metrics", method="POST")[0], 405)
        self.assertEqual(http_get(daemon.metrics, "/livez", method="HEAD"), (200, ""))

    # ------------------------------------------------------ start and stop

    def test_stops_with_0_on_sigterm_and_sigint(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            daemon = self.start()
            code, rest = daemon.stop(number)
            self.assertEqual(code, 0, daemon.log())
            self.assertEqual(rest, "", "more than one line on stdout")
            self.assertIn("drained", daemon.log())

    def test_stops_with_0_beside_open_sessions_and_calls(self):
        daemon = self.start()
        session = Session(daemon.transfer)
        self.addCleanup(session.close)
        session.open_namespace("demo")
        self.assertEqual(health_of(self.channel(daemon.grpc)), SERVING)
        code, _ = daemon.stop()
        self.assertEqual(code, 0, daemon.log())

    def test_a_drain_refuses_new_work_and_says_so_everywhere(self):
        daemon = self.start("--drain-timeout", "1h")
        channel = self.channel(daemon.grpc)
        self.assertEqual(health_of(channel), SERVING)
        session = Session(daemon.transfer)
        self.addCleanup(session.close)
        session.begin_endless_put()
        self.wait_for_put(daemon)
        daemon.send(signal.SIGTERM)
        self.assertEqual(session.receive().WhichOneof("body"), "draining")
        self.assertEqual(health_of(channel), NOT_SERVING)
        self.assertEqual(health_of(channel, b"quarry.v1.Cache"), NOT_SERVING)
        self.assertEqual(http_get(daemon.metrics, "/readyz"), (503, "draining\n"))
        self.assertEqual(http_get(daemon.metrics, "/livez")[0], 200)
        self.assertEqual(sample(http_get(daemon.metrics, "/metrics")[1], "quarry_draining"), 1)
        stub = stub_for(channel)
        self.assertTrue(stub.Stats(CACHE.StatsRequest(), timeout=quarryd.DEADLINE_S).draining)
        with self.assertRaises(grpc.RpcError) as caught:
            stub.Match(CACHE.MatchRequest(namespace="demo"), timeout=quarryd.DEADLINE_S)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        # Ends once the request does.
        session.close()
        code, _ = daemon.wait()
        self.assertEqual(code, 0, daemon.log())
        self.assertIn("drained", daemon.log())

    def test_a_drain_ends_with_its_timeout_or_a_second_signal(self):
        for timeout, second, said in (("100ms", False, "still under way after 100ms"), ("1h", True, "second signal")):
            daemon = self.start("--drain-timeout", timeout)
            session = Session(daemon.transfer)
            self.addCleanup(session.close)
            session.begin_endless_put()
            self.wait_for_put(daemon)
            daemon.send(signal.SIGTERM)
            if second:
                daemon.wait_for_log("draining")
                daemon.send(signal.SIGTERM)
            code, _ = daemon.wait()
            self.assertEqual(code, 0, daemon.log())
            self.assertIn(said, daemon.log())

    def wait_for_put(self, daemon):
        def under_way():
            return sample(http_get(daemon.metrics, "/metrics")[1], "quarry_in_flight_puts") == 1
        quarryd.wait_until(under_way, "a put under way")

    def test_a_restart_on_the_same_ports_works_at_once(self):
        first = self.start()
        session = Session(first.transfer)
        self.addCleanup(session.close)
        http_get(first.metrics, "/livez")
        self.assertEqual(health_of(self.channel(first.grpc)), SERVING)
        ports = {"listen_grpc": first.grpc, "listen_transfer": first.transfer, "listen_metrics": first.metrics}
        self.assertEqual(first.stop()[0], 0)
        second = self.start(**ports)
        self.assertEqual((second.grpc, second.transfer, second.metrics), tuple(ports.values()))

    def test_notifies_systemd(self):
        path = os.path.join(self.folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(path)
            listener.settimeout(quarryd.DEADLINE_S)
            daemon = self.start(environment={"NOTIFY_SOCKET": path})
            self.assertEqual(listener.recv(64), b"READY=1")
            self.assertEqual(daemon.stop()[0], 0)
            self.assertEqual(listener.recv(64), b"STOPPING=1")

    def test_sighup_reloads_the_log_level_and_reports_the_rest(self):
        config = self.file('log-level = "info"\n')
        daemon = self.start("--config", config)
        self.file('log-level = "debug"\ndata-threads = 3\n')
        daemon.send(signal.SIGHUP)
        daemon.wait_for_log("reload: applied: log-level; need a restart: data-threads")
        self.file('log-level = "loud"\n')
        daemon.send(signal.SIGHUP)
        daemon.wait_for_log("--log-level")
        self.assertEqual(http_get(daemon.metrics, "/livez")[0], 200)
        self.assertEqual(daemon.stop()[0], 0)

    def test_logs_json_lines(self):
        daemon = self.start("--log-format", "json")
        self.assertEqual(daemon.stop()[0], 0)
        lines = daemon.log().splitlines()
        self.assertGreater(len(lines), 2)
        for line in lines:
            self.assertEqual(set(json.loads(line)), {"time", "level", "message"})

    # ------------------------------------------------------------- settings

    def test_reads_file_and_environment(self):
        config = self.file('listen-grpc = ["127.0.0.1:0", "127.0.0.2:0"]\nnode-name = "from-file"\n')
        daemon = self.start("--config", config, listen_grpc=None,
                            environment={"QUARRY_NODE_NAME": "from-environment"})
        self.assertIn("127.0.0.2:", daemon.log())
        self.assertIn('node="from-environment"', http_get(daemon.metrics, "/metrics")[1])

    def test_advertised_addresses_are_in_the_ready_line(self):
        daemon = self.start("--advertise-grpc", "cache-7.example:7420")
        self.assertEqual(daemon.grpc, "cache-7.example:7420")
        self.assertRegex(daemon.transfer, r"^127\.0\.0\.1:\d+$")

    def test_listens_on_a_unix_socket(self):
        path = os.path.join(self.folder, "q.sock")
        daemon = self.start(socket=path)
        self.assertEqual(daemon.socket, path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)

    def test_listens_on_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        daemon = self.start(listen_grpc="[::1]:0", listen_transfer="[::1]:0", listen_metrics="[::1]:0")
        for address in (daemon.grpc, daemon.transfer, daemon.metrics):
            self.assertRegex(address, r"^\[::1\]:\d+$")
        self.assertEqual(health_of(self.channel(daemon.grpc)), SERVING)
        self.assertEqual(http_get(daemon.metrics, "/readyz")[0], 200)
        with socket.create_connection(("::1", int(daemon.transfer.rsplit(":", 1)[1]))):
            pass

    def test_beyond_loopback_takes_insecure(self):
        for flag in ("listen_grpc", "listen_transfer", "listen_metrics"):
            arguments = quarryd.private_flags(**{flag: "0.0.0.0:0"})
            self.refused(arguments, 2, "--" + flag.replace("_", "-"), "0.0.0.0:0", "--insecure")

    def test_bad_usage_exits_with_2(self):
        self.refused(["--memroy", "1GiB"], 2, "--memroy")
        self.refused(["--memory", "1MiB"], 2, "--memory", "128MiB")
        self.refused(["--max-lease", "soon"], 2, "--max-lease", "soon")
        self.refused(["--config", os.path.join(self.folder, "absent.toml")], 2, "--config", "absent.toml")
        self.refused(["--config", self.folder], 2, "--config", self.folder)
        self.refused(["--config", self.file("memroy = 3\n")], 2, "memroy")
        self.refused([], 2, "--memory", environment={"QUARRY_MEMORY": "much"})

    def test_a_port_in_use_is_a_clean_failure(self):
        first = self.start()
        for flag, address in (("listen_grpc", first.grpc), ("listen_transfer", first.transfer),
                              ("listen_metrics", first.metrics)):
            arguments = quarryd.private_flags(**{flag: address})
            self.refused(arguments, 1, "--" + flag.replace("_", "-"), address, "in use")
        self.assertEqual(health_of(self.channel(first.grpc)), SERVING)

    def test_a_socket_in_use_is_a_clean_failure(self):
        path = os.path.join(self.folder, "q.sock")
        self.start(socket=path)
        self.refused(quarryd.private_flags(socket=path), 1, path)

    def test_a_stale_socket_is_replaced(self):
        path = os.path.join(self.folder, "q.sock")
        first = self.start(socket=path)
        first.kill()
        self.assertEqual(self.start(socket=path).socket, path)


def main():
    # pylint: disable=global-statement
    global BINARY, CACHE, CACHE_GRPC, TRANSFER, TYPES
    BINARY = sys.argv.pop(1)
    stubs = quarryd.generate_stubs()
    CACHE, CACHE_GRPC, TRANSFER, TYPES = stubs.cache_pb2, stubs.cache_pb2_grpc, stubs.transfer_pb2, stubs.types_pb2
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""The daemon from outside: start, settings, metrics, signals, exit codes. No gRPC call: so it can run under
ThreadSanitizer (see grpc_service_test.py).

Usage: daemon_test.py QUARRYD [unittest arguments]
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import quarryd
import raw_session

BINARY = ""


class DaemonTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="quarry-daemon-")
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *extra, environment=None, **override):
        daemon = quarryd.Quarryd(BINARY, [*quarryd.private_flags(**override), *extra], environment)
        self.addCleanup(daemon.kill)
        return daemon

    def session(self, daemon):
        session = raw_session.Session(daemon.transfer)
        self.addCleanup(session.close)
        return session

    def endless_put(self, daemon):
        """Offers a block and never sends it: a request that stays under way."""
        session = self.session(daemon)
        session.start_put(session.open("demo"), raw_session.hashes_of("endless", 1), ())
        session.wait(lambda: session.pulls, "the pull")

    def accepts(self, address):
        raw_session.connect(address).close()

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

    # -------------------------------------------------------------- metrics

    def test_metrics_pass_promtool(self):
        daemon = self.start()
        self.session(daemon).open("demo")
        status, text = daemon.http("/metrics")
        self.assertEqual(status, 200)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                                 check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertEqual(checked.stdout + checked.stderr, "")
        samples = daemon.samples()
        self.assertEqual(samples["quarry_sessions"], 1)
        self.assertGreater(samples['quarry_arena_bytes{tier="dram"}'], 64 << 20)
        for family in ("quarry_build_info", "process_start_time_seconds", "quarry_misses_total",
                       "quarry_refusals_total", "quarry_evicted_blocks_total", "quarry_request_duration_seconds",
                       "quarry_transfer_bytes_total", "quarry_slots", "quarry_leases", "quarry_index_bytes"):
            self.assertIn(f"# TYPE {family} ", text)

    def test_probes_and_other_paths(self):
        daemon = self.start()
        self.assertEqual(daemon.http("/livez"), (200, "ok\n"))
        self.assertEqual(daemon.http("/readyz"), (200, "ok\n"))
        self.assertEqual(daemon.http("/")[0], 404)
        self.assertEqual(daemon.http("/etc/passwd")[0], 404)
        self.assertEqual(daemon.http("/metrics", method="POST")[0], 405)
        self.assertEqual(daemon.http("/livez", method="HEAD"), (200, ""))

    # ------------------------------------------------------ start and stop

    def test_stops_with_0_on_sigterm_and_sigint(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            daemon = self.start()
            code, rest = daemon.stop(number)
            self.assertEqual(code, 0, daemon.log())
            self.assertEqual(rest, "", "more than one line on stdout")
            self.assertIn("drained", daemon.log())

    def test_a_drain_ends_with_its_timeout_or_a_second_signal(self):
        for timeout, second, said in (("100ms", False, "still under way after 100ms"), ("1h", True, "second signal")):
            daemon = self.start("--drain-timeout", timeout)
            self.endless_put(daemon)
            daemon.send(signal.SIGTERM)
            if second:
                daemon.wait_for_log("draining")
                daemon.send(signal.SIGTERM)
            code, _ = daemon.wait()
            self.assertEqual(code, 0, daemon.log())
            self.assertIn(said, daemon.log())

    def test_a_restart_on_the_same_ports_works_at_once(self):
        first = self.start()
        self.session(first)
        self.assertEqual(first.http("/livez")[0], 200)
        self.accepts(first.grpc)
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
        self.assertEqual(daemon.http("/livez")[0], 200)
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
        self.assertIn('node="from-environment"', daemon.http("/metrics")[1])

    def test_advertised_addresses_are_in_the_ready_line(self):
        daemon = self.start("--advertise-grpc", "cache-7.example:7420")
        self.assertEqual(daemon.grpc, "cache-7.example:7420")
        self.assertRegex(daemon.transfer, r"^127\.0\.0\.1:\d+$")

    def test_listens_on_a_unix_socket(self):
        path = os.path.join(self.folder, "q.sock")
        daemon = self.start(socket=path)
        self.assertEqual(daemon.socket, path)
        self.accepts(path)

    def test_listens_on_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        daemon = self.start(listen_grpc="[::1]:0", listen_transfer="[::1]:0", listen_metrics="[::1]:0")
        for address in (daemon.grpc, daemon.transfer, daemon.metrics):
            self.assertRegex(address, r"^\[::1\]:\d+$")
            self.accepts(address)
        self.assertEqual(daemon.http("/readyz")[0], 200)

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
        self.assertEqual(first.http("/readyz"), (200, "ok\n"))

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
    global BINARY  # pylint: disable=global-statement
    BINARY = sys.argv.pop(1)
    raw_session.load_stubs()
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""What deploy/prometheus and deploy/grafana say, held against a real quarryd and a real Prometheus.

Usage: monitoring_test.py QUARRYD [unittest arguments]
"""

import pathlib
import re
import subprocess
import unittest

import monitoring
import protocol_case
import quarryd
import raw_session

SHARD_BYTES = 4 << 20
ARENA_BLOCKS = 16  # of 128 MiB, 64 MiB are arena
RULES_TEST = pathlib.Path(__file__).with_name("alerting_rules_test.yml")


def promtool(*arguments, text=None):
    return subprocess.run(["promtool", *map(str, arguments)], input=text, capture_output=True, text=True, check=False,
                          timeout=300)


class RulesTest(unittest.TestCase):
    """Without a server."""

    def passes(self, *arguments):
        result = promtool(*arguments)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_the_configuration_and_its_rules_are_valid(self):
        self.passes("check", "config", monitoring.CONFIG)

    def test_alerts_fire_when_they_should_and_only_then(self):
        self.passes("test", "rules", RULES_TEST)

    def test_every_alert_fires_in_some_test(self):
        rules = (monitoring.CONFIG.parent / "alerting-rules.yml").read_text(encoding="utf-8")
        alerts = re.findall(r"- alert: (\w+)", rules)
        fired = set(re.findall(r'alertname(?:="|: )(\w+)', RULES_TEST.read_text(encoding="utf-8")))
        self.assertGreater(len(alerts), 10)
        self.assertEqual(set(alerts) - fired, set())


class ScrapedTest(unittest.TestCase):
    """One daemon under load, and a Prometheus that watches it."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = quarryd.Quarryd(protocol_case.BINARY, [*quarryd.private_flags(memory="128MiB"),
                                                            "--node-name", "watched"])
        cls.addClassCleanup(cls.daemon.kill)
        cls.prometheus = monitoring.Prometheus(cls.daemon.metrics)
        cls.addClassCleanup(cls.prometheus.kill)
        # What happens before the first scrape is no increase.
        cls.prometheus.wait_for("sum(quarry_match_hashes_total)", lambda value: value == 0)
        cls.session = raw_session.Session(cls.daemon.transfer)
        cls.addClassCleanup(cls.session.close)
        cls.work()

    @classmethod
    def work(cls):
        """Of each kind something: hits, misses, evictions, leases, errors."""
        session = cls.session
        handle = session.open("monitored", raw_session.model_spec(shard_bytes=SHARD_BYTES))
        blocks = raw_session.hashes_of("monitored", ARENA_BLOCKS + 4)
        for block in blocks:
            assert session.put(handle, [block], payloads=[block * (SHARD_BYTES // len(block))]) == \
                [protocol_case.ProtocolCase.stored()]
        kept = blocks[-8:]
        for block in kept:  # one by one: each was put as a chain of its own
            assert session.match(handle, [block]).usable_tokens == 16
        assert session.match(handle, raw_session.hashes_of("never stored", 8)).usable_tokens == 0
        lease = session.match(handle, kept[:1], lease_ms=60_000).lease
        assert session.get(handle, kept[:1]) == [kept[0] * (SHARD_BYTES // len(kept[0]))]
        session.body("lease_reply", renew_lease=raw_session.T.RenewLease(lease=lease, lease_ms=60_000))
        session.body("lease_reply", release_lease=raw_session.T.ReleaseLease(lease=lease))
        session.error(match=raw_session.T.Match(handle=77))

    def test_the_target_is_up_and_its_labels_are_as_the_alerts_expect(self):
        (target,) = self.prometheus.api("targets")["activeTargets"]
        self.assertEqual((target["health"], target["lastError"]), ("up", ""))
        self.assertEqual(target["labels"], {"job": "quarry", "instance": self.daemon.metrics})
        ((labels, value),) = self.prometheus.query("quarry_build_info")
        self.assertEqual((labels["node"], labels["instance"], value), ("watched", self.daemon.metrics, 1))

    def test_series_have_the_values_of_the_work(self):
        wait, blocks = self.prometheus.wait_for, ARENA_BLOCKS + 4
        for expression, value in (
                ("quarry_stored_shards_total", blocks),
                ('quarry_transfer_bytes_total{op="put", transport="tcp"}', blocks * SHARD_BYTES),
                ('quarry_transfer_size_bytes_bucket{op="put", transport="tcp", le="2097152"}', 0),
                ('quarry_transfer_size_bytes_bucket{op="put", transport="tcp", le="4194304"}', blocks),
                ('quarry_transfer_duration_seconds_count{op="get", tier="dram", transport="tcp"}', 1),
                ('quarry_evicted_blocks_total{reason="space"}', 4),
                ('quarry_slots{slot_bytes="4194304", state="used"}', ARENA_BLOCKS),
                ('quarry_tenant_bytes{tenant="default"}', ARENA_BLOCKS * SHARD_BYTES),
                ("quarry_match_hits_total", 9), ("quarry_match_hashes_total", 17), ("quarry_match_uses_total", 17),
                ('quarry_misses_total{cause="never_stored"}', 1),
                ('quarry_leases_begun_total{op="match"}', 1), ("quarry_leases_renewed_total", 1),
                ('quarry_leases_ended_total{reason="released"}', 1),
                ('quarry_requests_total{op="open_namespace"}', 1), ('quarry_requests_total{op="renew_lease"}', 1),
                ('quarry_requests_total{op="release_lease"}', 1), ('quarry_request_errors_total{op="match"}', 1),
                ('quarry_request_duration_seconds_count{op="put"}', blocks), ("quarry_sessions", 1)):
            with self.subTest(expression):
                wait(expression, lambda seen, value=value: seen == value)

    def test_recording_rules_have_the_results_of_the_work(self):
        def near(value):
            return lambda seen: abs(seen - value) < 0.01 * value

        wait = self.prometheus.wait_for
        wait("instance:quarry_hit_ratio:rate5m", near(9 / 17))
        wait("instance:quarry_hit_ratio:rate1h", near(9 / 17))
        wait('instance_cause:quarry_miss_share:rate5m{cause="never_stored"}', near(1))
        wait("instance:quarry_used_ratio", near(1))
        wait("instance:quarry_residence_seconds:rate30m", lambda seen: seen > 0)
        wait("instance:quarry_refusal_ratio:rate5m", lambda seen: seen == 0)
        wait('instance_op:quarry_request_error_ratio:rate5m{op="match"}', near(1 / 11))
        wait('instance_op:quarry_request_duration_seconds:p99_rate5m{op="match"}', lambda seen: 0 < seen < 60)
        for memory in ("0.5x", "1x", "2x", "4x"):
            wait(f'instance_memory:quarry_estimated_hit_ratio:rate1h{{memory="{memory}"}}', lambda seen: 0 <= seen <= 1)

    def test_no_rule_fails_and_no_page_fires(self):
        def evaluated():
            rules = [rule for group in self.prometheus.api("rules")["groups"] for rule in group["rules"]]
            return rules if all(rule["health"] != "unknown" for rule in rules) else None

        for rule in quarryd.wait_until(evaluated, "an evaluation of every rule"):
            self.assertEqual((rule["health"], rule.get("lastError", "")), ("ok", ""), rule["name"])
        self.assertEqual(self.prometheus.query('ALERTS{alertstate="firing"}'), [])

    def test_every_series_of_rules_and_dashboard_exists(self):
        expressions = monitoring.rule_expressions(self.prometheus.api("rules")) + monitoring.dashboard_expressions()
        self.assertGreater(len(expressions), 60)
        recorded = {name for name, _ in expressions if ":" in name}
        read = {pair for _, expression in expressions for pair in monitoring.selectors(expression)}
        used = {name for name, _ in read}
        for name in recorded:
            self.assertIn(name, used, "recorded, and neither alert nor panel reads it")
        for name, selector in sorted(read):
            with self.subTest(selector):
                quarryd.wait_until(lambda selector=selector: self.prometheus.query(selector), selector)

    def test_every_expression_of_the_dashboard_can_be_evaluated(self):
        for title, expression in monitoring.dashboard_expressions():
            with self.subTest(title):
                quarryd.wait_until(lambda expression=expression: self.prometheus.query(expression), expression)

    def test_every_exported_family_is_named_and_documented_as_promtool_wants(self):
        text = self.exposition()
        result = promtool("check", "metrics", text=text)
        self.assertEqual((result.returncode, result.stdout + result.stderr), (0, ""))
        families = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        self.assertEqual(families, set(re.findall(r"^# HELP (\S+) .{10,}", text, re.MULTILINE)))

    def exposition(self):
        # As Prometheus got it, so over HTTP.
        result = subprocess.run(["curl", "--silent", "--fail", "--noproxy", "*", f"http://{self.daemon.metrics}/metrics"],
                                capture_output=True, text=True, check=True, timeout=quarryd.DEADLINE_S)
        return result.stdout


class EndingTest(unittest.TestCase):
    """A daemon that drains and ends, as Prometheus sees it."""

    def test_a_drain_and_an_end_are_seen(self):
        daemon = quarryd.Quarryd(protocol_case.BINARY, [*quarryd.private_flags(), "--drain-timeout", "1h"])
        self.addCleanup(daemon.kill)
        prometheus = monitoring.Prometheus(daemon.metrics)
        self.addCleanup(prometheus.kill)
        prometheus.wait_for("quarry_draining", lambda value: value == 0)
        session = raw_session.Session(daemon.transfer)
        self.addCleanup(session.close)
        session.start_put(session.open("endless"), raw_session.hashes_of("endless", 1), payloads=())
        prometheus.wait_for("quarry_in_flight_puts", lambda value: value == 1)
        daemon.send(15)
        prometheus.wait_for("quarry_draining", lambda value: value == 1)
        self.assertEqual(prometheus.value('up{job="quarry"}'), 1)
        prometheus.wait_for('count(ALERTS{alertname="QuarryDrainStuck", alertstate="pending"})', lambda value: value == 1)
        session.close()
        self.assertEqual(daemon.wait()[0], 0)
        prometheus.wait_for('up{job="quarry"}', lambda value: value == 0)
        prometheus.wait_for('count(ALERTS{alertname="QuarryDown", alertstate="pending"})', lambda value: value == 1)


if __name__ == "__main__":
    protocol_case.main()

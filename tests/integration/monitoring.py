"""A private Prometheus, and what deploy/ has for one: for tests."""

import http.client
import json
import pathlib
import re
import socket
import subprocess
import tempfile
import urllib.parse

import quarryd

DEPLOY = quarryd.ROOT / "deploy"
CONFIG = DEPLOY / "prometheus" / "prometheus.yml"
RULE_FILES = ("recording-rules.yml", "alerting-rules.yml")
DASHBOARD = DEPLOY / "grafana" / "quarry.json"

# name{label="value", ..}, or the name alone.
SELECTOR = re.compile(r'(?<![\w:"])((?:process|quarry)_\w+|up|[a-z_]+:quarry_\w+(?::\w+)?)(\{[^}]*\})?')


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def private_config(target):
    """deploy's configuration for another target, and in a hurry."""
    text = CONFIG.read_text(encoding="utf-8")
    for old, new in [("127.0.0.1:9420", target), (": 15s", ": 200ms"),
                     *((f"- {name}", f"- {CONFIG.parent / name}") for name in RULE_FILES)]:
        assert old in text, f"{CONFIG} has no {old!r}"
        text = text.replace(old, new)
    return text


class Prometheus:
    """Scrapes one address with deploy's configuration and rules. Kill it at the end."""

    def __init__(self, target):
        self._folder = tempfile.TemporaryDirectory(prefix="quarry-prometheus-")
        folder = pathlib.Path(self._folder.name)
        (folder / "prometheus.yml").write_text(private_config(target), encoding="utf-8")
        self._log = open(folder / "log", "w+", encoding="utf-8")
        self._address = ("127.0.0.1", free_port())
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address=127.0.0.1:{self._address[1]}", "--log.level=warn"],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT)
        try:
            quarryd.wait_until(self._ready, "Prometheus")
        except AssertionError:
            self.kill()
            raise

    def _ready(self):
        if self._process.poll() is not None:
            self._log.seek(0)
            raise AssertionError(f"Prometheus has exited; log:\n{self._log.read()}")
        try:
            return self._get("/-/ready")[0] == 200
        except OSError:
            return False

    def _get(self, path):
        connection = http.client.HTTPConnection(*self._address, timeout=quarryd.DEADLINE_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8")
        finally:
            connection.close()

    def api(self, path, **parameters):
        """`data` of an answer of the HTTP API, which must be a success."""
        status, text = self._get(f"/api/v1/{path}?" + urllib.parse.urlencode(parameters))
        assert status == 200, f"{path} {parameters}: {status} {text}"
        return json.loads(text)["data"]

    def query(self, expression):
        """[(labels, value)] of an instant query."""
        result = self.api("query", query=expression)["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def value(self, expression):
        """Of the only series; None when there is none."""
        found = self.query(expression)
        assert len(found) <= 1, f"{expression}: {found}"
        return found[0][1] if found else None

    def wait_for(self, expression, condition):
        """Until the only series' value satisfies the condition; returns the value."""
        seen = []

        def satisfied():
            seen[:] = [self.value(expression)]
            return seen[0] is not None and condition(seen[0])

        try:
            quarryd.wait_until(satisfied, expression)
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen: {seen[0]}") from None
        return seen[0]

    def kill(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()
        self._folder.cleanup()


def rule_expressions(rules):
    """Of the answer of /api/v1/rules: (name, expression)."""
    return [(rule["name"], rule["query"]) for group in rules["groups"] for rule in group["rules"]]


def dashboard_expressions():
    """(panel's title, expression), with every variable replaced."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [(panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*"))
            for panel in panels for target in panel.get("targets", [])]


def selectors(expression):
    """The series that the expression reads: [(name, name with its matchers)]."""
    return [(name, name + matchers) for name, matchers in SELECTOR.findall(expression)]

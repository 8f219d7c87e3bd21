"""What the tests of the protocol have in common: a daemon, and a witness beside each test.

The witness is another client's session that puts and gets after every test: whatever a
test did to the daemon, others go on. So do the daemon's gauges: nothing may be left.
"""

import contextlib
import os
import sys
import unittest

import quarryd
import raw_session

BINARY = ""
# A sanitizer's own memory hides the daemon's.
SANITIZED = "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ

OK, INVALID, NOT_FOUND, EXHAUSTED = 0, 3, 5, 8
FAILED_PRECONDITION, UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = 9, 12, 14, 16

IDLE = ("quarry_leases", 'quarry_leased_bytes{tier="dram"}', "quarry_in_flight_puts", "quarry_transfers_queued",
        "quarry_transfer_in_flight_bytes")


class ProtocolCase(unittest.TestCase):
    """One daemon for the class; `flags` as private_flags takes them."""

    flags = {}
    node_name = "raw-node"

    @classmethod
    def setUpClass(cls):
        cls.daemon = quarryd.Quarryd(BINARY, [*quarryd.private_flags(**{"socket": "none", **cls.flags}),
                                              "--node-name", cls.node_name])
        cls.addClassCleanup(cls.daemon.kill)
        cls.witness = raw_session.Session(cls.daemon.transfer)
        cls.witness_handle = cls.witness.open("witness")
        cls.witnessed = 0

    @classmethod
    def tearDownClass(cls):
        cls.witness.close()
        code, _ = cls.daemon.stop()
        assert code == 0, f"exit code {code}; log:\n{cls.daemon.log()}"

    def setUp(self):
        self._sessions = []

    def tearDown(self):
        self.check_witness()
        for session in self._sessions:
            session.close()
        self.wait_idle()

    def check_witness(self):
        block = raw_session.hash_of("witness", type(self).witnessed)
        type(self).witnessed += 1
        self.assertEqual(self.witness.put(self.witness_handle, [block]), [self.stored()])
        self.assertEqual(self.witness.get(self.witness_handle, [block]), [raw_session.payload_of(block)])

    def wait_idle(self):
        """Until the witness is alone and nothing of others is left."""
        state = {}

        def idle():
            state.update(self.metrics())
            return state["quarry_sessions"] == 1 and all(state[gauge] == 0 for gauge in IDLE)

        try:
            quarryd.wait_until(idle, "idle gauges")
        except AssertionError:
            left = {gauge: state[gauge] for gauge in ("quarry_sessions", *IDLE)}
            raise AssertionError(f"the daemon does not become idle: {left}") from None

    def session(self, **options):
        session = raw_session.Session(self.daemon.transfer, **options)
        self._sessions.append(session)
        return session

    def opened(self, name, spec=None, **options):
        """A new session, and its handle of the namespace."""
        session = self.session(**options)
        return session, session.open(name, spec)

    def end_by_time(self, session, leases):
        """Makes the leases so short that they end by themselves, and waits for it."""
        renew = raw_session.T.RenewLease
        for request in [session.send(renew_lease=renew(lease=lease, lease_ms=1)) for lease in leases]:
            self.assertEqual(session.answer(request).WhichOneof("body"), "lease_reply")
        quarryd.wait_until(lambda: self.metric("quarry_leases") == 0, "the leases' end")

    def metrics(self):
        return self.daemon.samples()

    def metric(self, series):
        return self.metrics()[series]

    def used_bytes(self):
        return self.metric('quarry_used_bytes{tier="dram"}')

    @contextlib.contextmanager
    def memory_grows_less_than(self, most_bytes):
        """The daemon's resident memory, from here to the block's end."""
        before = self.rss_bytes()
        yield
        grown = self.rss_bytes() - before
        if not SANITIZED:
            self.assertLess(grown, most_bytes)

    def rss_bytes(self):
        with open(f"/proc/{self.daemon.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def assert_error(self, error, code, *parts):
        self.assertEqual(error.code, code, error)
        for part in parts:
            self.assertIn(str(part), error.message)

    def assert_miss(self, session, handle, block, *causes):
        """The block cannot be had, for one of the reasons."""
        reply = session.match(handle, [block])
        self.assertEqual(reply.usable_tokens, 0)
        self.assertIn(reply.first_miss, causes)
        self.assertEqual(session.get(handle, [block]), [("miss", reply.first_miss)])

    @staticmethod
    def stored():
        return (raw_session.T.PUT_OUTCOME_STORED, raw_session.types.REFUSAL_REASON_UNSPECIFIED)

    @staticmethod
    def already_there():
        return (raw_session.T.PUT_OUTCOME_ALREADY_THERE, raw_session.types.REFUSAL_REASON_UNSPECIFIED)

    @staticmethod
    def refused(reason):
        return (raw_session.T.PUT_OUTCOME_REFUSED, getattr(raw_session.types, "REFUSAL_REASON_" + reason))

    @staticmethod
    def cause(name):
        return getattr(raw_session.types, "MISS_CAUSE_" + name)


def main():
    """Usage of the scripts: SCRIPT QUARRYD [unittest arguments]."""
    # pylint: disable=global-statement
    global BINARY
    BINARY = sys.argv.pop(1)
    raw_session.load_stubs()
    unittest.main(module="__main__", verbosity=2)

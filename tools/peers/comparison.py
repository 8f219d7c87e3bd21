"""Pairs of rounds: Quarry and a peer in turn, on the same work."""

import pathlib
import tempfile

TUNING_ROUNDS = 2


def compare(flags, block, quarry, peer):
    """One result an operation: {"peer", "op", "block_bytes", "pairs": [{system: round}]}."""
    with tempfile.TemporaryDirectory(prefix="quarry-compare-") as scratch:
        try:
            for system in (quarry, peer):
                system.start(block, pathlib.Path(scratch))
                # Memory is touched, connections are open, and there is something to get.
                run_round(system, "put")
                tune(system)
            return [{
                "peer": peer.name,
                "op": op,
                "block_bytes": block,
                "tuned": {peer.knob: peer.best[op]} if op in peer.best else {},
                "pairs": [run_pair(quarry, peer, op, number) for number in range(flags.pairs)],
            } for op in flags.ops if op in peer.ops]
        finally:
            quarry.stop()
            peer.stop()


def tune(system):
    """Finds the fastest setting for puts and for gets, by rounds that do not count."""
    for op in ("put", "get"):
        seconds = {}
        for value in system.knob_values():
            system.best[op] = value
            seconds[value] = min(run_round(system, op)["elapsed_s"] for _ in range(TUNING_ROUNDS))
        if seconds:
            system.best[op] = min(seconds, key=seconds.get)


def run_pair(quarry, peer, op, number):
    """The order changes, so that neither is always the one behind the other."""
    order = (quarry, peer) if number % 2 == 0 else (peer, quarry)
    return {system.name: run_round(system, op) for system in order}


def run_round(system, op):
    """What it did, with its servers' CPU time in the timed part alone."""
    for _ in range(system.before(op)):
        run_round(system, "put")
    if op in system.best:
        system.load.ask(f"{system.knob} {system.best[op]}")
    prepared = system.load.ask(f"prepare {op}")
    before = system.cpu_s()
    done = system.load.ask("run")
    done["server_cpu_s"] = system.cpu_s() - before
    checked = system.load.ask("check")
    done["errors"] += prepared["errors"] + checked["errors"]
    done["wrong"] = checked["wrong"]
    said = [answer["first_error"] for answer in (prepared, done, checked) if answer.get("first_error")]
    done["first_error"] = said[0] if said else ""
    return done

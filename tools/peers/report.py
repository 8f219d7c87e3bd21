"""Figures out of rounds, as a table and as JSON."""

import statistics


def errors(results):
    """A line for each system that failed or gave wrong bytes."""
    lines = []
    for result in results:
        for name in ("quarry", result["peer"]):
            rounds = [pair[name] for pair in result["pairs"]]
            count, wrong = sum(r["errors"] for r in rounds), sum(r["wrong"] for r in rounds)
            if count or wrong:
                first = next((r["first_error"] for r in rounds if r["first_error"]), "none")
                lines.append(f"{name}, {result['op']} of {result['block_bytes']} bytes: {count} errors, {wrong} wrong "
                             f"bytes or answers; first error: {first}")
    return lines


def is_exists(result):
    return result["op"] == "exists"


def rate(result, done):
    """Bytes a second, or queries a second."""
    return done["queries" if is_exists(result) else "bytes"] / done["elapsed_s"]


def cpu(result, done):
    """Server CPU seconds a GB, or a million queries."""
    work = done["queries"] / 1e6 if is_exists(result) else done["bytes"] / 1e9
    return done["server_cpu_s"] / work if work else 0


def figures(result, name):
    rounds = [pair[name] for pair in result["pairs"]]
    unit = {"queries_per_s": 1} if is_exists(result) else {"gb_per_s": 1e9}
    (key, scale), = unit.items()
    return {
        key: statistics.median(rate(result, done) for done in rounds) / scale,
        "p50_us": statistics.median(done["p50_us"] for done in rounds),
        "p99_us": statistics.median(done["p99_us"] for done in rounds),
        "server_cpu_s_per_million_queries" if is_exists(result) else "server_cpu_s_per_gb":
            # Of all rounds: the clock of CPU time is coarse.
            sum(done["server_cpu_s"] for done in rounds) /
            max(1e-9, sum(done["queries"] / 1e6 if is_exists(result) else done["bytes"] / 1e9 for done in rounds)),
        "errors": sum(done["errors"] for done in rounds),
        "wrong": sum(done["wrong"] for done in rounds),
    }


def ratios(result, of):
    pairs = [(of(pair["quarry"]), of(pair[result["peer"]])) for pair in result["pairs"]]
    return [quarry / peer if peer else 0 for quarry, peer in pairs]


def summary(result):
    peer = result["peer"]
    rates = ratios(result, lambda done: rate(result, done))
    return {
        "peer": peer,
        "op": result["op"],
        "block_bytes": result["block_bytes"],
        "tuned": result["tuned"],
        "quarry": figures(result, "quarry"),
        peer: figures(result, peer),
        # Quarry over the peer; medians of the pairs' ratios.
        "rate_ratio": statistics.median(rates),
        "rate_ratios": rates,
        "p50_ratio": statistics.median(ratios(result, lambda done: done["p50_us"])),
        "p99_ratio": statistics.median(ratios(result, lambda done: done["p99_us"])),
    }


def as_json(flags, results, failures):
    return {
        "working_set_bytes": flags.working_set,
        "connections": flags.connections,
        "batch": flags.batch,
        "inflight": flags.inflight,
        "pairs": flags.pairs,
        "queries": flags.queries,
        "hashes": flags.hashes,
        "quick": flags.quick,
        "results": [summary(result) for result in results],
        "failures": failures,
    }


def _size(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def as_text(flags, results):
    lines = [f"{flags.connections} connections, calls of {flags.batch} blocks, {flags.inflight} under way each; rounds "
             f"of {_size(flags.working_set)}; exists: {flags.hashes} hashes a query; medians of {flags.pairs} pairs"]
    if flags.quick:
        lines.append("--quick: these sizes measure nothing")
    row = "{:<7} {:>8} {:<9} {:>14} {:>10} {:>10} {:>14}"
    lines.append(row.format("op", "block", "system", "rate", "p50 us", "p99 us", "server CPU"))
    for result in results:
        figure = summary(result)
        for name in ("quarry", result["peer"]):
            one = figure[name]
            if is_exists(result):
                speed = f"{one['queries_per_s']:.0f} queries/s"
                work = f"{one['server_cpu_s_per_million_queries']:.0f} s/M"
            else:
                speed, work = f"{one['gb_per_s']:.2f} GB/s", f"{one['server_cpu_s_per_gb']:.2f} s/GB"
            lines.append(row.format(result["op"], _size(result["block_bytes"]), name, speed, f"{one['p50_us']:.0f}",
                                    f"{one['p99_us']:.0f}", work))
        pairs = " ".join(f"{ratio:.2f}" for ratio in figure["rate_ratios"])
        tuned = "".join(f", {key} {value}" for key, value in figure["tuned"].items())
        lines.append(f"        quarry is {figure['rate_ratio']:.2f} times {result['peer']} (pairs: {pairs}); p50 "
                     f"{figure['p50_ratio']:.2f} times, p99 {figure['p99_ratio']:.2f} times{tuned}")
    return "\n".join(lines) + "\n"

#!/usr/bin/env python3
"""quarry-bench against a private quarryd: that it works and that what it says is true.

Usage: run_bench_test.py QUARRY_BENCH QUARRYD SAMPLE_TRACE CASE
"""
import json
import os
import subprocess
import sys
import tempfile

TRANSFER_SIZES = ["--memory", "256MiB", "--working-set", "32MiB", "--arena", "64MiB", "--block", "256KiB",
                  "--segment", "16KiB", "--batch", "8", "--duration", "300ms"]
SSD_SIZES = ["--tier", "ssd", "--memory", "192MiB", "--working-set", "512MiB", "--arena", "64MiB", "--block", "256KiB",
             "--segment", "16KiB", "--batch", "8", "--duration", "2s", "--against", "limit", "--pairs", "2"]
MATCH_SIZES = ["--memory", "256MiB", "--blocks", "4000", "--hashes", "64", "--duration", "300ms",
               "--against", "limit", "--pairs", "2"]


def run(command):
    result = subprocess.run(command + ["--json"], stdout=subprocess.PIPE, text=True, timeout=240)
    print(result.stdout)
    report = json.loads(result.stdout)
    # A busy machine may make a comparison void; the figures are there all the same.
    assert result.returncode == 0 or report.get("limit_void"), f"exit status {result.returncode}: {command}"
    assert report["errors"] == 0 and report["wrong_bytes"] == 0
    return report


def check_transfer(bench, op, buffers="host"):
    report = run(bench("transfer") + ["--op", op, "--buffers", buffers] + TRANSFER_SIZES)
    assert report["buffers"] == buffers
    assert report["op"] == op and report["clients"] == 2
    assert report["gb_per_s"] > 0 and report["ops_per_s"] > 0
    assert 0 < report["p50_us"] <= report["p99_us"]
    assert report["server_cpu_s_per_gb"] is not None


def check_ssd(bench, op):
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as scratch:
        report = run(bench("transfer") + ["--op", op, "--ssd-dir", scratch, "--ssd-size", "768MiB"] + SSD_SIZES)
        assert os.listdir(scratch) == []
    assert report["tier"] == "ssd" and report["op"] == op and report["ssd_io"] in ("io_uring", "libaio", "threads")
    assert report["gb_per_s"] > 0 and report["limit_disk_gb_per_s"] > 0 and report["ratio"] > 0
    if op == "put":
        assert report["write_amplification"] > 1
        assert report["put_gb_per_s"] > 0
        return
    # What was read came from the SSD, although a part fits into memory: runs repeat too late for that.
    assert 0.95 <= report["from_ssd"] <= 1.05, report["from_ssd"]
    assert report["limit_gb_per_s"] <= min(report["limit_disk_gb_per_s"], report["limit_sockets_gb_per_s"])


def check_spill_load(bench):
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as scratch:
        report = run(bench("spill-load") + ["--ssd-dir", scratch, "--ssd-size", "256MiB", "--memory", "192MiB",
                                            "--hot", "16MiB", "--block", "256KiB", "--segment", "16KiB", "--batch", "8",
                                            "--put-batch", "4", "--arena", "64MiB", "--step", "300ms", "--rounds", "2"])
        assert os.listdir(scratch) == []
    assert report["ssd_io"] in ("io_uring", "libaio", "threads") and report["limit_disk_gb_per_s"] > 0
    assert [one["share"] for one in report["shares"]] == [0, 0.25, 0.5, 0.75, 1]
    none, *others = report["shares"]
    assert none["put_gb_per_s"] == 0 and none["ratio"] == 1
    for one in others:
        assert one["get_gb_per_s"] > 0 and one["put_gb_per_s"] > 0 and one["without_ssd_put_gb_per_s"] > 0
        assert len(one["round_ratios"]) == 2 and min(one["round_ratios"]) <= one["ratio"] <= max(one["round_ratios"])
    # While nothing is put nothing is written, and what is put does get written.
    assert none["spilled_gb_per_s"] == 0 and max(one["spilled_gb_per_s"] for one in others) > 0


def check_match(bench):
    report = run(bench("transfer") + ["--op", "match"] + MATCH_SIZES)
    assert report["blocks"] == 4000 and report["hashes"] == 64
    assert report["limit_p50_us"] > 0 and report["ratio"] > 0


def check_grpc(bench):
    report = run(bench("grpc") + ["--memory", "256MiB", "--working-set", "32MiB", "--arena", "32MiB", "--block", "256KiB",
                                  "--batch", "8", "--blocks", "2000", "--hashes", "64", "--duration", "600ms",
                                  "--pairs", "2", "--watchers", "3"])
    assert 0 < report["match"]["empty_p50_us"] and 0 < report["match"]["p50_us"] <= report["match"]["p99_us"]
    for op in ("get", "put"):
        assert report[op]["grpc_gb_per_s"] > 0 and report[op]["session_gb_per_s"] > 0
        assert len(report[op]["pair_ratios"]) == 2
    observers = report["observers"]
    # Each of the two slices begins with one of each.
    assert observers["scrapes"] >= 2 and observers["stats"] >= 2 and len(observers["pair_losses"]) == 2


def check_replay(bench, trace, memory, concurrency):
    report = run(bench("replay") + ["--trace", trace, "--memory", memory, "--concurrency", concurrency])
    assert report["requests"] == 300
    assert report["get_misses"] == {}
    return report


def check_replay_ssd(bench, trace):
    """Room for a twentieth of the sample's blocks in memory, and for a third on the SSD."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as scratch:
        report = run(bench("replay") + ["--trace", trace, "--memory", "128MiB", "--concurrency", "1", "--speed", "20",
                                        "--ssd-dir", scratch, "--ssd-size", "160MiB"])
        assert os.listdir(scratch) == []
    assert report["requests"] == 300 and report["get_misses"] == {}
    ssd = report["ssd"]
    assert ssd["io"] in ("io_uring", "libaio", "threads")
    # More is hit than memory alone has room for; no more than a cache without bound would.
    assert ssd["hit_ratio_blocks"] < report["hit_ratio_blocks"] <= report["best_hit_ratio_blocks"]
    assert ssd["capacity_blocks"] == ssd["size_bytes"] // (ssd["spilled_bytes"] // ssd["spilled_blocks"])
    # One request at a time: what the matches said to be on the SSD was read from there, and nothing else.
    assert ssd["hit_blocks"] > 0
    assert ssd["loaded_bytes"] == ssd["hit_blocks"] * report["block_bytes"] <= report["got_bytes"]
    assert ssd["write_amplification"] > ssd["record_write_amplification"] > 1
    assert ssd["device_bytes"] >= ssd["spilled_bytes"] + ssd["moved_bytes"]
    assert 0 < ssd["live_bytes"] <= ssd["size_bytes"] and ssd["over_provisioning"] > 0
    assert ssd["over_budget_blocks"] == 0


def main():
    program, quarryd, trace, case = sys.argv[1:]

    def bench(command):
        return [program, command, "--quarryd", quarryd]

    if case in ("put", "get", "fetch"):
        check_transfer(bench, case)
    elif case.startswith("cuda_"):
        check_transfer(bench, case[len("cuda_"):], "cuda")
    elif case.startswith("ssd_"):
        check_ssd(bench, case[len("ssd_"):])
    elif case == "spill_load":
        check_spill_load(bench)
    elif case == "grpc":
        check_grpc(bench)
    elif case == "match":
        check_match(bench)
    elif case == "replay_many":
        report = check_replay(bench, trace, "256MiB", "8")
        assert 0 < report["hit_ratio_tokens"] <= report["best_hit_ratio_tokens"]
        # Requests beside each other put the same blocks.
        assert set(report["refusal_reasons"]) <= {"in_flight"}
    elif case == "replay_one":
        # Room for about half of the sample's blocks, so that eviction decides.
        report = check_replay(bench, trace, "320MiB", "1")
        assert "evicted" in report["miss_causes"] and report["refused"] == 0
        assert report["capacity_blocks"] < report["distinct_blocks"]
        for unit in ("tokens", "blocks"):
            difference = report[f"hit_ratio_{unit}"] - report[f"simulated_hit_ratio_{unit}"]
            assert abs(difference) <= 0.005, f"{unit}: {difference * 100:+.2f} points from the simulation"
    elif case == "replay_ssd":
        check_replay_ssd(bench, trace)
    else:
        raise AssertionError(f"no such case: {case}")


main()

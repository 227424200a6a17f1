#!/usr/bin/env python3
"""Measures npukit and llama.cpp on the same weights, alternately, and says what share of the machine each uses.

    compare.py --npukit bin/npukit [--rounds 5] [--threads 2] [--kernels NAME] [--json OUT.json] NAME=NPUKIT_MODEL,MODEL.gguf...

Every round starts both programs once for each model, the other one first each time. Every start opens the model, warms up and runs each test once. A figure
is the median of the rounds, with the slowest and the fastest. On a busy machine threads that meet at a barrier wait for the one that was put aside:
look at the spread before at the ratio.

Limits are what npukit measures of the machine in its start of each round: bytes read in a second, and BF16 operations in a second by the best kernel. Shares are of the
round's own limit, because machines with neighbours read twice as fast in one minute as in the next; the median of the rounds is shown. llama.cpp's are worked out
with npukit's count of operations, and of bytes as the file has them; npukit itself may keep weights in fewer.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

PP = "32,128,512,2048"
TG = "64@32,64@1024"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=NPUKIT_MODEL,MODEL.gguf")
    parser.add_argument("--npukit", default="bin/npukit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--pp", default=PP)
    parser.add_argument("--tg", default=TG)
    parser.add_argument("--kernels", help="npukit's kernels, as `npukit bench --kernels` takes them; the fastest unless told")
    parser.add_argument("--json", help="file for all figures")
    args = parser.parse_args()

    models = []
    for text in args.models:
        name, _, paths = text.partition("=")
        ours, _, theirs = paths.partition(",")
        if not theirs:
            parser.error(f"{text} is not NAME=NPUKIT_MODEL,MODEL.gguf")
        models.append((name, ours, theirs))
    report = {"date": time.strftime("%Y-%m-%d"), "rounds": args.rounds, "threads": args.threads, "models": []}
    for name, ours, theirs in models:
        commands = [
            [args.npukit, "bench", ours, "--json"] + (["--kernels", args.kernels] if args.kernels else []),
            [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench.py"), theirs],
        ]
        counts = [["--pp", args.pp, "--tg", args.tg, "--threads", str(args.threads)] + reps for reps in (["--reps", "1"], ["--repeat", "1"])]
        starts = [[], []]
        for n in range(args.rounds):
            for which in (0, 1) if n % 2 == 0 else (1, 0):
                print(f"{name}: round {n + 1} of {args.rounds}, {('npukit', 'llama.cpp')[which]}", file=sys.stderr)
                starts[which].append(run(commands[which] + counts[which]))
        report["models"].append(summary(name, *starts))
        show(report["models"][-1])
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(report, f, indent=1)
            f.write("\n")


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"compare: {' '.join(command)} ended with {done.returncode}")
    return json.loads(done.stdout)


def summary(name, ours, theirs):
    """Of two lists of starts, each a list of tests."""
    first = ours[0][0]
    reads, computes = ([start[0][key] for start in ours] for key in ("read_bandwidth_bytes_per_s", "peak_flops_per_s"))
    out = {
        "model": name,
        "dtype": first["dtype"],
        "machine": first["machine"],
        "kernels": first["kernels"],
        "peer": theirs[0][0]["program"],
        "peer_system": theirs[0][0]["system"],
        "read_bandwidth_bytes_per_s": spread(reads),
        "peak_flops_per_s": spread(computes),
        "tests": [],
    }
    for key in ("load_s", "peak_rss_bytes"):
        out[key] = [spread([start[0][key] for start in starts]) for starts in (ours, theirs)]
    for i, test in enumerate(ours[0]):
        speeds = [spread([start[i]["samples"][0] for start in starts]) for starts in (ours, theirs)]
        out["tests"].append(
            {
                "test": test["test"],
                "tokens_per_s": speeds,
                "ratio": speeds[0]["median"] / speeds[1]["median"],
                "bandwidth_share": [share(test[key], s["samples"], reads) for key, s in zip(("bytes_per_token", "stored_bytes_per_token"), speeds)],
                "peak_share": [share(test["flops_per_token"], s["samples"], computes) for s in speeds],
            }
        )
    return out


def share(each, speeds, limits):
    return statistics.median(each * speed / limit for speed, limit in zip(speeds, limits))


def spread(samples):
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples), "samples": samples}


def show(m):
    print(f"\n{m['model']}, {m['dtype']}, on {m['machine']}: kernels {m['kernels']}, beside {m['peer']}")
    reads, computes = m["read_bandwidth_bytes_per_s"], m["peak_flops_per_s"]
    print(f"the machine reads {reads['median'] / 1e9:.1f} GB/s ({reads['min'] / 1e9:.1f} to {reads['max'] / 1e9:.1f})", end=" ")
    print(f"and computes {computes['median'] / 1e9:.0f} GFLOP/s ({computes['min'] / 1e9:.0f} to {computes['max'] / 1e9:.0f})\n")
    print("| test | npukit tokens/s | llama.cpp tokens/s | ratio | npukit of the limit | llama.cpp of the limit |")
    print("|---|---|---|---|---|---|")
    for t in m["tests"]:
        kind = "peak_share" if t["test"].startswith("pp") else "bandwidth_share"
        of = "FLOP/s" if kind == "peak_share" else "reads"
        a, b = (f"{s['median']:.1f} ({s['min']:.1f} to {s['max']:.1f})" for s in t["tokens_per_s"])
        print(f"| {t['test']} | {a} | {b} | {t['ratio']:.2f} | {100 * t[kind][0]:.0f} % {of} | {100 * t[kind][1]:.0f} % {of} |")
    load, rss = m["load_s"], m["peak_rss_bytes"]
    print(f"| to open, s | {load[0]['median']:.2f} | {load[1]['median']:.2f} | | | |")
    print(f"| peak memory, MB | {rss[0]['median'] / 1e6:.0f} | {rss[1]['median'] / 1e6:.0f} | {rss[0]['median'] / rss[1]['median']:.2f} | | |\n")
    for name, value in figures(m):
        print(f"{name}={value}")
    sys.stdout.flush()


def figures(m):
    """What a program reads of a model: names and values, a line each. decode_1024 is decoding behind 1024 tokens."""
    yield "model", m["model"]
    for t in m["tests"]:
        prompt = t["test"].startswith("pp")
        tokens, _, depth = t["test"][2:].partition("@")
        name = f"prefill_{tokens}" + (f"_behind_{depth}" if depth else "") if prompt else f"decode_{depth or 0}"
        yield f"{name}_tokens_per_s", f"{t['tokens_per_s'][0]['median']:.1f}"
        yield f"{name}_ratio", f"{t['ratio']:.2f}"
        yield f"{name}_share", f"{t['peak_share' if prompt else 'bandwidth_share'][0]:.2f}"
    for name, key in (("load", "load_s"), ("peak_rss", "peak_rss_bytes")):
        yield f"{name}_ratio", f"{m[key][0]['median'] / m[key][1]['median']:.2f}"


if __name__ == "__main__":
    main()

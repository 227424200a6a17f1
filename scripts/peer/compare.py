#!/usr/bin/env python3
"""Measures npukit and llama.cpp on the same weights, in turns, and says what share of the machine each uses.

    compare.py --npukit bin/npukit [--rounds 5] [--reps 1] [--threads 2] [--kernels NAME]
        [--json OUT.json] NAME=NPUKIT_MODEL,MODEL.gguf...

Every round starts both programs for each model, the other one first each time. One opens the
model while the other does not run; then they take turns: a repetition of one, the same of the
other, until each test has warmed up once and run REPS times. A turn lasts a second at least:
short repetitions are done again, and the mean of all but the first counts. A machine that shares
its host with others can read twice as fast for some seconds as in the next, and programs that ran
one after the other for a minute each would meet different machines. A speed is the median of all,
with the slowest and the fastest; a ratio is the median of the turns' ratios.

Limits are what npukit measures of the machine before and behind each of its turns: bytes read in
a second, and BF16 operations in a second by the best kernel. A turn's share is of the mean of
what was measured on both its sides, a test's the median of those turns on whose sides that was
the same but for a fifth, or of all where there are none. A machine that changes within a turn and
back can give more than its limit. llama.cpp's shares are worked out with npukit's count of
operations, and of bytes as the file has them; npukit itself may keep weights in fewer.
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

# What limits a test, by its name in npukit's output, with what a token takes of it: in npukit, and
# in a program that reads weights as the file has them.
LIMITS = {
    "read_bandwidth_bytes_per_s": ("bytes_per_token", "stored_bytes_per_token"),
    "peak_flops_per_s": ("flops_per_token", "flops_per_token"),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="NAME=NPUKIT_MODEL,MODEL.gguf")
    parser.add_argument("--npukit", default="bin/npukit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reps", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--pp", default=PP)
    parser.add_argument("--tg", default=TG)
    parser.add_argument(
        "--kernels", help="npukit's kernels, as `npukit bench --kernels` takes them; the fastest unless told"
    )
    parser.add_argument("--json", help="file for all figures")
    args = parser.parse_args()

    models = []
    for text in args.models:
        name, _, paths = text.partition("=")
        ours, _, theirs = paths.partition(",")
        if not theirs:
            parser.error(f"{text} is not NAME=NPUKIT_MODEL,MODEL.gguf")
        models.append((name, ours, theirs))
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "rounds": args.rounds,
        "reps": args.reps,
        "threads": args.threads,
        "models": [],
    }
    for name, ours, theirs in models:
        own = [
            "--pp",
            args.pp,
            "--tg",
            args.tg,
            "--threads",
            str(args.threads),
            "--reps",
            str(args.reps),
            "--turns",
        ]
        commands = [
            [args.npukit, "bench", ours, "--json", *own]
            + (["--kernels", args.kernels] if args.kernels else []),
            [
                sys.executable,
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench.py"),
                theirs,
                *own,
            ],
        ]
        tests = sum(int(test.partition("@")[0]) > 0 for test in args.pp.split(",") + args.tg.split(","))
        starts = [[], []]
        for n in range(args.rounds):
            print(f"{name}: round {n + 1} of {args.rounds}", file=sys.stderr)
            order = (0, 1) if n % 2 == 0 else (1, 0)
            programs = []
            for which in order:
                programs.append(Program(commands[which]))
                programs[-1].turn()
            for _ in range(tests * (args.reps + 1) - 1):
                answers = [p.turn() for p in programs]
                if answers[0] != answers[1]:
                    sys.exit(f"compare: the programs are out of step: {answers}")
            for which, p in zip(order, programs):
                starts[which].append(p.end())
        report["models"].append(summary(name, *starts))
        show(report["models"][-1])
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(report, f, indent=1)
            f.write("\n")


class Program:
    """One start of a program that takes turns. It opens its model before its first."""

    def __init__(self, command):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self):
        try:
            print(file=self.process.stdin, flush=True)
        except BrokenPipeError:
            self.failed()

    def turn(self):
        self.line()
        return self.process.stdout.readline() or self.failed()

    def end(self):
        """The program ends at one more line, so that none does while the other measures."""
        self.line()
        out = self.process.stdout.read()
        if self.process.wait() != 0:
            self.failed()
        return json.loads(out)

    def failed(self):
        self.process.kill()
        sys.exit(f"compare: {' '.join(self.command)} ended with {self.process.wait()}")


def summary(name, ours, theirs):
    """Of two lists of starts, each a list of tests."""
    first = ours[0][0]
    out = {
        "model": name,
        "dtype": first["dtype"],
        "machine": first["machine"],
        "kernels": first["kernels"],
        "peer": theirs[0][0]["program"],
        "peer_system": theirs[0][0]["system"],
        "tests": [],
    }
    for key in LIMITS:
        out[key] = spread(
            [
                beside[when][key]
                for start in ours
                for test in start
                for beside in test["beside"]
                for when in ("before", "behind")
            ]
        )
    for key in ("load_s", "peak_rss_bytes"):
        out[key] = [spread([start[0][key] for start in starts]) for starts in (ours, theirs)]
    for i, test in enumerate(ours[0]):
        turns = [turn for n in range(len(ours)) for turn in turns_of(ours[n][i], theirs[n][i], n % 2 == 0)]
        out["tests"].append(
            {
                "test": test["test"],
                "tokens_per_s": [spread([turn["speeds"][which] for turn in turns]) for which in (0, 1)],
                "ratio": spread([turn["speeds"][0] / turn["speeds"][1] for turn in turns]),
                "shares": {key: [share(turns, key, which) for which in (0, 1)] for key in LIMITS},
                "turns": turns,
            }
        )
    return out


def turns_of(ours, theirs, ours_first):
    """The turns of both programs in a test of one round: their speeds, and for each limit what they used of it."""
    turns = []
    last = len(ours["beside"]) - 1
    for i, (own, other) in enumerate(zip(ours["samples"], theirs["samples"])):
        beside = ours["beside"][i]
        # llama.cpp's turn lies between two of npukit's, or beside one at the ends of the test.
        if ours_first:
            between = [beside["behind"], ours["beside"][i + 1]["before"] if i < last else beside["behind"]]
        else:
            between = [ours["beside"][i - 1]["behind"] if i > 0 else beside["before"], beside["before"]]
        turn = {"speeds": [own, other]}
        for limit, (each, each_stored) in LIMITS.items():
            turn[limit] = [
                use(ours[each] * own, beside["before"][limit], beside["behind"][limit]),
                use(ours[each_stored] * other, between[0][limit], between[1][limit]),
            ]
        turns.append(turn)
    return turns


def use(used, before, behind):
    """The used share of a limit measured before and after; a turn is steady if both are within a fifth."""
    return {
        "before": before,
        "behind": behind,
        "share": used / ((before + behind) / 2),
        "steady": max(before, behind) < 1.2 * min(before, behind),
    }


def share(turns, limit, which):
    used = [turn[limit][which] for turn in turns]
    return statistics.median(u["share"] for u in [u for u in used if u["steady"]] or used)


def spread(samples):
    return {
        "median": statistics.median(samples),
        "min": min(samples),
        "max": max(samples),
        "samples": samples,
    }


def show(m):
    print(f"\n{m['model']}, {m['dtype']}, on {m['machine']}: kernels {m['kernels']}, beside {m['peer']}")
    reads, computes = m["read_bandwidth_bytes_per_s"], m["peak_flops_per_s"]
    print(
        f"the machine reads {reads['median'] / 1e9:.1f} GB/s ({reads['min'] / 1e9:.1f} to {reads['max'] / 1e9:.1f})",
        end=" ",
    )
    print(
        f"and computes {computes['median'] / 1e9:.0f} GFLOP/s "
        f"({computes['min'] / 1e9:.0f} to {computes['max'] / 1e9:.0f})\n"
    )
    print(
        "| test | npukit tokens/s | llama.cpp tokens/s | ratio | npukit of the limit | llama.cpp of the limit |"
    )
    print("|---|---|---|---|---|---|")
    for t in m["tests"]:
        limit, of = limit_of(t["test"])
        a, b = (f"{s['median']:.1f} ({s['min']:.1f} to {s['max']:.1f})" for s in t["tokens_per_s"])
        ratio, shares = t["ratio"], [f"{100 * share:.0f} % {of}" for share in t["shares"][limit]]
        print(
            f"| {t['test']} | {a} | {b} | {ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f}) "
            f"| {shares[0]} | {shares[1]} |"
        )
    load, rss = m["load_s"], m["peak_rss_bytes"]
    print(f"| to open, s | {load[0]['median']:.2f} | {load[1]['median']:.2f} | | | |")
    print(
        f"| peak memory, MB | {rss[0]['median'] / 1e6:.0f} | {rss[1]['median'] / 1e6:.0f} "
        f"| {rss[0]['median'] / rss[1]['median']:.2f} | | |\n"
    )
    for name, value in figures(m):
        print(f"{name}={value}")
    sys.stdout.flush()


def limit_of(test):
    """The limit of a test, and its name for people."""
    return (
        ("peak_flops_per_s", "FLOP/s") if test.startswith("pp") else ("read_bandwidth_bytes_per_s", "reads")
    )


def figures(m):
    """What a program reads of a model: names and values, a line each. decode_1024 is decoding behind 1024 tokens."""
    yield "model", m["model"]
    for t in m["tests"]:
        prompt = t["test"].startswith("pp")
        tokens, _, depth = t["test"][2:].partition("@")
        name = (
            f"prefill_{tokens}" + (f"_behind_{depth}" if depth else "") if prompt else f"decode_{depth or 0}"
        )
        yield f"{name}_tokens_per_s", f"{t['tokens_per_s'][0]['median']:.1f}"
        yield f"{name}_ratio", f"{t['ratio']['median']:.2f}"
        yield f"{name}_share", f"{t['shares'][limit_of(t['test'])[0]][0]:.2f}"
    for name, key in (("load", "load_s"), ("peak_rss", "peak_rss_bytes")):
        yield f"{name}_ratio", f"{m[key][0]['median'] / m[key][1]['median']:.2f}"


if __name__ == "__main__":
    main()

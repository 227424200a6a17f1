#!/usr/bin/env python3
"""Measures llama.cpp on a GGUF, through its C API: no sampling, no Python per token but one call.

    bench.py MODEL.gguf [--threads 2] [--reps 5] [--pp 512] [--tg 64,64@1024] [--turns]

As llama-bench defines them: ppN is one pass over N random tokens from an empty context, of which
only the last row's logits are computed; tgN is N passes of one token each, from an empty context.
N@D is the same behind D tokens that the context holds before. Each is run once to warm up and
then repeated. Prints a JSON list with the median, the best and every repetition, in tokens per
second. With --turns, as with `npukit bench --turns`, every repetition waits for a line on stdin
and prints one when it is done, and another line ends the program; short repetitions are done
again until a second has passed, and the mean of all but the first counts.
"""

import argparse
import ctypes
import json
import os
import random
import resource
import statistics
import sys
import time

import llama_cpp as ll

TURN_S = 1  # how long a turn lasts at least: the other program has just had the caches and the processors


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--pp", default="512", help="tokens of the prompts, N[@D],...; 0 leaves the test out")
    parser.add_argument("--tg", default="64", help="tokens generated, N[@D],...; 0 leaves the test out")
    parser.add_argument(
        "--turns",
        action="store_true",
        help="begin every repetition at a line on stdin, and print one behind it",
    )
    args = parser.parse_args()
    tests = [
        (kind, *numbers(text))
        for kind, texts in (("pp", args.pp), ("tg", args.tg))
        for text in texts.split(",")
    ]
    tests = [t for t in tests if t[1] > 0]

    silent = ll.llama_log_callback(lambda level, text, data: None)  # must outlive its use
    ll.llama_log_set(silent, None)
    ll.llama_backend_init()
    began = time.perf_counter()
    model = ll.llama_model_load_from_file(args.model.encode(), ll.llama_model_default_params())
    if not model:
        sys.exit(f"bench: llama.cpp cannot load {args.model}")
    load = time.perf_counter() - began
    params = ll.llama_context_default_params()
    params.n_ctx = max(tokens + depth for _, tokens, depth in tests)
    params.n_batch = params.n_ubatch = max([tokens for kind, tokens, _ in tests if kind == "pp"] + [512])
    params.n_threads = params.n_threads_batch = args.threads
    context = ll.llama_init_from_model(model, params)
    if not context:
        sys.exit("bench: llama.cpp cannot make a context")

    peer = Peer(context, ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model)), params.n_batch)
    system = ll.llama_print_system_info().decode()
    results = []
    for kind, tokens, depth in tests:
        work = peer.prefill if kind == "pp" else peer.generate
        test, speeds = f"{kind}{tokens}" + (f"@{depth}" if depth else ""), []
        for n in range(args.reps + 1):
            if args.turns:
                await_turn()
            end = time.perf_counter() + TURN_S
            took = [work(tokens, depth)]
            while args.turns and n > 0 and time.perf_counter() < end:
                took.append(work(tokens, depth))
            if n > 0:  # the first warms up
                speeds.append(tokens / statistics.mean(took[1:] or took))
            if args.turns:
                print(f"{test}, {n} of {args.reps}", flush=True)
        results.append(
            {
                "program": f"llama.cpp (llama-cpp-python {ll.__version__})",
                "model": os.path.basename(args.model),
                "test": test,
                "threads": args.threads,
                "tokens_per_s": round(statistics.median(speeds), 2),
                "best": round(max(speeds), 2),
                "samples": [round(s, 2) for s in speeds],
                "load_s": round(load, 3),
                "system": system,
            }
        )
    if args.turns:
        await_turn()
    for r in results:
        r["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(results, indent=2))


def await_turn():
    if not sys.stdin.readline():
        sys.exit("bench: stdin ended before the last turn")


def numbers(text):
    """N and D of N or N@D."""
    tokens, _, depth = text.partition("@")
    return int(tokens), int(depth or 0)


class Peer:
    """One context. Each run has a KV cache of its depth before and gives its seconds."""

    def __init__(self, context, vocab, batch):
        self.context = context
        self.vocab = vocab
        self.batch = batch
        self.random = random.Random(1)
        self.depth = 0  # tokens in the cache that a run may begin behind

    def prefill(self, tokens, depth):
        return self.timed(depth, lambda: self.decode(tokens))

    def generate(self, tokens, depth):
        def each():
            for _ in range(tokens):
                self.decode(1)

        return self.timed(depth, each)

    def timed(self, depth, work):
        memory = ll.llama_get_memory(self.context)
        if depth == 0 or depth != self.depth:
            ll.llama_memory_clear(memory, True)
            for done in range(0, depth, self.batch):
                self.decode(min(self.batch, depth - done))
            self.depth = depth
        else:
            ll.llama_memory_seq_rm(memory, 0, depth, -1)
        ll.llama_synchronize(self.context)
        began = time.perf_counter()
        work()
        ll.llama_synchronize(self.context)
        return time.perf_counter() - began

    def decode(self, n):
        """One pass over n random tokens after the earlier ones; llama.cpp returns the last row's logits."""
        tokens = (ctypes.c_int32 * n)(*(self.random.randrange(self.vocab) for _ in range(n)))
        status = ll.llama_decode(self.context, ll.llama_batch_get_one(tokens, n))
        if status != 0:
            sys.exit(f"bench: llama_decode returned {status}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures llama.cpp on a GGUF, through its C API: no sampling, no Python per token but one call.

    bench.py MODEL.gguf [--threads 2] [--repeat 5] [--pp 512] [--tg 64]

As llama-bench defines them: ppN is one pass over N random tokens from an empty context, of which only the last row's logits are
computed; tgN is N passes of one token each, from an empty context. Each is run once to warm up and then repeated. Prints a JSON list with
the median, the best and every repetition, in tokens per second.
"""

import argparse
import ctypes
import json
import os
import random
import statistics
import sys
import time

import llama_cpp as ll


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--pp", type=int, default=512, help="tokens of the prompt; 0 leaves the test out")
    parser.add_argument("--tg", type=int, default=64, help="tokens generated; 0 leaves the test out")
    args = parser.parse_args()

    silent = ll.llama_log_callback(lambda level, text, data: None)  # must outlive its use
    ll.llama_log_set(silent, None)
    ll.llama_backend_init()
    model = ll.llama_model_load_from_file(args.model.encode(), ll.llama_model_default_params())
    if not model:
        sys.exit(f"bench: llama.cpp cannot load {args.model}")
    params = ll.llama_context_default_params()
    params.n_ctx = max(args.pp, args.tg, 1)
    params.n_batch = params.n_ubatch = max(args.pp, 1)
    params.n_threads = params.n_threads_batch = args.threads
    context = ll.llama_init_from_model(model, params)
    if not context:
        sys.exit("bench: llama.cpp cannot make a context")

    peer = Peer(context, ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model)))
    system = ll.llama_print_system_info().decode()
    results = []
    for test, n, work in (("pp", args.pp, peer.prefill), ("tg", args.tg, peer.generate)):
        if n == 0:
            continue
        work(n)
        speeds = [n / work(n) for _ in range(args.repeat)]
        results.append(
            {
                "program": f"llama.cpp (llama-cpp-python {ll.__version__})",
                "model": os.path.basename(args.model),
                "test": f"{test}{n}",
                "threads": args.threads,
                "tokens_per_s": round(statistics.median(speeds), 2),
                "best": round(max(speeds), 2),
                "all": [round(s, 2) for s in speeds],
                "system": system,
            }
        )
    print(json.dumps(results, indent=2))


class Peer:
    """One context; each run starts with an empty KV cache and returns its seconds."""

    def __init__(self, context, vocab):
        self.context = context
        self.vocab = vocab
        self.random = random.Random(1)

    def prefill(self, n):
        return self.timed(lambda: self.decode(n))

    def generate(self, n):
        def each():
            for _ in range(n):
                self.decode(1)

        return self.timed(each)

    def timed(self, work):
        ll.llama_memory_clear(ll.llama_get_memory(self.context), True)
        began = time.perf_counter()
        work()
        ll.llama_synchronize(self.context)
        return time.perf_counter() - began

    def decode(self, n):
        """One pass over n random tokens after those of the passes before; llama.cpp keeps the position and gives the last row's logits."""
        tokens = (ctypes.c_int32 * n)(*(self.random.randrange(self.vocab) for _ in range(n)))
        status = ll.llama_decode(self.context, ll.llama_batch_get_one(tokens, n))
        if status != 0:
            sys.exit(f"bench: llama_decode returned {status}")


if __name__ == "__main__":
    main()

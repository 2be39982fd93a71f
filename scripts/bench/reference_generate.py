#!/usr/bin/env python3
"""Times the reference implementation's generate(): one block of one reply, and of several in a batch.

  reference_generate.py DIR [--steps 8] [--prompt 300] [--batch 1 4] [--threads 2] [--dtype float32|bfloat16] [--runs 3]

DIR is a checkpoint folder; a text-only one gets a tiny vision tower in memory, because the class always builds one. Needs
torch, transformers 5.24 or later and safetensors. Every block takes all its steps: there are no stop ids, and the confidence
threshold is out of reach. One JSON line per batch size. Hold it against, in the same run and on an idle machine:

  DGEMMA_BENCH_MODEL=DIR DGEMMA_BENCH_STEPS=8 cargo bench -p diffusion-gemma --bench generation

Set OMP_WAIT_POLICY=PASSIVE where other programs share the cores.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch

from reference_model import load


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("dir")
    ap.add_argument("--steps", type=int, default=8)
    ap.add_argument("--prompt", type=int, default=300)
    ap.add_argument("--batch", type=int, nargs="*", default=[1, 4])
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    ap.add_argument("--attention", default="sdpa")
    ap.add_argument("--experts", default="grouped_mm")
    ap.add_argument("--runs", type=int, default=3)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = load(a.dir, getattr(torch, a.dtype), a.attention, a.experts)
    vocab, canvas = model.config.text_config.vocab_size, model.config.canvas_length
    for batch in a.batch:
        # The same ids as the Rust benchmark.
        ids = torch.tensor([[(i * 7919 + (n + 1) * 104729) % vocab for i in range(a.prompt)] for n in range(batch)])
        seconds = []
        for run in range(a.runs + 1):
            started = time.perf_counter()
            with torch.inference_mode():
                out = model.generate(ids, max_new_tokens=canvas, max_denoising_steps=a.steps, eos_token_id=[],
                                     confidence_threshold=sys.float_info.min)
            if run:
                seconds.append(time.perf_counter() - started)
            assert out.sequences.shape == (batch, a.prompt + canvas)
        steps = canvas / float(out.tokens_per_forward.min())
        median = statistics.median(seconds)
        print(json.dumps(dict(
            engine="transformers", dtype=a.dtype, attention=a.attention, experts=a.experts, threads=torch.get_num_threads(),
            prompt=a.prompt, canvas=canvas, steps=round(steps), batch=batch, median_ms=round(1e3 * median, 1),
            min_ms=round(1e3 * min(seconds), 1), max_ms=round(1e3 * max(seconds), 1),
            tokens_per_second=round(batch * canvas / median, 1), loadavg=round(os.getloadavg()[0], 1))), flush=True)


main()

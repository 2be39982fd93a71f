#!/usr/bin/env python3
"""Times what a decision costs the reference implementation: the prompt, then a canvas with the whole head.

  reference_forward.py DIR [--prompt 300] [--canvas 32 256] [--threads 2] [--dtype float32|bfloat16] [--runs 5]

One JSON line per measurement, with wall and CPU time (all threads) in ms. Hold it against, in the same run and on an idle
machine:

  DGEMMA_BENCH_MODEL=DIR RAYON_NUM_THREADS=2 cargo bench -p diffusion-gemma --bench forward

Set OMP_WAIT_POLICY=PASSIVE where other programs share the cores.
"""
import argparse
import json
import os
import statistics
import time

import torch
from transformers import DynamicCache

from reference_model import load


def encode(model, ids):
    cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    rows = ids.shape[1]
    positions = torch.arange(rows, dtype=torch.int32)[None]
    masks = model.model.encoder.create_masks_for_generate(
        config=model.config, inputs_embeds=torch.empty((1, rows, 0)), attention_mask=torch.ones((1, rows), dtype=torch.bool),
        cache=cache, position_ids=positions, mm_token_type_ids=None)
    model.model.encoder(input_ids=ids, attention_mask=masks, cache=cache, position_ids=positions)
    return cache


def timed(run, runs):
    run()
    wall, cpu = [], []
    for _ in range(runs):
        started, used = time.perf_counter(), time.process_time()
        run()
        wall.append(1e3 * (time.perf_counter() - started))
        cpu.append(1e3 * (time.process_time() - used))
    return dict(median_ms=round(statistics.median(wall), 1), min_ms=round(min(wall), 1), max_ms=round(max(wall), 1),
                cpu_ms=round(statistics.median(cpu), 1))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("dir")
    ap.add_argument("--prompt", type=int, default=300)
    ap.add_argument("--canvas", type=int, nargs="*", default=[32, 256])
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    ap.add_argument("--attention", default="sdpa")
    ap.add_argument("--experts", default="grouped_mm")
    ap.add_argument("--runs", type=int, default=5)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    model = load(a.dir, getattr(torch, a.dtype), a.attention, a.experts)
    vocab = model.config.text_config.vocab_size
    # The same ids as the Rust benchmark.
    ids = lambda rows, salt: torch.tensor([[(i * 7919 + salt * 104729) % vocab for i in range(rows)]])
    base = dict(engine="transformers", dtype=a.dtype, attention=a.attention, experts=a.experts, threads=a.threads)
    with torch.inference_mode():
        prompt = ids(a.prompt, 1)
        print(json.dumps(dict(base, what="prompt", rows=a.prompt, **timed(lambda: encode(model, prompt), a.runs))), flush=True)
        cache = encode(model, prompt)
        for rows in a.canvas:
            canvas = ids(rows, 2)
            step = lambda: model(decoder_input_ids=canvas, cache=cache, self_conditioning_logits=None).logits
            print(json.dumps(dict(base, what="canvas and head", rows=rows, loadavg=round(os.getloadavg()[0], 1),
                                  **timed(step, a.runs))), flush=True)


main()

#!/usr/bin/env python3
"""Times the reference implementation's generate(): one block of one reply, and of several in a batch.

  reference_generate.py DIR [--steps 8] [--prompt 300] [--batch 1 4] [--threads 2] [--dtype float32|bfloat16] [--runs 3]

DIR is a checkpoint folder; a text-only one gets a tiny vision tower in memory, because the class always builds one. Needs
torch, transformers 5.24 or later and safetensors. Every block takes all its steps: there are no stop ids, and the confidence
threshold is out of reach. One JSON line per batch size. Hold it against, in the same session and on an idle machine:

  DGEMMA_BENCH_MODEL=DIR DGEMMA_BENCH_STEPS=8 cargo bench -p diffusion-gemma --bench generation

Set OMP_WAIT_POLICY=PASSIVE where other programs share the cores.
"""
import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from safetensors.torch import load_file
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion
from transformers.models.diffusion_gemma.generation_diffusion_gemma import DiffusionGemmaGenerationConfig

NO_VISION = dict(model_type="gemma4_vision", hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                 num_attention_heads=2, num_key_value_heads=2, head_dim=16, patch_size=4, pooling_kernel_size=3,
                 position_embedding_size=64, rope_parameters={"rope_theta": 100.0, "rope_type": "default"})


def load(path, dtype, attention, experts):
    with open(os.path.join(path, "config.json")) as f:
        raw = json.load(f)
    raw.setdefault("vision_config", NO_VISION)
    raw.pop("transformers_version", None)
    config = DiffusionGemmaConfig.from_dict(raw)
    model = DiffusionGemmaForBlockDiffusion._from_config(config, dtype=dtype, attn_implementation=attention)
    model.set_experts_implementation(experts)
    shards = sorted(f for f in os.listdir(path) if f.endswith(".safetensors") and not f.startswith("goldens"))
    state = {}
    for shard in shards:
        state.update(load_file(os.path.join(path, shard)))
    missing, surplus = model.load_state_dict(state, strict=False)
    model.tie_weights()
    text = [n for n in missing if "vision" not in n and n != "lm_head.weight"
            and n.replace("model.encoder.language_model.", "model.decoder.") not in state]
    if text or surplus:
        sys.exit(f"{path}: missing {text[:3]}, surplus {surplus[:3]}; hint: the checkpoint is no DiffusionGemma")
    defaults = os.path.join(path, "generation_config.json")
    model.generation_config = (DiffusionGemmaGenerationConfig.from_pretrained(path) if os.path.exists(defaults)
                               else DiffusionGemmaGenerationConfig())
    return model.eval()


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

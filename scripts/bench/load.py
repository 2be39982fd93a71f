#!/usr/bin/env python3
"""How fast a checkpoint loads and what the process then holds, against the disk and the plan.

Makes a random checkpoint in the published layout (bf16, four shards, 2.3 GB by default) in a temporary folder, and for each form
measures: a sequential read of the weight files with cold cache, the load with cold cache (the time that `ask` prints), and
the resident memory right after it. The folder is deleted at the end. Linux only; standard library only.

    python3 scripts/bench/load.py bin/dgemma-server [--layers 8] [--dir FOLDER] [--form none --form q8_0 --form pack:q4]
"""

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
H, FF, FFE, E, V, HEADS, D, GD = 1024, 768, 704, 64, 32768, 8, 128, 256


def config(layers):
    kinds = ["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(layers)]
    text = dict(model_type="diffusion_gemma_text", vocab_size=V, hidden_size=H, intermediate_size=FF, moe_intermediate_size=FFE,
                num_experts=E, top_k_experts=4, num_hidden_layers=layers, num_attention_heads=HEADS, num_key_value_heads=4, head_dim=D,
                global_head_dim=GD, num_global_key_value_heads=2, layer_types=kinds, sliding_window=512, max_position_embeddings=8192,
                hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True)
    return dict(model_type="diffusion_gemma", canvas_length=64, tie_word_embeddings=True, text_config=text), kinds


def tensors(kinds):
    yield "model.decoder.embed_tokens.weight", [V, H]
    yield "model.decoder.norm.weight", [H]
    for i, kind in enumerate(kinds):
        p, full = f"model.decoder.layers.{i}", kind == "full_attention"
        d, kv = (GD, 2) if full else (D, 4)
        yield f"{p}.layer_scalar", [1]
        yield f"model.encoder.language_model.layers.{i}.layer_scalar", [1]
        for norm in ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "pre_feedforward_layernorm_2",
                     "post_feedforward_layernorm", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"]:
            yield f"{p}.{norm}.weight", [H]
        yield f"{p}.self_attn.q_norm.weight", [d]
        yield f"{p}.self_attn.k_norm.weight", [d]
        yield f"{p}.self_attn.q_proj.weight", [HEADS * d, H]
        yield f"{p}.self_attn.k_proj.weight", [kv * d, H]
        if not full:
            yield f"{p}.self_attn.v_proj.weight", [kv * d, H]
        yield f"{p}.self_attn.o_proj.weight", [H, HEADS * d]
        yield f"{p}.mlp.gate_proj.weight", [FF, H]
        yield f"{p}.mlp.up_proj.weight", [FF, H]
        yield f"{p}.mlp.down_proj.weight", [H, FF]
        yield f"{p}.router.proj.weight", [E, H]
        yield f"{p}.router.scale", [H]
        yield f"{p}.router.per_expert_scale", [E]
        yield f"{p}.experts.gate_up_proj", [E, 2 * FFE, H]
        yield f"{p}.experts.down_proj", [E, H, FFE]
    p = "model.decoder.self_conditioning"
    yield f"{p}.pre_norm.weight", [H]
    yield f"{p}.gate_proj.weight", [FF, H]
    yield f"{p}.up_proj.weight", [FF, H]
    yield f"{p}.down_proj.weight", [H, FF]


def numbers(count):
    """Random bf16 of either sign, 0.002 to 0.03: the upper byte is one of four, the lower one any."""
    upper = bytes((0x3B, 0x3C, 0xBB, 0xBC)[i % 4] for i in range(256))
    while count:
        part = min(count, 1 << 22)
        data = bytearray(os.urandom(2 * part))
        data[1::2] = data[1::2].translate(upper)
        yield data
        count -= part


def make(folder, layers):
    made, kinds = config(layers)
    for name in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"]:
        shutil.copy(os.path.join(ROOT, "fixtures/demo-model", name), folder)
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(made, out)
    every, index, shards = list(tensors(kinds)), {}, 4
    size = -(-len(every) // shards)
    for n in range(shards):
        own, header, at = every[n * size:(n + 1) * size], {}, 0
        name = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        for tensor, shape in own:
            count = 1
            for dim in shape:
                count *= dim
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * count]}
            at += 2 * count
            index[tensor] = name
        head = json.dumps(header).encode()
        with open(os.path.join(folder, name), "wb") as out:
            out.write(struct.pack("<Q", len(head)) + head)
            for tensor, _ in own:
                begin, end = header[tensor]["data_offsets"]
                for part in numbers((end - begin) // 2):
                    out.write(part)
            out.flush()
            os.fsync(out.fileno())
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as out:
        json.dump({"weight_map": index}, out)


def weight_files(folder):
    names = sorted(name for name in os.listdir(folder) if name.endswith((".safetensors", ".dgq.bin")))
    return [os.path.join(folder, name) for name in names]


def forget(folder):
    for path in weight_files(folder):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_speed(folder):
    """Bytes and seconds of a sequential read with cold cache."""
    forget(folder)
    block, total, begun = bytearray(8 << 20), 0, time.monotonic()
    for path in weight_files(folder):
        with open(path, "rb", buffering=0) as file:
            while got := file.readinto(block):
                total += got
    return total, time.monotonic() - begun


def load(program, folder, flags):
    """Seconds that the load took, and bytes resident after it."""
    forget(folder)
    command = [program, "ask", "-m", folder, "-p", "x", "--max-new-tokens", "1", "--ctx", "1024", "--prefix-cache-mib", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"loaded in ([0-9.]+) s", line):
            with open(f"/proc/{process.pid}/status") as status:
                resident = int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1)) * 1024
            process.kill()
            process.wait()
            return float(found.group(1)), resident
    raise SystemExit("it did not load:\n" + "".join(said))


def planned(program, folder, flags):
    plan = subprocess.run([program, "plan", "-m", folder, "--ctx", "1024", *flags], capture_output=True, text=True).stdout
    return float(re.search(r"weights +([0-9.]+) GiB", plan).group(1)) * 2**30


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--dir")
    parser.add_argument("--form", action="append", help="none, bf16, q8_0, q4k, or pack:q4 and so on")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        source = os.path.join(folder, "bf16")
        os.mkdir(source)
        make(source, options.layers)
        print(f"{'form':<10} {'on disk GB':>10} {'read s':>7} {'GB/s':>6} {'load s':>7} {'share':>6} {'weights GB':>11} {'RSS':>6}")
        for form in options.form or ["none", "q8_0", "pack:q4"]:
            at, flags = source, ["--quant", form]
            if form.startswith("pack:"):
                at, flags = os.path.join(folder, form[5:]), []
                subprocess.run([options.program, "quantize", "-m", source, "-o", at, "--profile", form[5:]], check=True, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
                os.sync()
            elif form == "bf16":
                flags = ["--dtype", "bf16"]
            size, seconds = read_speed(at)
            took, resident = load(options.program, at, flags)
            weights = planned(options.program, at, flags)
            print(f"{form:<10} {size / 1e9:>10.2f} {seconds:>7.2f} {size / seconds / 1e9:>6.2f} {took:>7.2f} {seconds / took:>6.0%} "
                  f"{weights / 1e9:>11.2f} {resident / weights:>6.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""The reference implementation's model from a checkpoint folder: for the scripts beside this one.

A text-only checkpoint gets a tiny vision tower in memory, because the class always builds one. Needs torch, transformers 5.24
or later and safetensors.
"""
import json
import os
import sys

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

"""Turns a training state into a checkpoint folder and checks it against transformers.

  python export.py OUT --state STATE.pt --tokens DIR    weights (bf16), config, tokenizer, chat template
  python export.py OUT --calibrate eval.jsonl           temperatures per question type -> OUT/calibration.json
  python export.py OUT --expected eval.jsonl            12 requests with transformers' label probabilities -> OUT/expected.json
  python export.py OUT --expected OLD/expected.json     the same for the requests of an older expected.json
  python export.py OUT --agree eval.jsonl               largest logit difference between model.py and transformers
"""
import argparse
import copy
import hashlib
import json
import os
import random
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from safetensors.torch import save_file

import decide as D
import model as M
from contract import labels_of, names, render_sheet


def write_json(path, obj):
    with open(path, "w", encoding="utf8") as f:
        json.dump(obj, f, indent=1, sort_keys=True, ensure_ascii=False)
        f.write("\n")


def weights(out, state_path, tokens):
    state = torch.load(state_path)
    c = state["config"]
    m = M.Model(c)
    m.load_state_dict(state.get("average", state["model"]))
    os.makedirs(out, exist_ok=True)
    save_file(M.export_state(m), os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    text = dict(c, model_type="diffusion_gemma_text", max_position_embeddings=8192, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, final_logit_softcapping=30.0, attention_bias=False, attention_dropout=0.0,
                use_bidirectional_attention=None, rope_parameters={"full_attention": {"partial_rotary_factor": .25, "rope_theta": 1e6, "rope_type": "proportional"}, "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}},
                tie_word_embeddings=True, initializer_range=.02, pad_token_id=0, eos_token_id=1, bos_token_id=2, dtype="bfloat16")
    text.pop("canvas_length")
    media = lambda back: c["vocab_size"] - back  # the six media tokens close the vocabulary
    write_json(os.path.join(out, "config.json"), dict(architectures=["DiffusionGemmaForBlockDiffusion"], model_type="diffusion_gemma", dtype="bfloat16", boi_token_id=media(6), eoi_token_id=media(2), image_token_id=media(4),
               canvas_length=c["canvas_length"], eos_token_id=[1, 106], initializer_range=.02, tie_word_embeddings=True, text_config=text, transformers_version="5.24.0"))
    write_json(os.path.join(out, "generation_config.json"), dict(confidence_threshold=.005, eos_token_id=[1, 106, 50], max_denoising_steps=16, max_new_tokens=64, pad_token_id=0,
               sampler_config={"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": .1}, stability_threshold=1, t_max=.8, t_min=.4, transformers_version="5.24.0"))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(os.path.join(tokens, name), os.path.join(out, name))
    print("parameters", sum(v.numel() for v in M.export_state(m).values()), "bytes", os.path.getsize(os.path.join(out, "model.safetensors")))


def load_hf(out):
    """transformers always builds a vision tower: give it a tiny one."""
    import transformers
    from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion
    transformers.utils.logging.set_verbosity_error()
    raw = json.load(open(os.path.join(out, "config.json")))
    raw.setdefault("vision_config", dict(model_type="gemma4_vision", hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=16, patch_size=4,
                                         pooling_kernel_size=3, position_embedding_size=64, rope_parameters={"rope_theta": 100.0, "rope_type": "default"}))
    raw.pop("transformers_version", None)
    return DiffusionGemmaForBlockDiffusion.from_pretrained(out, config=DiffusionGemmaConfig.from_dict(raw), dtype=torch.float32, attn_implementation="eager").eval()


@torch.no_grad()
def hf_logits(m, prompt, canvas):
    from transformers import DynamicCache
    ids, n = torch.tensor([prompt]), len(prompt)
    cache, pos = DynamicCache(config=m.config.get_text_config(decoder=True)), torch.arange(n, dtype=torch.int32)[None]
    masks = m.model.encoder.create_masks_for_generate(config=m.config, inputs_embeds=torch.empty((1, n, 0)), attention_mask=torch.ones((1, n), dtype=torch.bool), cache=cache, position_ids=pos, mm_token_type_ids=None)
    m.model.encoder(input_ids=ids, attention_mask=masks, cache=cache, position_ids=pos)
    return m(decoder_input_ids=torch.tensor([canvas]), cache=cache).logits[0].float()


def read_items(path):
    with open(path, encoding="utf8") as f:
        return [json.loads(l) for l in f]


def requests(items):
    """12 requests (schema, state): every policy, varied sheets, one document_first, one longer than the sliding window."""
    take = lambda group, family, k=0: [x for x in items if x["group"] == group and x["family"] == family][k]
    pick = [take("shipped", f) for f in ("support", "code", "security", "injection", "router", "contract")]
    pick += [take("varied", f) for f in ("support", "code", "security", "generic")]
    reqs = [(x["schema"], x["state"]) for x in pick]
    x = copy.deepcopy(take("shipped", "support", 1))
    reqs.append((dict(x["schema"], layout="document_first"), x["state"]))
    history = " ".join(x["state"] for x in items if x["group"] == "shipped" and x["family"] == "support")
    reqs.append((take("shipped", "support")["schema"], "Ticket history: " + history[:3200]))
    return reqs


def expected(out, path):
    enc, rng = D.Encoder(os.path.join(out, "tokenizer.json")), random.Random(4242)
    if path.endswith(".json"):
        with open(path, encoding="utf8") as f:
            reqs = [(x["schema"], x["state"]) for x in json.load(f)["cases"]]
    else:
        reqs = requests(read_items(path))
    hf, cases = load_hf(out), []
    from transformers import AutoTokenizer
    tok = AutoTokenizer.from_pretrained(out)
    for schema, state in reqs:
        prompt = D.prompt_ids(enc, schema, state)
        canvas, slots, labels = D.canvas_of(enc, schema, rng)
        lg = hf_logits(hf, prompt, canvas)
        cases.append({"schema": schema, "state": state, "prompt_ids": prompt, "prompt_tokens": len(prompt), "canvas_ids": canvas,
                      "slots": [{"id": q["id"], "pos": s, "labels": labels_of(q), "label_ids": ls, "label_logits": [round(float(x), 5) for x in lg[s, ls]],
                                 "probabilities": [round(float(x), 6) for x in torch.softmax(lg[s, ls], -1)], "label_mass": round(float(torch.softmax(lg[s], -1)[ls].sum()), 6), "argmax_id": int(lg[s].argmax())}
                                for q, s, ls in zip(schema["questions"], slots, labels)]})
        sheet = render_sheet(schema)
        msgs = [{"role": "user", "content": "State:\n" + state + "\n\n" + sheet}] if schema.get("layout") == "document_first" else [{"role": "system", "content": sheet}, {"role": "user", "content": state}]
        ids = tok.apply_chat_template(msgs, add_generation_prompt=True, tokenize=True)
        ids = ids["input_ids"] if hasattr(ids, "keys") else ids
        assert list(ids[0] if isinstance(ids[0], list) else ids) == prompt, "chat template rendering differs"
    write_json(os.path.join(out, "expected.json"), {"about": "Label probabilities at every answer slot after one denoise step, from transformers 5.24 (eager, f32 compute of the bf16 weights). prompt_ids are the chat template rendering; "
               "canvas_ids are the answer template with the slot ids given explicitly. label_logits are after the soft cap.", "cases": cases})
    print("cases", len(cases), "longest prompt", max(c["prompt_tokens"] for c in cases))


def agree(out, items):
    m, enc = D.load(out)
    hf, rng, worst = load_hf(out), random.Random(1), 0.0
    for x in items[::len(items) // 20]:
        prompt, (canvas, _, _) = D.prompt_ids(enc, x["schema"], x["state"]), D.canvas_of(enc, x["schema"], rng)
        worst = max(worst, float((hf_logits(hf, prompt, canvas) - D.logits(m, prompt, canvas)).abs().max()))
    print("largest logit difference to transformers", worst)
    assert worst < 1e-4


def calibrate(out, items):
    """One temperature per question type: least cross-entropy to the gold distribution on the calibration part."""
    m, enc = D.load(out)
    rng, rec = random.Random(6), {}
    for x in items:
        if x["part"] == "calibration":
            lg, _ = D.decide(m, enc, x["schema"], x["state"], rng)
            for q, l in zip(x["schema"]["questions"], lg):
                rec.setdefault(q["type"], []).append((l, torch.tensor([x["gold"][q["id"]][n] for n in names(q)])))
    score = lambda t, v: -sum(float((torch.log_softmax(l / t, -1) * y).sum()) for l, y in v) / len(v)
    temps = {k: min((score(t / 20, v), t / 20) for t in range(8, 81))[1] for k, v in sorted(rec.items())}
    for k, v in rec.items():
        print(f"{k}: {len(v)} answers, cross-entropy {score(1, v):.3f} at 1, {score(temps[k], v):.3f} at {temps[k]}")
    with open(os.path.join(out, "model.safetensors"), "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    write_json(os.path.join(out, "calibration.json"), {"model": "demo-model", "model_sha256": digest, "created_by": "scripts/demo-model/export.py --calibrate", "temperatures": temps,
               "answers": {k: len(v) for k, v in rec.items()}})


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--state")
    ap.add_argument("--tokens")
    ap.add_argument("--calibrate")
    ap.add_argument("--expected")
    ap.add_argument("--agree")
    a = ap.parse_args()
    torch.set_num_threads(1)
    if a.state:
        weights(a.out, a.state, a.tokens)
    for path, f in ((a.agree, agree), (a.calibrate, calibrate)):
        if path:
            f(a.out, read_items(path))
    if a.expected:
        expected(a.out, a.expected)

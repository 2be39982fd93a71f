"""Compact PyTorch form of the DiffusionGemma text model, for training: prompt rows and canvas rows of many decisions
share one [rows, S, H] tensor, one pass over the layers and one attention mask. Experts are computed densely and
weighted (zero outside the top-k), which equals the sparse form. Parameter names are those of the checkpoint.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import attention

SL, FU = "sliding_attention", "full_attention"
EPS = 1e-6


def config(vocab=16384, hidden=192, heads=4, kv=2, hd=64, ghd=64, gkv=2, ff=192, experts=4, topk=2, ffe=48, window=512, canvas=64, kinds=(SL, SL, FU, FU, FU)):
    return dict(vocab_size=vocab, hidden_size=hidden, intermediate_size=ff, moe_intermediate_size=ffe, num_experts=experts, top_k_experts=topk, num_hidden_layers=len(kinds), num_attention_heads=heads,
                num_key_value_heads=kv, head_dim=hd, global_head_dim=ghd, num_global_key_value_heads=gkv, sliding_window=window, layer_types=list(kinds), canvas_length=canvas)


def rms(x, w=None):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS)
    return (y if w is None else y * w).to(x.dtype)


def inv_freq(kind, hd):
    if kind == SL:
        return 1e4 ** (-torch.arange(0, hd, 2).float() / hd)
    n = int(.25 * hd / 2)
    f = torch.zeros(hd // 2)
    f[:n] = 1e6 ** (-2 * torch.arange(n).float() / hd)
    return f


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def P(*shape, std=None, const=None):
    t = torch.full(shape, float(const)) if const is not None else torch.randn(*shape) * std
    return nn.Parameter(t)


class Layer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        H, FF, FE, E, NH = c["hidden_size"], c["intermediate_size"], c["moe_intermediate_size"], c["num_experts"], c["num_attention_heads"]
        self.kind, self.nh, self.e, self.k, self.fe = kind, NH, E, c["top_k_experts"], FE
        self.hd, self.nkv = (c["head_dim"], c["num_key_value_heads"]) if kind == SL else (c["global_head_dim"], c["num_global_key_value_heads"])
        s = H ** -.5
        self.n_in, self.n_attn, self.n_ff, self.n_ff2 = P(H, const=1), P(H, const=1), P(H, const=1), P(H, const=1)
        self.n_post, self.n_post1, self.n_post2 = P(H, const=1), P(H, const=1), P(H, const=1)
        self.q, self.k_, self.o = P(NH * self.hd, H, std=s), P(self.nkv * self.hd, H, std=s), P(H, NH * self.hd, std=(NH * self.hd) ** -.5)
        self.v = P(self.nkv * self.hd, H, std=s) if kind == SL else None
        self.qn, self.kn = P(self.hd, const=1.5 * self.hd ** -.25), P(self.hd, const=1.5 * self.hd ** -.25)
        self.gate, self.up, self.down = P(FF, H, std=s), P(FF, H, std=s), P(H, FF, std=FF ** -.5)
        self.r_proj, self.r_scale, self.r_exp = P(E, H, std=.5), P(H, const=1), P(E, const=1)
        self.gu, self.dn = P(E, 2 * FE, H, std=s), P(E, H, FE, std=FE ** -.5)
        self.s_dec, self.s_enc = P(1, const=1), P(1, const=1)

    def pre(self, x, cos, sin):
        """x [N,H] -> q [N, heads, hd], k, v [N, kv heads, hd] after norms and rope."""
        N, t = x.shape[0], x.dtype
        h = rms(x, self.n_in)
        q = rope(rms(F.linear(h, self.q.to(t)).view(N, self.nh, self.hd), self.qn), cos, sin)
        k0 = F.linear(h, self.k_.to(t)).view(N, self.nkv, self.hd)
        v0 = k0 if self.v is None else F.linear(h, self.v.to(t)).view(N, self.nkv, self.hd)
        k, v = rope(rms(k0, self.kn), cos, sin), rms(v0)
        return q.to(t), k.to(t), v

    def post(self, x, a, canvas):
        N, H, t = x.shape[0], x.shape[1], x.dtype
        x = x + rms(F.linear(a, self.o.to(t)), self.n_attn)
        r = x
        y = rms(r, self.n_ff)
        d = rms(F.linear(F.gelu(F.linear(y, self.gate.to(t)), approximate="tanh") * F.linear(y, self.up.to(t)), self.down.to(t)), self.n_post1)
        p = torch.softmax(F.linear(rms(r).float() * self.r_scale * H ** -.5, self.r_proj), -1)
        keep = p >= p.topk(self.k, -1).values[..., -1:]
        w = p * keep
        w = w / w.sum(-1, keepdim=True) * self.r_exp
        y2 = rms(r, self.n_ff2)
        z = F.linear(y2, self.gu.reshape(-1, H).to(t)).view(N, self.e, 2, self.fe)
        z = F.gelu(z[:, :, 0], approximate="tanh") * z[:, :, 1] * w[..., None].to(t)
        m = rms(F.linear(z.reshape(N, -1), self.dn.permute(1, 0, 2).reshape(H, -1).to(t)), self.n_post2)
        x = (r + rms(d + m, self.n_post)) * torch.where(canvas, self.s_dec, self.s_enc).to(t)
        return x, (p.mean(0) * keep.float().mean(0)).sum() * self.e / self.k


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        H, FF = c["hidden_size"], c["intermediate_size"]
        self.emb = P(c["vocab_size"], H, std=H ** -.5)
        self.norm = P(H, const=1)
        self.layers = nn.ModuleList([Layer(c, k) for k in c["layer_types"]])
        self.sc_norm, self.sc_gate, self.sc_up, self.sc_down = P(H, const=1), P(FF, H, std=H ** -.5), P(FF, H, std=H ** -.5), P(H, FF, std=.3 * FF ** -.5)
        for kind, hd in ((SL, c["head_dim"]), (FU, c["global_head_dim"])):
            self.register_buffer("f_" + kind, inv_freq(kind, hd), persistent=False)

    def forward(self, b, sc=None, sc_rows=None, want=None, dtype=torch.float32):
        """b: ids, pos [N], canvas [N,1] bool, mask (see `masks`), shape (T,Lp,K,Lc). Returns normed hidden [N,H], the
        balance loss and, for `want` (name -> layer, head, function), what the supervised heads look at."""
        H = self.c["hidden_size"]
        e = (F.embedding(b["ids"], self.emb) * math.sqrt(H)).to(dtype)
        d = e
        if sc is not None:
            n, t = rms(sc, self.sc_norm).to(dtype), dtype
            d = e.index_add(0, sc_rows, F.linear(F.gelu(F.linear(n, self.sc_gate.to(t)), approximate="tanh") * F.linear(n, self.sc_up.to(t)), self.sc_down.to(t)))
        canvas = b["canvas"]
        x = torch.where(canvas, rms(d), e)
        table = {}
        for kind in (SL, FU):
            f = b["pos"].float()[:, None] * getattr(self, "f_" + kind)
            table[kind] = (f.cos()[:, None].to(dtype), f.sin()[:, None].to(dtype))
        bal, point = 0.0, {}
        for i, layer in enumerate(self.layers):
            q, k, v = layer.pre(x, *table[layer.kind])
            for name, (at, head, fn) in (want or {}).items():
                if at == i:
                    point[name] = fn(q[:, head], k[:, head * layer.nkv // layer.nh], b)
            if want and i == 2:  # mean of the state's rows, for the probe
                T, Lp, K, Lc = b["shape"]
                on = b["rows"][:, :, None].to(dtype)
                point["pool"] = (rms(x[T * Lp:]).view(T * K, Lc, -1) * on).sum(1) / b["rows"].sum(1, keepdim=True)
            x, l = layer.post(x, attention.Tree.apply(q, k, v, b["shape"], *b["mask"]), canvas)
            bal = bal + l
        return rms(x, self.norm), bal, point

    def logits(self, hidden):
        return 30 * torch.tanh(F.linear(hidden, self.emb.to(hidden.dtype)).float() / 30)


def looks(q, k, b, at):
    """Scores [rows, Lp + Lc] of child rows `at` on the rows of their own prompt and canvas, for one head q, k [N, hd]."""
    T, Lp, K, Lc = b["shape"]
    mask_p, mask_c, _ = b["mask"]
    at = at - T * Lp
    child = torch.div(at, Lc, rounding_mode="floor")
    kc, m = k[T * Lp:].view(T * K, Lc, -1)[child], mask_c[child, at % Lc]
    if Lp:
        tree = torch.div(child, K, rounding_mode="floor")
        kc, m = torch.cat([k[:T * Lp].view(T, Lp, -1)[tree], kc], 1), torch.cat([mask_p[tree], m], 1)
    return (kc @ q[at + T * Lp][:, :, None])[..., 0].float() + m


def ask_looks(q, k, b):
    """Of the rows right before the slots."""
    return looks(q, k, b, b["at"][b["aux"]] - 1)


def slot_looks(q, k, b):
    """Of the slots."""
    return looks(q, k, b, b["at"][b["aux"]])


def word_looks(q, k, b):
    """Of words of the state."""
    return looks(q, k, b, b["words"])


def line_looks(q, k, b, rows="lines"):
    """Of rows of option lines on the shared sheet (b[rows], row numbers): scores [lines, Lp]."""
    T, Lp, _, _ = b["shape"]
    if not Lp:
        return q.new_zeros(0, 1).float()
    tree = torch.div(b[rows], Lp, rounding_mode="floor")
    later = torch.arange(Lp)[None] > (b[rows] % Lp)[:, None]
    return (k[:T * Lp].view(T, Lp, -1)[tree] @ q[b[rows]][:, :, None])[..., 0].float().masked_fill(later, -1e9)


def yes_looks(q, k, b):
    """Of rows of "yes" lines."""
    return line_looks(q, k, b, "yes")


def masks(plen, ulen, clen, K, Lp, Lc):
    """Additive f32 masks (prefix rows [T, Lp], child rows [T*K, Lc, Lc], causal prefix [1, 1, 1, Lp, Lp]): a prompt row is
    causal, a canvas row sees the whole prompt and its canvas; padding sees itself."""
    i, j = torch.arange(Lc)[None, :, None], torch.arange(Lc)[None, None]
    u, c = ulen[:, None, None], clen[:, None, None]
    own = torch.where(i < u, j <= i, (j < u + c) & (i < u + c)) | (i == j)
    off = lambda keep: torch.zeros(keep.shape).masked_fill_(~keep, -1e9)
    return off(torch.arange(Lp)[None] < plen[:, None]), off(own), off(torch.ones(Lp, Lp).tril() > 0)[None, None, None]


def named(model):
    """Checkpoint name -> parameter."""
    d = "model.decoder."
    out = {d + "embed_tokens.weight": model.emb, d + "norm.weight": model.norm}
    for i, l in enumerate(model.layers):
        p = f"{d}layers.{i}."
        for name, t in (("input_layernorm.weight", l.n_in), ("post_attention_layernorm.weight", l.n_attn), ("pre_feedforward_layernorm.weight", l.n_ff), ("pre_feedforward_layernorm_2.weight", l.n_ff2),
                        ("post_feedforward_layernorm.weight", l.n_post), ("post_feedforward_layernorm_1.weight", l.n_post1), ("post_feedforward_layernorm_2.weight", l.n_post2),
                        ("self_attn.q_proj.weight", l.q), ("self_attn.k_proj.weight", l.k_), ("self_attn.v_proj.weight", l.v), ("self_attn.o_proj.weight", l.o), ("self_attn.q_norm.weight", l.qn),
                        ("self_attn.k_norm.weight", l.kn), ("mlp.gate_proj.weight", l.gate), ("mlp.up_proj.weight", l.up), ("mlp.down_proj.weight", l.down), ("router.proj.weight", l.r_proj),
                        ("router.scale", l.r_scale), ("router.per_expert_scale", l.r_exp), ("experts.gate_up_proj", l.gu), ("experts.down_proj", l.dn), ("layer_scalar", l.s_dec)):
            if t is not None:
                out[p + name] = t
        out[f"model.encoder.language_model.layers.{i}.layer_scalar"] = l.s_enc
    c = d + "self_conditioning."
    out.update({c + "pre_norm.weight": model.sc_norm, c + "gate_proj.weight": model.sc_gate, c + "up_proj.weight": model.sc_up, c + "down_proj.weight": model.sc_down})
    return out


def export_state(model):
    return {k: v.detach().to(torch.bfloat16).contiguous() for k, v in named(model).items()}


def import_state(model, tensors):
    with torch.no_grad():
        for k, t in named(model).items():
            t.copy_(tensors[k].float())

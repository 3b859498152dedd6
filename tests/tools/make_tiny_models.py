#!/usr/bin/env python3
"""Writes tests/golden/data/tiny-{qwen2,qwen3,gemma3,llama3,mistral}*.gguf and their reference answers (.json beside them).

Needs numpy and gguf (pip install numpy gguf). Weights are random. The reference is a float64 forward pass over the file's
exactly dequantised weights, written after the Hugging Face models (modeling_qwen2.py, modeling_qwen3.py, modeling_gemma3.py,
modeling_llama.py, modeling_mistral.py, modeling_rope_utils.py) and not after attnd: weights live here in Hugging Face's form
(halves rotate, gemma norms without the + 1), the GGUF file gets them as llama.cpp's converter would write them. The whole
text is computed at once, with full score matrices and no cache.
"""
import hashlib
import json
import math
import pathlib

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "data"
T = gguf.GGMLQuantizationType
N_GREEDY = 16

MODELS = {
    # Biases on q, k, v; tied output; YaRN from 32 to 128 positions.
    "tiny-qwen2-f16": dict(arch="qwen2", type=T.F16, d=32, layers=2, heads=4, kv=2, hd=16, ff=64, ctx=128, base=1e6, eps=1e-6, vocab=300,
                           yarn=dict(factor=4.0, orig=32), seed=22),
    # q and k norms; a head size that is not d / heads; untied output.
    "tiny-qwen3-q8_0": dict(arch="qwen3", type=T.Q8_0, d=32, layers=3, heads=4, kv=2, hd=32, ff=64, ctx=128, base=1e6, eps=1e-6, vocab=300,
                            untied=True, seed=3),
    # A window of 8; layer 5 of 7 global; local base and pattern left to their defaults; linear scaling on global layers only.
    "tiny-gemma3-q8_0": dict(arch="gemma3", type=T.Q8_0, d=32, layers=7, heads=4, kv=1, hd=32, ff=64, ctx=128, base=1e6, eps=1e-6, vocab=300,
                             window=8, linear=8.0, attn_cap=5.0, final_cap=12.0, seed=4),
    # Rotary factors as a tensor (Llama 3.1); untied output; three query heads a KV head.
    "tiny-llama3-f16": dict(arch="llama", type=T.F16, d=48, layers=2, heads=6, kv=2, hd=16, ff=64, ctx=128, base=500000.0, eps=1e-5, vocab=300,
                            untied=True, llama3=dict(factor=8.0, low=1.0, high=4.0, orig=32), bpe=True, seed=5),
    # Every layer has a window of 8; linear scaling; tied output.
    "tiny-mistral-f16": dict(arch="llama", type=T.F16, d=32, layers=3, heads=4, kv=2, hd=16, ff=64, ctx=128, base=10000.0, eps=1e-5, vocab=300,
                             window=8, linear=2.0, seed=16),
}


def permute(w, n_head):  # llama.cpp's LlamaModel.permute: halves become adjacent pairs
    return w.reshape(n_head, 2, w.shape[0] // n_head // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, n_head):
    return w.reshape(n_head, w.shape[0] // n_head // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


class Maker:
    """Draws weights, writes each to the file in GGUF's form and keeps it in Hugging Face's."""

    def __init__(self, path, c):
        self.c, self.rng, self.w = c, np.random.default_rng(c["seed"]), {}
        self.g = gguf.GGUFWriter(path, c["arch"])

    def matrix(self, name, n_out, n_in, gain=1.0, heads=0):
        w = self.rng.normal(0, gain / math.sqrt(n_in), (n_out, n_in)).astype(np.float32)
        packed = quantize(permute(w, heads) if heads else w, self.c["type"])
        self.g.add_tensor(name + ".weight", packed, raw_dtype=self.c["type"])
        exact = dequantize(packed, self.c["type"]).astype(np.float64)
        self.w[name] = unpermute(exact, heads) if heads else exact

    def vector(self, name, n, mean, spread, heads=0, plus_one=False):
        v = self.rng.normal(mean, spread, n).astype(np.float32)
        if plus_one:
            stored = (v + np.float32(1)).astype(np.float32)
            self.w[name] = stored.astype(np.float64) - 1
        else:
            stored = permute(v, heads) if heads else v
            self.w[name] = v.astype(np.float64)
        self.g.add_tensor(name, stored)


def llama3_factors(c):  # modeling_rope_utils._compute_llama3_parameters, as divisors
    p = c["llama3"]
    inv = 1.0 / c["base"] ** (np.arange(0, c["hd"], 2) / c["hd"])
    out = []
    for f in inv:
        wavelen = 2 * math.pi / f
        if wavelen < p["orig"] / p["high"]:
            out.append(1.0)
        elif wavelen > p["orig"] / p["low"]:
            out.append(p["factor"])
        else:
            smooth = (p["orig"] / wavelen - p["low"]) / (p["high"] - p["low"])
            out.append(1.0 / ((1 - smooth) / p["factor"] + smooth))
    return np.array(out, np.float32)


def build(name, c):
    m = Maker(OUT / (name + ".gguf"), c)
    g, arch = m.g, c["arch"]
    g.add_name(name)
    g.add_context_length(c["ctx"])
    g.add_embedding_length(c["d"])
    g.add_block_count(c["layers"])
    g.add_feed_forward_length(c["ff"])
    g.add_head_count(c["heads"])
    g.add_head_count_kv(c["kv"])
    g.add_key_length(c["hd"])
    g.add_value_length(c["hd"])
    g.add_layer_norm_rms_eps(c["eps"])
    g.add_rope_freq_base(c["base"])
    g.add_vocab_size(c["vocab"])
    if "yarn" in c:
        g.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        g.add_rope_scaling_factor(c["yarn"]["factor"])
        g.add_rope_scaling_orig_ctx_len(c["yarn"]["orig"])
    if "linear" in c:
        g.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        g.add_rope_scaling_factor(c["linear"])
    if "window" in c:
        g.add_sliding_window(c["window"])
    if "attn_cap" in c:
        g.add_attn_logit_softcapping(c["attn_cap"])
        g.add_final_logit_softcapping(c["final_cap"])
    vocabulary(g, c)

    d, hd, q, kv = c["d"], c["hd"], c["heads"] * c["hd"], c["kv"] * c["hd"]
    gemma = arch == "gemma3"
    norm = (lambda n, k: m.vector(n + ".weight", k, 0.0, 0.2, plus_one=True)) if gemma else (lambda n, k: m.vector(n + ".weight", k, 1.0, 0.2))
    m.matrix("token_embd", c["vocab"], d, gain=1.0 if gemma else 0.5 * math.sqrt(d))
    if "llama3" in c:
        f = llama3_factors(c)
        g.add_tensor("rope_freqs.weight", f)
        m.w["rope_factors"] = f.astype(np.float64)
    norm("output_norm", d)
    if c.get("untied"):
        m.matrix("output", c["vocab"], d, gain=3.0)
    p = arch == "llama"
    for l in range(c["layers"]):
        b = f"blk.{l}."
        norm(b + "attn_norm", d)
        m.matrix(b + "attn_q", q, d, 2.0, heads=c["heads"] if p else 0)
        m.matrix(b + "attn_k", kv, d, 2.0, heads=c["kv"] if p else 0)
        m.matrix(b + "attn_v", kv, d)
        if arch == "qwen2":
            for x, n in (("q", q), ("k", kv), ("v", kv)):
                m.vector(b + f"attn_{x}.bias", n, 0.0, 0.5)
        if arch in ("qwen3", "gemma3"):
            norm(b + "attn_q_norm", hd)
            norm(b + "attn_k_norm", hd)
        m.matrix(b + "attn_output", d, q)
        if gemma:
            norm(b + "post_attention_norm", d)
        norm(b + "ffn_norm", d)
        m.matrix(b + "ffn_gate", c["ff"], d, 2.0)
        m.matrix(b + "ffn_up", c["ff"], d, 2.0)
        m.matrix(b + "ffn_down", d, c["ff"])
        if gemma:
            norm(b + "post_ffw_norm", d)
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()
    return m.w


def vocabulary(g, c):
    n = c["vocab"]
    if c["arch"].startswith("qwen") or c.get("bpe"):  # GPT-2's printable stand-ins for bytes, then merges
        stand_in, extra = {}, 0
        for b in range(256):
            if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255:
                stand_in[b] = chr(b)
            else:
                stand_in[b] = chr(256 + extra)
                extra += 1
        tokens = [stand_in[b] for b in range(256)]
        merges = []
        letters = "etaoinsrhldu"
        for a in letters:
            for b in letters:
                if len(tokens) < n - 2:
                    merges.append(f"{a} {b}")
                    tokens.append(a + b)
        tokens += ["<|endoftext|>", "<|im_end|>"]
        g.add_tokenizer_model("gpt2")
        g.add_tokenizer_pre("llama-bpe" if c.get("bpe") else "qwen2")
        g.add_token_list(tokens)
        g.add_token_types([1] * (n - 2) + [3, 3])
        g.add_token_merges(merges)
        g.add_bos_token_id(n - 2)
        g.add_eos_token_id(n - 2)
        return
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    types = [2, 3, 3] + [6] * 256
    pieces = "▁ e t a o i n s r h l d u c m".split()
    pieces += ["▁" + p for p in pieces[1:]] + [a + b for a in "tha" for b in "eino"]
    tokens += pieces[: n - len(tokens)]
    types += [1] * (n - len(types))
    g.add_tokenizer_model("llama")
    g.add_token_list(tokens)
    g.add_token_scores([0.0] * 259 + [-float(i) for i in range(n - 259)])
    g.add_token_types(types)
    g.add_bos_token_id(1)
    g.add_eos_token_id(2)
    g.add_unk_token_id(0)
    g.add_add_bos_token(True)
    if c["arch"] == "gemma3":
        g.add_add_space_prefix(False)


# ---- the forward pass ----


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rotary(c, w, n, local):
    """cos, sin [n, hd] and as Hugging Face lays them out: the frequencies twice."""
    hd = c["hd"]
    base, scale = c["base"], 1.0
    if local and c["arch"] == "gemma3":
        inv = 1.0 / 10000.0 ** (np.arange(0, hd, 2) / hd)
    else:
        inv = 1.0 / base ** (np.arange(0, hd, 2) / hd)
        if "linear" in c:
            inv = inv / c["linear"]
        if "llama3" in c:
            inv = inv / w["rope_factors"]
        if "yarn" in c:
            y = c["yarn"]
            dim = lambda turns: hd * math.log(y["orig"] / (turns * 2 * math.pi)) / (2 * math.log(base))
            low, high = max(math.floor(dim(32)), 0), min(math.ceil(dim(1)), hd - 1)
            ramp = np.clip((np.arange(hd // 2) - low) / (high - low if high != low else 0.001), 0, 1)
            inv = inv / y["factor"] * ramp + inv * (1 - ramp)
            scale = 0.1 * math.log(y["factor"]) + 1.0
    angle = np.outer(np.arange(n), np.concatenate([inv, inv]))
    return np.cos(angle) * scale, np.sin(angle) * scale


def rotate(x, cos, sin):  # x [n, heads, hd]
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], -1)
    return x * cos[:, None] + turned * sin[:, None]


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def forward(c, w, ids, ablate=(), scale=(), token_factor=()):
    """Logits [n, vocab] and attention weights [layers][heads, n, n]."""
    gemma = c["arch"] == "gemma3"
    n, hd, heads, kv = len(ids), c["hd"], c["heads"], c["kv"]
    norm = lambda x, name: rms(x, w[name + ".weight"] + (1 if gemma else 0), c["eps"])
    x = w["token_embd"][ids] * (math.sqrt(c["d"]) if gemma else 1)
    behind = np.arange(n)[:, None] - np.arange(n)[None, :]
    maps = []
    for l in range(c["layers"]):
        b = f"blk.{l}."
        local = "window" in c and not (gemma and l % 6 == 5)
        h = norm(x, b + "attn_norm")
        q, k, v = (h @ w[b + f"attn_{p}"].T + w.get(b + f"attn_{p}.bias", 0) for p in "qkv")
        q, k, v = q.reshape(n, heads, hd), k.reshape(n, kv, hd), v.reshape(n, kv, hd)
        if b + "attn_q_norm.weight" in w:
            q, k = norm(q, b + "attn_q_norm"), norm(k, b + "attn_k_norm")
        cos, sin = rotary(c, w, n, local)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
        s = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(hd)
        for i in scale:
            if i["layer"] == l:
                s[i["head"]] *= i["factor"]
        if "attn_cap" in c:
            s = np.tanh(s / c["attn_cap"]) * c["attn_cap"]
        for i in token_factor:
            s[:, :, i["position"]] += math.log(i["factor"])
        s = np.where((behind < 0) | (local & (behind >= c.get("window", 0))), -np.inf, s)
        a = np.exp(s - s.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        maps.append(a)
        o = np.einsum("hqk,khd->qhd", a, v)
        for i in ablate:
            if i["layer"] == l:
                o[:, i["head"]] = 0
        o = o.reshape(n, heads * hd) @ w[b + "attn_output"].T
        x = x + (norm(o, b + "post_attention_norm") if gemma else o)
        h = norm(x, b + "ffn_norm")
        act = gelu if gemma else silu
        f = (act(h @ w[b + "ffn_gate"].T) * (h @ w[b + "ffn_up"].T)) @ w[b + "ffn_down"].T
        x = x + (norm(f, b + "post_ffw_norm") if gemma else f)
    logits = norm(x, "output_norm") @ w.get("output", w["token_embd"]).T
    if "final_cap" in c:
        logits = np.tanh(logits / c["final_cap"]) * c["final_cap"]
    return logits, maps


def top5(row):
    order = np.lexsort((np.arange(row.size), -row))[:5]
    return [[int(i), round(float(row[i]), 5)] for i in order]


def lse(row):
    return float(np.log(np.exp(row - row.max()).sum()) + row.max())


def answer(c, w, ids, full):
    n = len(ids)
    logits, maps = forward(c, w, ids)
    p = {"ids": ids, "prompt_logprobs": [None] + [round(float(logits[i - 1][ids[i]]) - lse(logits[i - 1]), 5) for i in range(1, n)]}
    all_ids, steps = list(ids), []
    for _ in range(N_GREEDY):
        row = forward(c, w, all_ids)[0][-1]
        best = top5(row)
        two = np.sort(row)[-2:]
        steps.append({"top5": best, "gap": round(float(two[1] - two[0]), 5), "logsumexp": round(lse(row), 5)})
        all_ids.append(best[0][0])
    p.update(greedy_ids=all_ids[n:], smallest_gap=min(s["gap"] for s in steps), steps=steps)
    p["logits_last"] = [round(float(v), 5) for v in logits[-1]]
    p["attention"] = {"position": n - 1, "rows": {str(l): [[round(float(v), 6) for v in head[-1]] for head in maps[l]] for l in range(c["layers"])}}
    if full:
        last = c["layers"] - 1
        p["interventions"] = []
        for kind, what in (("ablate", {"layer": 0, "head": 1}), ("scale", {"layer": last, "head": 2, "factor": 0.5}),
                           ("token_factor", {"position": n - 3, "factor": 0.1})):
            p["interventions"].append({kind: [what], "top5_last": top5(forward(c, w, ids, **{kind: [what]})[0][-1])})
    return p


def main():
    for name, c in MODELS.items():
        w = build(name, c)
        path = OUT / (name + ".gguf")
        rng = np.random.default_rng(c["seed"] + 100)
        draw = lambda n: [int(i) for i in rng.integers(3, c["vocab"] - 2, n)]
        doc = {
            "model": path.name,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "architecture": c["arch"],
            "computed": "tests/tools/make_tiny_models.py: float64 forward pass over the exactly dequantised weights, written after the Hugging Face models",
            "format": "as tiny-llama-q8_0.json; prompts are ids alone",
            "tolerance": {"f32_path": {"suggested": {"logit": 1e-4, "logprob": 1e-4, "attention": 1e-5, "greedy_ids": "equal wherever the gap exceeds 1e-3"}}},
            "prompts": {"short": answer(c, w, draw(12), True), "long": answer(c, w, draw(70), False)},
        }
        (OUT / (name + ".json")).write_text(json.dumps(doc, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(name, path.stat().st_size, "bytes, smallest gap", min(p["smallest_gap"] for p in doc["prompts"].values()),
              "largest logit", max(max(map(abs, p["logits_last"])) for p in doc["prompts"].values()))


if __name__ == "__main__":
    main()

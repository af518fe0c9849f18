"""GPT-2 in PyTorch, for comparison. Uses only Hugging Face's names and layouts of the tensors, and float32
autograd. Runs on torch 1.13 and on the newest. Also reads and writes safetensors files without a library."""
import json
import math
import os
import struct

import numpy
import torch
import torch.nn.functional as F


def shapes(config):
    c, v, t = config["n_embd"], config["vocab_size"], config["n_positions"]
    out = {"transformer.wte.weight": (v, c), "transformer.wpe.weight": (t, c)}
    for i in range(config["n_layer"]):
        h = "transformer.h.%d." % i
        out.update({h + "ln_1.weight": (c,), h + "ln_1.bias": (c,), h + "attn.c_attn.weight": (c, 3 * c),
                    h + "attn.c_attn.bias": (3 * c,), h + "attn.c_proj.weight": (c, c), h + "attn.c_proj.bias": (c,),
                    h + "ln_2.weight": (c,), h + "ln_2.bias": (c,), h + "mlp.c_fc.weight": (c, 4 * c),
                    h + "mlp.c_fc.bias": (4 * c,), h + "mlp.c_proj.weight": (4 * c, c), h + "mlp.c_proj.bias": (c,)})
    out.update({"transformer.ln_f.weight": (c,), "transformer.ln_f.bias": (c,)})
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = (v, c)
    return out


def make(config, seed, spread=0.08):
    """Makes weights that are larger than GPT-2's initial ones, so that every part of the model affects the result."""
    g = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in shapes(config).items():
        x = torch.randn(shape, generator=g) * spread
        out[name] = 1.0 + x if ".ln_" in name and name.endswith("weight") else x
    return out


def forward(p, config, tokens):
    """Returns the logits (B,T,V) of tokens (B,T)."""
    b, t = tokens.shape
    heads, c = config["n_head"], config["n_embd"]
    gelu = {"gelu": {}, "gelu_new": {"approximate": "tanh"}}[config["activation_function"]]
    norm = lambda x, name: F.layer_norm(x, (c,), p[name + ".weight"], p[name + ".bias"], 1e-5)  # noqa: E731
    linear = lambda x, name: x @ p[name + ".weight"] + p[name + ".bias"]  # noqa: E731
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][:t]
    mask = torch.ones(t, t, dtype=torch.bool).tril()
    for i in range(config["n_layer"]):
        h = "transformer.h.%d." % i
        q, k, v = linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(c, dim=2)
        q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in (q, k, v))
        a = (q @ k.transpose(2, 3)) / math.sqrt(c // heads)
        y = torch.softmax(a.masked_fill(~mask, -math.inf), dim=3) @ v
        x = x + linear(y.transpose(1, 2).reshape(b, t, c), h + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), **gelu), h + "mlp.c_proj")
    x = norm(x, "transformer.ln_f")
    return x @ p["transformer.wte.weight" if config["tie_word_embeddings"] else "lm_head.weight"].t()


def loss(p, config, tokens, labels):
    return F.cross_entropy(forward(p, config, tokens).flatten(0, 1), labels.flatten())


def save(directory, config, p):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(config, f)
    write_safetensors(os.path.join(directory, "model.safetensors"), {k: v.detach().numpy() for k, v in p.items()})


def load(directory):
    """Returns (config, parameters) of a directory with config.json and model.safetensors."""
    with open(os.path.join(directory, "config.json")) as f:
        config = json.load(f)
    p = {k: torch.from_numpy(v) for k, v in read_safetensors(os.path.join(directory, "model.safetensors")).items()}
    assert {k: tuple(v.shape) for k, v in p.items()} == shapes(config), "names or shapes are not Hugging Face's"
    return config, p


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        raw = numpy.ascontiguousarray(x, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        assert t["dtype"] == "F32", t
        a, b = t["data_offsets"]
        out[name] = numpy.frombuffer(raw[8 + size + a:8 + size + b], dtype="<f4").reshape(t["shape"]).copy()
    return out

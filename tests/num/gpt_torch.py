#!/usr/bin/python3
"""Compares the gpt model with PyTorch: the same weights and the same batch give the same logits, loss and gradients, and the same
training gives the same losses. Each reads the files that the other wrote. Skips if torch cannot be imported."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.environ.get("DDP_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BIN = os.environ.get("DDP_BIN", os.path.join(SOURCE, "build", "bin"))
TESTS = os.path.join(BIN, "..", "tests")

try:
    import torch  # noqa: E402
    import gpt_reference as reference  # noqa: E402
    import numpy  # noqa: E402
except ImportError as why:
    print("skipped: %s (apt install python3-torch)" % why)
    sys.exit(77)

torch.set_num_threads(1)


def config(**changes):
    return dict({"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 48, "n_positions": 7, "vocab_size": 65,
                 "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}, **changes)


def distance(got, want):
    """Returns the largest difference, relative to the largest value."""
    return float((got - want).abs().max() / want.abs().max().clamp_min(1e-12))


def ours(directory, precision, tokens, rows):
    path, out = os.path.join(directory, "tokens"), os.path.join(directory, "out.safetensors")
    tokens.numpy().astype("<i4").tofile(path)
    done = subprocess.run([os.path.join(TESTS, "gpt_gradients"), directory, precision, path, str(rows), out], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode == 0, done.stdout
    return {k: torch.from_numpy(v) for k, v in reference.read_safetensors(out).items()}


def same_numbers(c, precision, limit, rows=3):
    with tempfile.TemporaryDirectory(prefix="ddp-gpt-") as directory:
        p = {k: v.requires_grad_() for k, v in reference.make(c, 1).items()}
        reference.save(directory, c, p)
        tokens = torch.randint(c["vocab_size"], (rows, c["n_positions"] + 1), generator=torch.Generator().manual_seed(2))
        logits = reference.forward(p, c, tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        got = ours(directory, precision, tokens, rows)
        worst = {"loss": distance(got["loss"][0], loss.detach())}
        worst["logits"] = distance(got["logits"], logits.detach().flatten(0, 1)) if precision == "fp32" else 0.0
        for name, x in p.items():
            worst[name] = distance(got[name], x.grad)
        name = max(worst, key=worst.get)
        print("%s %s: largest difference %.1e (%s)" % (precision, {k: c[k] for k in (
            "n_layer", "n_positions", "n_embd", "vocab_size", "activation_function", "tie_word_embeddings")},
            worst[name], name))
        assert worst[name] < limit, worst


def gradients_are_the_same():
    for c in (config(), config(n_positions=1), config(n_positions=129, tie_word_embeddings=False),
              config(activation_function="gelu", n_head=3, n_layer=1), config(n_embd=64, n_positions=64),
              config(vocab_size=50257, n_layer=1, n_positions=33)):
        same_numbers(c, "fp32", 1e-4)
    for c in (config(n_positions=64, n_embd=64), config(n_positions=129, tie_word_embeddings=False)):
        same_numbers(c, "bf16", 2e-2)


JOB = """
name: t
train:
  model: {type: gpt, layers: 2, heads: 4, width: 48, context: 32, activation: gelu_tanh, tied: true}
  init_from: start
  data: {type: text, path: text.txt, split: 0.9, shuffle: false}
  optimizer: %s
  schedule: {type: constant}
  batch: 8
  steps: 200
  precision: %s
  log_every: 1
  eval: {every: 200 , batches: all}
  snapshot: {dir: out, every: 200, keep: 1}
"""
STEPS, ROWS, CONTEXT = 200, 8, 32
ADAMW = "{type: adamw, lr: 1.0e-3, betas: [0.9, 0.95], weight_decay: 0.1, clip: 1.0}"
MUON = "{type: muon, lr: 0.02, weight_decay: 0.1, clip: 1.0, adamw: {lr: 1.0e-3, betas: [0.9, 0.95]}}"


def make_text(directory):
    words = "in the beginning god created heaven and earth without form void darkness upon face deep".split()
    g = torch.Generator().manual_seed(4)
    picks = torch.randint(len(words), (3000,), generator=g).tolist()
    text = "".join(words[i] + (".\n" if n % 9 == 8 else " ") for n, i in enumerate(picks))
    with open(os.path.join(directory, "text.txt"), "w") as f:
        f.write(text)
    symbols = sorted(set(text))
    return torch.tensor([symbols.index(s) for s in text]), len(symbols)


class Muon(torch.optim.Optimizer):
    """Muon as Jordan et al. (2024) define it, in float32, for matrices (in,out). The matrices of q, k and v, which lie side by
    side in one tensor, are updated separately."""
    def __init__(self, matrices):
        super().__init__(matrices, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            m = self.state[p].setdefault("momentum", torch.zeros_like(p))
            m.mul_(0.95).add_(p.grad)
            p.mul_(1 - 0.02 * 0.1)
            u = p.grad + 0.95 * m
            blocks = 3 if p.shape[1] == 3 * p.shape[0] else 1
            update = torch.cat([self.orthogonal(x) * max(1, x.shape[1] / x.shape[0]) ** 0.5 for x in u.chunk(blocks, 1)], 1)
            p.sub_(0.02 * update)

    @staticmethod
    def orthogonal(x):
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.t()
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return x


def torch_optimizers(p, muon):
    hidden = [v for k, v in p.items() if muon and v.dim() == 2 and ".h." in k]
    groups = [{"params": [v for k, v in p.items() if v.dim() == 2 and not (muon and ".h." in k)], "weight_decay": 0.1},
              {"params": [v for v in p.values() if v.dim() == 1], "weight_decay": 0.0}]
    return [torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))] + ([Muon(hidden)] if muon else [])


def torch_losses(c, p, tokens, muon=False):
    """Trains in PyTorch as the job file does in ddp: windows in order, weight decay on matrices and embeddings."""
    p = {k: v.clone().requires_grad_() for k, v in p.items()}
    optimizers = torch_optimizers(p, muon)
    losses = []
    for step in range(STEPS):
        at = [step * ROWS + i for i in range(ROWS)]
        x = torch.stack([tokens[i:i + CONTEXT] for i in at])
        y = torch.stack([tokens[i + 1:i + 1 + CONTEXT] for i in at])
        for o in optimizers:
            o.zero_grad()
        loss = reference.loss(p, c, x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        for o in optimizers:
            o.step()
        losses.append(float(loss))
    return losses


def train(directory, precision, optimizer=ADAMW):
    path = os.path.join(directory, "job.yaml")
    with open(path, "w") as f:
        f.write(JOB % (optimizer, precision))
    done = subprocess.run([os.path.join(BIN, "ddp-trainer"), "--standalone", path, "--set", "train.snapshot.dir=out-"
                           + precision], cwd=directory, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {r["step"]: r["loss"] for r in reports if "loss" in r}, [r["val_loss"] for r in reports if "val_loss" in r]


def snapshot_opens(directory, c, val_loss, tokens):
    name, = [n for n in os.listdir(os.path.join(directory, "out-fp32")) if n.startswith("step-")]
    snapshot = os.path.join(directory, "out-fp32", name)
    read, p = reference.load(snapshot)
    for key in ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size", "activation_function",
                "tie_word_embeddings", "layer_norm_epsilon"):
        assert read[key] == c[key], (key, read[key], c[key])
    with open(os.path.join(snapshot, "vocab.json")) as f:
        vocab = json.load(f)
    assert vocab == {s: i for i, s in enumerate(sorted(vocab))} and len(vocab) == c["vocab_size"]
    held = tokens[int(len(tokens) * 0.9):]
    windows = range(0, len(held) - CONTEXT, CONTEXT)
    x = torch.stack([held[i:i + CONTEXT] for i in windows])
    y = torch.stack([held[i + 1:i + 1 + CONTEXT] for i in windows])
    with torch.no_grad():
        theirs = float(reference.loss(p, read, x, y))
    print("validation loss of the snapshot: %.6f here, %.6f in PyTorch" % (val_loss, theirs))
    assert abs(val_loss - theirs) < 1e-4 * theirs, (val_loss, theirs)
    batch = torch.cat([x[:2], y[:2, -1:]], 1)
    assert distance(ours(snapshot, "fp32", batch, 2)["logits"],
                    reference.forward(p, read, x[:2]).detach().flatten(0, 1)) < 1e-4


def losses_are_the_same():
    with tempfile.TemporaryDirectory(prefix="ddp-gpt-") as directory:
        tokens, vocab = make_text(directory)
        c = config(n_positions=CONTEXT, vocab_size=vocab)
        p = reference.make(c, 3, 0.02)
        reference.save(os.path.join(directory, "start"), c, p)
        theirs = torch_losses(c, p, tokens)
        losses, val = train(directory, "fp32")
        worst = max(abs(losses[i + 1] - theirs[i]) / theirs[i] for i in range(STEPS))
        print("200 steps of AdamW: loss %.4f to %.4f, largest difference %.1e" % (theirs[0], theirs[-1], worst))
        assert worst < 1e-3, worst
        assert theirs[-1] < 0.7 * theirs[0], "it does not learn"
        snapshot_opens(directory, c, val[-1], tokens)
        losses, _ = train(directory, "bf16")
        worst = max(abs(losses[i + 1] - theirs[i]) / theirs[i] for i in range(STEPS))
        print("the same in bf16: largest difference %.1e" % worst)
        assert worst < 2e-2, worst
        muon_is_the_same(directory, c, p, tokens)


def muon_is_the_same(directory, c, p, tokens):
    theirs = torch_losses(c, p, tokens, muon=True)
    losses, _ = train(directory, "fp32", MUON)
    worst = max(abs(losses[i + 1] - theirs[i]) / theirs[i] for i in range(STEPS))
    print("200 steps of Muon: loss %.4f to %.4f, largest difference %.1e" % (theirs[0], theirs[-1], worst))
    assert worst < 1e-3 and theirs[-1] < 0.7 * theirs[0], worst


CASES = {"gradients": gradients_are_the_same, "losses": losses_are_the_same}
for case in sys.argv[1:] or CASES:
    CASES[case]()

"""Training programs that nobody here wrote, each as it is and with one line that rematerializes its model.

    python benchmarks/programs.py FOLDER
    python benchmarks/programs.py FOLDER --only nanoGPT mnist    (the others stay as they were)

FOLDER has clones of pytorch/examples, karpathy/nanoGPT, karpathy/minGPT and milesial/Pytorch-UNet under their names. A
program runs twice on the CPU, on made-up data, from the same random numbers, with a line after the one that is quoted
in `PROGRAMS`; the second time this line rematerializes the model, with the smallest budget. Printed losses and all
weights in the end must be equal bit for bit. The programs need torchvision, Pillow, matplotlib, requests and tqdm,
which are no dependencies.
"""

from __future__ import annotations

import argparse
import builtins
import json
import os
import random
import re
import runpy
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from field_models import declare_operators_of_torchvision
from report import kept, publish

import remat_explorer as rx

COLUMNS = ("program", "outcome", "n", "overhead", "plans", "remark")
TIMES = re.compile(r"\(?\d+\.\d+ ?m?s\)?|(time|ms/batch|iter_dt|mfu):?,? +\S+")
EXAMPLES = "examples"
WEIGHTS = "weights.json"  # their hashes


@dataclass(frozen=True)
class Program:
    """A script of others, and what is inserted.

    Attributes:
        path: of the script, below the folder of clones.
        after: a line of it.
        line: what follows it; ``remat(model, *inputs)`` gives the model, which the second run rematerializes.
        arguments: of the script.
        replaced: pieces of it that need what is not here, and what is there instead.
    """

    path: str
    after: str
    line: str
    arguments: str = ""
    replaced: tuple[tuple[str, str], ...] = ()


def of_mnist(folder: str, after: str, line: str, arguments: str = "--epochs 2 --log-interval 1") -> Program:
    """One of the examples that read handwritten digits."""
    return Program(f"{EXAMPLES}/{folder}/main.py", after, line, arguments)


def language_model(kind: str) -> Program:
    """One of the models of the example of language models."""
    hidden = "" if kind == "Transformer" else ", model.init_hidden(args.batch_size)"
    inputs = f"batchify(corpus.train, args.batch_size)[: args.bptt]{hidden}"
    arguments = f"--data words --model {kind} --epochs 2 --emsize 32 --nhid 32 --log-interval 2"
    path = f"{EXAMPLES}/word_language_model/main.py"
    return Program(path, "criterion = nn.NLLLoss()", f"model = remat(model, {inputs})", arguments)


PROGRAMS: dict[str, Program] = {
    "mnist": of_mnist("mnist", "    model = Net().to(device)", "    model = remat(model, torch.rand(64, 1, 28, 28))"),
    "mnist_rnn": of_mnist(
        "mnist_rnn", "    model = Net().to(device)", "    model = remat(model, torch.rand(64, 1, 28, 28))"
    ),
    "vae": of_mnist(
        "vae",
        "model = VAE().to(device)",
        "model = remat(model, torch.rand(args.batch_size, 1, 28, 28))",
        "--epochs 2 --batch-size 32",
    ),
    "siamese_network": of_mnist(
        "siamese_network",
        "    model = SiameseNetwork().to(device)",
        "    model = remat(model, *(torch.rand(args.batch_size, 1, 28, 28) for _ in range(2)))",
        "--epochs 1 --batch-size 32 --test-batch-size 40",
    ),
    "dcgan": Program(
        f"{EXAMPLES}/dcgan/main.py",
        "criterion = nn.BCELoss()",
        "netG = remat(netG, torch.randn(opt.batchSize, nz, 1, 1)); netD = remat(netD, torch.rand(opt.batchSize, nc, "
        "opt.imageSize, opt.imageSize, requires_grad=True))",
        "--dataset fake --dry-run --batchSize 8 --workers 0 --niter 1 --ngf 8 --ndf 8 --manualSeed 3",
    ),
    "time_sequence_prediction": Program(
        f"{EXAMPLES}/time_sequence_prediction/train.py",
        "    seq.double()",
        "    seq = remat(seq, input)",
        "--steps 2",
        (("load('traindata.pt')", "from_numpy(np.load('traindata.npy')).numpy()"),),
    ),
    **{f"word_language_model {kind}": language_model(kind) for kind in ("LSTM", "GRU", "RNN_TANH", "Transformer")},
    "gat": Program(
        f"{EXAMPLES}/gat/main.py",
        "    # configure the optimizer and loss function",
        "    gat_net = remat(gat_net, features, adj_mat)",
        "--epochs 3 --hidden-dim 8 --num-heads 2 --val-every 1",
    ),
    "nanoGPT": Program(
        "nanoGPT/train.py",
        "model.to(device)",
        "model = remat(model, *get_batch('train'))",
        "--dataset=made --device=cpu --compile=False --eval_iters=2 --log_interval=1 --block_size=32 --batch_size=4 "
        "--n_layer=2 --n_head=2 --n_embd=32 --max_iters=6 --lr_decay_iters=6 --dropout=0.1 --eval_interval=3 "
        "--gradient_accumulation_steps=4",
        (
            ("open('configurator.py')", "open(__file__.rpartition('/')[0] + '/configurator.py')"),
            ("meta_vocab_size = None", "meta_vocab_size = 60"),
        ),
    ),
    "minGPT": Program(
        "minGPT/projects/adder/adder.py",
        "    model = GPT(config.model)",
        "    model = remat(model, *next(iter(DataLoader(train_dataset, batch_size=config.trainer.batch_size))))",
        "--trainer.max_iters=20 --trainer.num_workers=0 --model.model_type=gpt-nano --trainer.batch_size=16",
    ),
    "Pytorch-UNet": Program(
        "Pytorch-UNet/train.py",
        "    model.to(device=device)",
        "    model = remat(model, torch.rand(args.batch_size, 3, 48, 64).to(memory_format=torch.channels_last))",
        "--epochs 1 --batch-size 2 --scale 1.0 --validation 20",
        (("import wandb\n", "wandb = nothing\n"),),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--run", choices=["plainly", "rematerialized"], help=argparse.SUPPRESS)  # here, in this process
    options = parser.parse_args()
    if options.run:
        run(options.folder, PROGRAMS[options.only[0]], options.run == "rematerialized")
        return 0
    known = {row["program"]: row for row in kept("programs")}
    for name in options.only:
        known[name] = dict(zip(COLUMNS, [name, *compared(options.folder.resolve(), name)], strict=True))
        print(" | ".join(known[name].values()), flush=True)
    rows = [known[name] for name in PROGRAMS if name in known]
    publish("programs", COLUMNS, [[*row.values()] for row in rows], rows)
    return int(any(row["outcome"] != "equal" for row in rows))


def compared(folder: Path, name: str) -> list[str]:
    """Whether a program gives the same with the line and without, and what was said of the plan."""
    printed, weights, said = [], [], ""
    for how in ("plainly", "rematerialized"):
        with tempfile.TemporaryDirectory() as place:
            make_data(Path(place))
            command = [sys.executable, os.path.abspath(__file__), str(folder), "--only", name, "--run", how]
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
            if done.returncode:
                return [f"fails {how}", "", "", "", (done.stderr.strip().splitlines() or ["no word"])[-1]]
            printed.append([TIMES.sub("", line) for line in done.stdout.splitlines() if "loss" in line.lower()])
            weights.append(json.loads((Path(place) / WEIGHTS).read_text()))
            said = next((line for line in done.stderr.splitlines() if line.startswith("PLAN ")), "PLAN    ")
    plain, ours = weights
    other = [key for key in plain if ours.get(key) != plain[key]]
    if other or plain.keys() != ours.keys():
        return ["differs", "", "", "", f"{len(other)} of {len(plain)} tensors, such as {next(iter(other), '')}"]
    if printed[0] != printed[1]:
        return ["differs", "", "", "", "in what is printed"]
    return ["equal", *said.split()[1:], f"{len(printed[0])} printed losses, {len(plain)} tensors"]


def run(folder: Path, program: Program, rematerialized: bool) -> None:
    """A program in this process, with stand-ins for what it would download."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    models: list[Any] = []

    def remat(model: torch.nn.Module, *inputs: Any) -> Any:
        models.append(rx.rematerialize(model, inputs, budget="smallest", time_limit=3) if rematerialized else model)
        return models[-1]

    text = (folder / program.path).read_text()
    for piece, instead in program.replaced:
        text = text.replace(piece, instead)
    before, found, rest = text.partition(f"{program.after}\n")
    if not found:
        raise SystemExit(f"{program.path} has no line {program.after!r}")
    script = folder / program.path
    copy = script.with_name(f"with_a_line_{script.name}")
    copy.write_text(f"{before}{found}{program.line}\n{rest}")
    _declared = declare_operators_of_torchvision()
    import_module("torchvision.datasets").MNIST = Digits  # type: ignore[attr-defined]
    builtins.remat, builtins.nothing = remat, Nothing()  # type: ignore[attr-defined]
    sys.argv = [copy.name, *program.arguments.split()]
    sys.path[:0] = [str(copy.parent), str(folder / program.path.split("/")[0])]
    try:
        runpy.run_path(str(copy), run_name="__main__")
    finally:
        copy.unlink()
    states = [(f"{n}.{name}", tensor) for n, model in enumerate(models) for name, tensor in model.state_dict().items()]
    Path(WEIGHTS).write_text(
        json.dumps({name: sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in states})
    )
    if rematerialized:
        solutions = [model.rematerialization.first.solution for model in models]
        plans = sum(len(model.rematerialization.plans) for model in models)
        most = max(solution.overhead for solution in solutions)
        print("PLAN", "+".join(str(s.graph.n) for s in solutions), f"{most:.2f}", plans, file=sys.stderr)


class Digits(torch.utils.data.Dataset):
    """Stands for torchvision's MNIST: few pictures, which are noise."""

    def __init__(self, root: str, train: bool = True, download: bool = False, transform: Any = None) -> None:
        count = 150 if train else 40
        self.data = torch.randint(0, 256, (count, 28, 28), generator=torch.Generator().manual_seed(5 + train))
        self.data, self.targets, self.transform = self.data.to(torch.uint8), torch.arange(count) % 10, transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        picture = import_module("PIL.Image").fromarray(self.data[number].numpy())
        return (self.transform(picture) if self.transform else picture), int(self.targets[number])


class Nothing:
    """Stands for a service that notes what happens: whatever is asked of it gives itself."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self


def make_data(place: Path) -> None:
    """What the programs would have downloaded: noise, in the files that they read."""
    draw = np.random.default_rng(0)
    for folder in ("data/made", "data/imgs", "data/masks", "words", "cora", "results"):
        (place / folder).mkdir(parents=True)
    for part, count in (("train", 4000), ("val", 1000)):
        draw.integers(0, 60, count).astype(np.uint16).tofile(place / "data" / "made" / f"{part}.bin")
    for part, count in (("train", 200), ("valid", 30), ("test", 30)):
        lines = (" ".join(f"w{word}" for word in draw.integers(0, 80, 20)) for _ in range(count))
        (place / "words" / f"{part}.txt").write_text("\n".join(lines) + "\n")
    nodes = 1800
    features = (draw.random((nodes, 30)) < 0.2).astype(int)
    rows = (f"{1000 + n} {' '.join(map(str, features[n]))} c{n % 5}" for n in range(nodes))
    (place / "cora" / "cora.content").write_text("\n".join(rows) + "\n")
    edges = {(int(a), int(b)) for a, b in draw.integers(0, nodes, (2500, 2)) if a != b}
    (place / "cora" / "cora.cites").write_text("\n".join(f"{1000 + a} {1000 + b}" for a, b in sorted(edges)) + "\n")
    starts = draw.integers(-80, 80, 20)[:, None]
    np.save(place / "traindata.npy", np.sin((np.arange(60) + starts) / 20.0))
    image = import_module("PIL.Image")
    for number in range(11):
        picture, mask = draw.integers(0, 255, (48, 64, 3)), 255 * (draw.random((48, 64)) < 0.5)
        image.fromarray(picture.astype(np.uint8)).save(place / "data" / "imgs" / f"{number}.png")
        image.fromarray(mask.astype(np.uint8)).save(place / "data" / "masks" / f"{number}.png")


if __name__ == "__main__":
    sys.exit(main())

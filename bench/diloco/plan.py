"""The runs of bench/diloco, in groups, and the tables that show them."""

import dataclasses
from typing import Callable

SEEDS = (1, 2, 3)
STEPS = 400
GLOBAL_BATCH = 16  # sequences of 64 tokens, of all islands together
INNER_STEPS = 10
PRIVATE = (4,)  # in how many parts the corpus is cut for islands with their own


@dataclasses.dataclass
class Run:
    """One training run; islands share the global batch."""

    name: str
    islands: int = 0  # 0: data parallel, without a coordinator
    seed: int = 1
    steps: int = STEPS
    global_batch: int = GLOBAL_BATCH
    private: str = ""  # what each island has for itself: a "part", or a "share" of every part
    settings: dict = dataclasses.field(default_factory=dict)


# What all others go on from, as DiLoCo's experiments did (24,000 of 88,000 steps).
PRETRAINED = Run("pre-training", steps=500, global_batch=32, settings={
    "model.family": "llama", "model.hidden_size": 192, "model.num_hidden_layers": 4,
    "model.num_attention_heads": 6, "model.num_key_value_heads": 3,
    "model.intermediate_size": 512, "model.tie_word_embeddings": "true",
    "optim.lr": 2e-3, "optim.schedule": "constant", "optim.warmup_steps": 50})


LR = 1e-3  # what tuning on one seed found best


def data_parallel(lr, seed=1, **rest):
    return Run(f"data parallel lr={lr} seed={seed}", seed=seed, settings={"optim.lr": lr}, **rest)


def islands(count, lr, outer_lr, momentum, seed=1, what="islands", inner_steps=INNER_STEPS,
            outer=None, **rest):
    """`outer`: further settings of that group; `what` names them. All wait for all."""
    name = f"{what} M={count} lr={lr} outer={outer_lr},{momentum} H={inner_steps} seed={seed}"
    settings = {"optim.lr": lr, "lr": outer_lr, "momentum": momentum, "inner_steps": inner_steps,
                "quorum": count, "grace_s": 60, **(outer or {})}
    return Run(name, islands=count, seed=seed, **rest,
               settings={key if "." in key else f"outer.{key}": value
                         for key, value in settings.items()})


# The same: learning rate, outer learning rate and momentum.
OUTER = {1: (LR, .7, .5), 2: (LR, 1, 0), 4: (LR, 1, 0), 8: (8e-4, 1, 0)}


@dataclasses.dataclass
class Row:
    label: str
    variant: Callable[[int], Run]  # of a seed
    published: str = ""


@dataclasses.dataclass
class Table:
    """Rows are compared with the first, seed by seed."""

    group: str
    title: str
    rows: list


def baseline(seed):
    return data_parallel(LR, seed)


def best(count, **changes):
    return lambda seed: islands(count, *OUTER[count], seed=seed, **changes)


def long_rounds(inner_steps, *outer):
    return lambda seed: islands(4, *outer, seed=seed, what="long rounds", inner_steps=inner_steps,
                                steps=1000, global_batch=8)


def private(lr, outer_lr, momentum, inner_steps=INNER_STEPS, seed=1, part="part"):
    what = "private" if part == "part" else f"private {part}"
    return islands(4, lr, outer_lr, momentum, seed=seed, what=what, inner_steps=inner_steps,
                   private=part, outer={"data": "private"})


# Whoever is third is late, goes on, and hands in more the next time: each outer step has half of
# the islands, and with H twice as long each island is in half of the outer steps it could be in.
TWO_AT_A_TIME = {"quorum": 2, "grace_s": 0}

TABLES = [
    Table("islands", "Islands against data parallel", [
        Row("data parallel", baseline),
        Row("1 island", best(1), "-0.1% of the loss"),
        Row("2 islands", best(2), "+0.7%"),
        Row("4 islands", best(4), "+2.0%"),
        Row("8 islands", best(8), "+3.9%")]),
    Table("variants", "Four islands, otherwise", [
        Row("4 islands", best(4)),
        Row("H = 10, two at a time", best(4, what="half missed", outer=TWO_AT_A_TIME)),
        Row("H = 20, two at a time: half of the exchanges missed",
            best(4, what="half missed", outer=TWO_AT_A_TIME, inner_steps=20),
            "+2.1% of the perplexity"),
        Row("streaming, 4 bits",
            best(4, what="streaming e3m0", outer={
                "algorithm": "streaming", "fragments": 2, "overlap": 1, "merge": .5,
                "codec": "e3m0"}),
            "within 0.05 of the loss"),
        Row("each its own part of the Bible",
            lambda seed: private(*OUTER[4], seed=seed),
            "-0.3% of the perplexity (15.18 to 15.23)"),
        Row("each a share of every book, for comparison",
            lambda seed: private(*OUTER[4], seed=seed, part="share"))]),
    Table("long-rounds", "Four islands, 500 steps between exchanges", [
        Row("H = 50", long_rounds(50, LR, 1, 0)),
        Row("H = 500", long_rounds(500, LR, 1, 0),
            "H = 1000 +2.9% of the perplexity over 50")]),
]

GROUPS = {
    "pre-training": [PRETRAINED],
    "tune": [data_parallel(lr) for lr in (5e-4, 1e-3, 2e-3)] +
            [islands(8, 1e-3, .8, .6), islands(8, 1e-3, 1, 0), islands(8, 1.5e-3, 1, 0),
             islands(8, 1e-3, 1.2, 0), islands(8, 1e-3, 1, .2), islands(8, 8e-4, 1, 0), islands(8, 6e-4, 1, 0),
             islands(4, 8e-4, 1, 0),
             islands(1, LR, .8, .8), islands(1, LR, 1, .3), islands(1, LR, 1, 0)],
    "tune-private": [private(lr, outer_lr, momentum, inner_steps) for
                     lr, outer_lr, momentum, inner_steps in (
                         (LR, .7, .5, 10), (LR, .8, 0, 10), (7e-4, 1, 0, 10), (LR, 1, 0, 5),
                         (LR, 1, 0, 20))],
    **{table.group: [row.variant(seed) for seed in SEEDS for row in table.rows]
       for table in TABLES},
}


def runs(group):
    names = list(GROUPS) if group == "all" else [group]
    return list({run.name: run for name in names for run in GROUPS[name]}.values())

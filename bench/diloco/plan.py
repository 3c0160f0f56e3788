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
    scratch: bool = False  # from random weights, not from the common model
    settings: dict = dataclasses.field(default_factory=dict)


# What all others go on from, as DiLoCo's experiments did (24,000 of 88,000 steps).
MODEL = {
    "model.family": "llama", "model.hidden_size": 192, "model.num_hidden_layers": 4,
    "model.num_attention_heads": 6, "model.num_key_value_heads": 3,
    "model.intermediate_size": 512, "model.tie_word_embeddings": "true"}
PRETRAINED = Run("pre-training", steps=500, global_batch=32, scratch=True, settings={
    **MODEL, "optim.lr": 2e-3, "optim.schedule": "constant", "optim.warmup_steps": 50})


@dataclasses.dataclass(frozen=True)
class Setting:
    """What was tuned: AdamW's learning rate and eps, the outer learning rate and momentum."""

    lr: float
    eps: float = 1e-8
    outer_lr: float = 1
    momentum: float = 0

    def name(self):
        return f"lr={self.lr:g}" + (f" eps={self.eps:g}" if self.eps != 1e-8 else "")


def data_parallel(setting, seed=1, **rest):
    return Run(f"data parallel {setting.name()} seed={seed}", seed=seed,
               settings={"optim.lr": setting.lr, "optim.eps": setting.eps}, **rest)


def islands(count, setting, seed=1, what="islands", inner_steps=INNER_STEPS, outer=None, **rest):
    """`outer`: further settings of that group; `what` names them. All wait for all."""
    name = (f"{what} M={count} {setting.name()} outer={setting.outer_lr:g},{setting.momentum:g} "
            f"H={inner_steps} seed={seed}")
    settings = {"optim.lr": setting.lr, "optim.eps": setting.eps, "outer.lr": setting.outer_lr,
                "outer.momentum": setting.momentum, "outer.inner_steps": inner_steps,
                "outer.quorum": count, "outer.grace_s": 60,
                **{f"outer.{key}": value for key, value in (outer or {}).items()}}
    return Run(name, islands=count, seed=seed, settings=settings, **rest)


# What tuning on one seed found best.
BASELINE = Setting(1.5e-3, 1e-5)
BEST = {1: Setting(1.5e-3, 1e-5, .8), 2: Setting(1.5e-3, 1e-4, .8, .4),
        4: Setting(1.5e-3, 3e-4, .8, .5), 8: Setting(2.5e-3, 1e-3, .8, .7)}
# With momentum outside, an island that missed an exchange costs more than the momentum gains.
MISSED_BEST = Setting(1.5e-3, 3e-4)
PRIVATE_BEST = Setting(7.5e-3, 3e-3, .8, .5)


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
    seeds: tuple = SEEDS


def baseline(seed):
    return data_parallel(BASELINE, seed)


def best(count, **changes):
    return lambda seed: islands(count, BEST[count], seed=seed, **changes)


def long_rounds(inner_steps):
    return lambda seed: islands(4, Setting(1e-3), seed=seed, what="long rounds",
                                inner_steps=inner_steps, steps=1000, global_batch=8)


def private(setting, seed=1, part="part", inner_steps=INNER_STEPS):
    what = "private" if part == "part" else f"private {part}"
    return islands(4, setting, seed=seed, what=what, inner_steps=inner_steps, private=part,
                   outer={"data": "private"})


# Whoever is third is late, goes on, and hands in more the next time: each outer step has half of
# the islands, and with H twice as long each island is in half of the outer steps it could be in.
def missed(at_a_time, inner_steps=INNER_STEPS):
    if at_a_time == 4:
        return lambda seed: islands(4, MISSED_BEST, seed=seed, inner_steps=inner_steps)
    return lambda seed: islands(4, MISSED_BEST, seed=seed, what="half missed",
                                inner_steps=inner_steps,
                                outer={"quorum": at_a_time, "grace_s": 0})


# From random weights, with Muon inside: 500 steps of 2,048 tokens that the islands share.
SCRATCH = {"steps": 500, "global_batch": 32, "scratch": True}
MUON = {**MODEL, "optim.kind": "muon", "optim.lr": 2.5e-3}
WITH_MOMENTUM = {"outer.lr": .8, "outer.momentum": .5}


def scratch_data_parallel(seed):
    return Run(f"from scratch: data parallel muon seed={seed}", seed=seed, settings=MUON, **SCRATCH)


def scratch(count, inner_steps, codec="f32", outer=None):
    settings = {**MUON, **(outer or WITH_MOMENTUM), "outer.inner_steps": inner_steps,
                "outer.codec": codec, "outer.quorum": count, "outer.grace_s": 60}
    name = (f"from scratch: islands M={count} muon outer={settings['outer.lr']:g},"
            f"{settings['outer.momentum']:g} H={inner_steps} {codec}")
    return lambda seed: Run(f"{name} seed={seed}", islands=count, seed=seed, settings=settings,
                            **SCRATCH)


TABLES = [
    Table("islands", "Islands against data parallel", [
        Row("data parallel", baseline),
        Row("1 island", best(1), "-0.1% of the loss"),
        Row("2 islands", best(2), "+0.7%"),
        Row("4 islands", best(4), "+2.0%"),
        Row("8 islands", best(8), "+3.9%")]),
    Table("streaming", "Four islands, streaming", [
        Row("4 islands", best(4)),
        Row("streaming, 4 bits",
            best(4, what="streaming e3m0", outer={
                "algorithm": "streaming", "fragments": 2, "overlap": 1, "merge": .5,
                "codec": "e3m0"}),
            "within 0.05 of the loss")]),
    Table("missed", "Four islands that miss exchanges", [
        Row("4 islands", missed(4)),
        Row("H = 10, two at a time", missed(2)),
        Row("H = 20, two at a time: half of the exchanges missed", missed(2, 20),
            "+2.1% of the perplexity")]),
    Table("private", "Four islands with corpora of their own", [
        Row("4 islands, one corpus", lambda seed: islands(4, PRIVATE_BEST, seed=seed)),
        Row("each its own part of the Bible", lambda seed: private(PRIVATE_BEST, seed),
            "-0.3% of the perplexity (15.18 to 15.23); 8 to 64 islands -0.4, -0.7, +0.1%")],
          seeds=(1, 2, 3, 4, 5, 6)),
    Table("long-rounds", "Four islands, 500 steps between exchanges", [
        Row("H = 50", long_rounds(50)),
        Row("H = 500", long_rounds(500), "H = 1000 +2.9% of the perplexity over 50")]),
    Table("scratch", "From scratch, Muon inside", [
        Row("data parallel", scratch_data_parallel),
        *(Row(f"{count} islands, H = {inner_steps}, {codec}",
              scratch(count, inner_steps, codec))
          for count in (2, 4, 8)
          for inner_steps, codec in ((10, "f32"), (5, "f32"), (2, "int8")))]),
]

# (lr, eps, outer lr, momentum), of which BEST came.
TRIED = {
    1: [(1e-3, 1e-8, .7, .5), (1e-3, 1e-8, 1, 0), (1.5e-3, 1e-5, 1, 0), (1.5e-3, 1e-5, .8, .2),
        (1.5e-3, 1e-5, .6, 0), (2e-3, 1e-5, .6, 0), (1.8e-3, 1e-5, .7, 0), (2e-3, 1e-5, .5, 0)],
    2: [(1e-3, 1e-8, 1, 0), (1.5e-3, 3e-4, .8, .5)],
    4: [(1e-3, 1e-8, 1, 0), (1e-3, 1e-4, 1, 0), (1.5e-3, 3e-4, 1, 0), (2e-3, 1e-3, .7, .7),
        (2e-3, 1e-3, 1, .5), (2.5e-3, 1e-3, .8, .5), (4e-3, 2e-3, .8, .5), (7.5e-3, 3e-3, .8, .5)],
    8: [(8e-4, 1e-8, 1, 0), (1e-3, 1e-4, 1, 0), (1.5e-3, 3e-4, 1, 0), (1.5e-3, 3e-4, .8, .6)],
}
TRIED_PRIVATE = [(1e-3, 1e-8, 1, 0), (1e-3, 1e-6, 1, 0), (1e-3, 1e-5, 1, 0), (1e-3, 1e-4, 1, 0),
                 (1.5e-3, 3e-4, .8, .5), (2.5e-3, 1e-3, .8, .5), (4e-3, 2e-3, .8, .5),
                 (7.5e-3, 3e-3, .8, .5)]

GROUPS = {
    "pre-training": [PRETRAINED],
    "tune": [data_parallel(Setting(lr, eps)) for lr, eps in (
                (5e-4, 1e-8), (1e-3, 1e-8), (2e-3, 1e-8), (1e-3, 1e-5), (1.5e-3, 1e-5),
                (2e-3, 1e-5), (1e-3, 1e-4), (1.5e-3, 1e-4))] +
            [islands(count, Setting(*tried)) for count, all_tried in TRIED.items()
             for tried in all_tried],
    "tune-private": [private(Setting(*tried)) for tried in TRIED_PRIVATE],
    **{table.group: [row.variant(seed) for seed in table.seeds for row in table.rows]
       for table in TABLES},
}


def runs(group):
    names = list(GROUPS) if group == "all" else [group]
    return list({run.name: run for name in names for run in GROUPS[name]}.values())

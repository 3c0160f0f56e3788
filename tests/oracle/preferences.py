"""Learning from compared answers, beside TRL.

    python tests/oracle/preferences.py build/release/bin/atoll WORK_DIRECTORY

Ten steps of `atoll train` with train.objective, each on all rows of a file, and the same by TRL's
trainer: loss, gradient norm and rewards of every step. TRL's ORPO adds the loss of the prompt to
that of the chosen answer, and means over the tokens of a batch; atoll does as the paper does, each
answer by itself and without the prompt, and so does TRL here.
"""

import json
import random

import peft
import torch

from reference import tiny
from reference.checks import Checks, arguments, expect, run

STEPS = 10
ROWS = 8
LR = 3e-4
# f32 of two programs: sums of logarithms over some twenty tokens, each with an error of some eps.
TOLERANCE = 1e-5

CASES = {
    "sigmoid": ("dpo", {}, {}),
    "robust": ("dpo", {"loss_type": ["robust"], "label_smoothing": 0.1},
               ["--preference.loss=robust", "--preference.label_smoothing=0.1"]),
    "ipo": ("dpo", {"loss_type": ["ipo"]}, ["--preference.loss=ipo"]),
    "hinge": ("dpo", {"loss_type": ["hinge"]}, ["--preference.loss=hinge"]),
    "implicit prompt": ("dpo", {}, {}),
    "lora": ("dpo", {}, ["--lora.rank=4", "--lora.alpha=16", "--lora.targets=q_proj,v_proj"]),
    "orpo": ("orpo", {}, {}),
    "kto": ("kto", {"undesirable_weight": 1.5}, ["--preference.undesirable_weight=1.5"]),
}
BETA = 0.2


def rows_of(objective, implicit):
    """Rows for TRL and for atoll."""
    rng = random.Random(5)
    names = ["the king", "a servant", "Esther", "my brother"]
    rows = []
    for i in range(ROWS):
        prompt = f"What did {rng.choice(names)} say of {rng.randint(2, 99)} stones?"
        # Answers begin with a space, so that no token crosses the end of the prompt: TRL would drop it.
        good, bad = f" It was {rng.randint(1, 9)}, and so.", f" no more than {rng.choice(names)}"
        if objective == "kto":
            rows.append({"prompt": prompt, "completion": good if i % 3 else bad,
                         "label": i % 3 != 0})
        elif implicit:
            rows.append({"chosen": prompt + good, "rejected": prompt + bad})
        else:
            rows.append({"prompt": prompt, "chosen": good, "rejected": bad})
    return rows


def recorded(trainer_class):
    """A trainer that keeps what each step gives, before the gradient is clipped."""

    class Recorded(trainer_class):
        """See above."""

        def training_step(self, *args, **kwargs):
            """The loss of the whole file, and the norm of its gradient."""
            loss = super().training_step(*args, **kwargs)
            norms = [p.grad.double().norm() for p in self.model.parameters() if p.grad is not None]
            self.seen.append((loss.item(), torch.stack(norms).norm().item()))
            return loss

        def concatenated_forward(self, model, batch):
            """Of ORPO: the loss of answers alone, each by itself."""
            found = list(super().concatenated_forward(model, batch))
            found[4] = -found[0].mean()
            return tuple(found)

    return Recorded


def by_trl(base, adapter, objective, options, rows, work):
    """Losses and gradient norms of TRL, and its log of rewards."""
    # Here, as main() skips all where the module is not there.
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    model, tokenizer = tiny.load(base)
    if adapter is not None:
        model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
    # A token of its own for padding: TRL leaves out what has the padding's id.
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(5)
    config_class, trainer_class = {"dpo": (DPOConfig, DPOTrainer), "kto": (KTOConfig, KTOTrainer),
                                   "orpo": (ORPOConfig, ORPOTrainer)}[objective]
    config = config_class(
        output_dir=str(work), beta=BETA, per_device_train_batch_size=ROWS, max_steps=STEPS,
        learning_rate=LR, lr_scheduler_type="constant", weight_decay=0.0, adam_beta2=0.95,
        adam_epsilon=1e-8, max_grad_norm=1.0, logging_steps=1, report_to="none", use_cpu=True,
        save_strategy="no", logging_strategy="steps", bf16=False, gradient_checkpointing=False, disable_tqdm=True,
        max_length=tiny.CONTEXT, **options)
    trainer = recorded(trainer_class)(model=model, args=config, processing_class=tokenizer,
                                      train_dataset=Dataset.from_list(rows))
    trainer.seen = []
    trainer.train()
    rewards = [log for log in trainer.state.log_history if "rewards/chosen" in log]
    return trainer.seen, rewards


def by_atoll(program, base, directory, objective, settings, rows, rate=LR):
    """The records of the steps."""
    path = directory.with_suffix(".jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(program, "train", f"--run.dir={directory}", f"--model.from={base}", f"--data.text={path}",
        f"--train.objective={objective}", f"--preference.beta={BETA}", "--data.held_out=0",
        f"--train.steps={STEPS}", f"--train.context={tiny.CONTEXT}",
        f"--train.batch_size={2 * ROWS}", f"--train.micro_batch={2 * ROWS}",
        f"--optim.lr={rate}", "--optim.schedule=constant", "--optim.weight_decay=0",
        "--optim.beta2=0.95", "--optim.clip=1", "--log.every=1", "--log.tensorboard=false",
        *settings)
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if "grad_norm" in record]


def compared(program, work, name):
    """One case of CASES."""
    objective, options, settings = CASES[name]
    base = work / "base"
    directory = work / name.replace(" ", "-")
    rows = rows_of(objective, name == "implicit prompt")
    adapter = None
    if name == "lora":
        # The factors that atoll begins with: those after a step that moves nothing.
        first = work / "lora-first"
        by_atoll(program, base, first, objective, [*settings, "--train.stop_after=1"], rows, 1e-30)
        adapter = max((first / "checkpoints").glob("step-*"))
    mine = by_atoll(program, base, directory, objective, settings, rows)
    theirs, rewards = by_trl(base, adapter, objective, options, rows, work / "trl")
    expect(len(mine) == len(theirs) == STEPS, f"{len(mine)} and {len(theirs)} steps")
    worst = 0.0
    for step, (record, (loss, norm)) in enumerate(zip(mine, theirs)):
        for what, own, other in [("loss", record["loss"], loss),
                                 ("grad_norm", record["grad_norm"], norm)]:
            error = abs(own - other) / max(1.0, abs(other))
            worst = max(worst, error)
            expect(error < TOLERANCE, f"step {step + 1}: {what} {own}, in TRL {other}")
    for step, (record, log) in enumerate(zip(mine, rewards)):
        for key in ["chosen", "rejected"]:
            own, other = record[f"reward_{key}"], log[f"rewards/{key}"]
            expect(abs(own - other) < 1e-4, f"step {step + 1}: reward {key} {own}, in TRL {other}")
    return f"{STEPS} steps within {worst:.1e}"


def main():
    """See above."""
    program, work = arguments("preferences")
    checks = Checks("preferences")
    checks.require("trl")
    tiny.save_random("qwen2", work / "base")
    for name in CASES:
        checks.run(name, compared, program, work, name)
    checks.finish()


if __name__ == "__main__":
    main()

"""LoRA adapters, from PEFT to atoll and back.

    python tests/oracle/peft_adapters.py build/release/bin/atoll WORK_DIRECTORY

trained  `atoll train` with lora.rank makes an adapter: PEFT loads its checkpoint, and what
         `atoll export` makes of it, on the base model, and has the same loss and greedy text.
merged   `atoll export --merge` has the weights that PEFT's merge_and_unload has.
saved    PEFT saves an adapter: `atoll eval` and `atoll generate` read it.
"""

import peft
import torch

from reference import tiny
from reference.checks import Checks, arguments, expect, run

# What is adapted, and how; all-linear but where something else is said.
EXPERTS = "--lora.target_parameters=mlp.experts.gate_up_proj,mlp.experts.down_proj"
TOKENS = "--lora.trainable_token_indices=5,262,17,40"
CASES = {
    "llama3": {"targets": ["q_proj", "v_proj"], "rank": 4, "alpha": 8, "rslora": False,
               "settings": [TOKENS]},
    "mistral": {"targets": ["all-linear"], "rank": 4, "alpha": 4, "rslora": True,
                "settings": [TOKENS]},
    "mixtral": {"targets": ["q_proj", "v_proj"], "rank": 4, "alpha": 8, "rslora": False,
                "settings": [EXPERTS]},
    "gpt_oss": {"targets": ["q_proj", "o_proj"], "rank": 4, "alpha": 8, "rslora": True,
                "settings": [EXPERTS]},
    "qwen2": {"targets": ["all-linear"], "rank": 2, "alpha": 8, "rslora": False},
    "qwen3": {"targets": ["o_proj", "gate_proj", "down_proj"], "rank": 3, "alpha": 8,
              "rslora": False, "settings": ["--lora.modules_to_save=norm", "--lora.dropout=0.1"]},
    "llama2": {"targets": [r".*\.(q_proj|up_proj)"], "rank": 3, "alpha": 8, "rslora": False,
               "settings": ["--lora.modules_to_save=lm_head,embed_tokens"]},
    "gpt2": {"targets": ["all-linear"], "rank": 4, "alpha": 8, "rslora": False},
}
# An adapter that is read past, or scaled wrongly, must show in the loss.
LEAST_CHANGE = 0.02


def adapted(base, adapter):
    """The base model with an adapter, as PEFT loads it, and the tokenizer."""
    model, tokenizer = tiny.load(base)
    return peft.PeftModel.from_pretrained(model, adapter).eval(), tokenizer


def expect_change(base, model, tokenizer, path):
    """That the adapter does something."""
    text = path.read_text()
    change = abs(tiny.loss(tiny.load(base)[0], tokenizer, text) -
                 tiny.loss(model, tokenizer, text))
    expect(change > LEAST_CHANGE, f"the adapter changes the loss by {change} only")


def trained(program, work, family, texts):
    """By atoll; read by PEFT."""
    case = CASES[family]
    base, directory = work / family, work / f"{family}-run"
    tiny.save_random(family, base)
    run(program, "train", f"--run.dir={directory}", f"--model.from={base}",
        f"--data.text={texts[0]}", "--train.steps=8", f"--train.context={tiny.CONTEXT}",
        "--train.batch_size=8", "--optim.lr=2e-2", "--eval.max_tokens=64",
        "--log.tensorboard=false", f"--lora.rank={case['rank']}", f"--lora.alpha={case['alpha']}",
        f"--lora.targets={','.join(case['targets'])}",
        f"--lora.rank_stabilized={str(case['rslora']).lower()}", *case.get("settings", []))
    checkpoint = max((directory / "checkpoints").glob("step-*"))
    model, tokenizer = adapted(base, checkpoint)
    expect_change(base, model, tokenizer, texts[1])
    said = tiny.same_behaviour(program, directory, model, tokenizer, texts[1])
    out = work / f"{family}-adapter"
    run(program, "export", directory, "--out", out)
    exported = adapted(base, out)[0].state_dict()
    expect(all(torch.equal(exported[name], tensor) for name, tensor in model.state_dict().items()),
           "what `atoll export` wrote has other weights than the checkpoint")
    return said


def merged(program, work, family, texts):
    """The adapter of `trained`, merged by both."""
    base, out = work / family, work / f"{family}-merged"
    run(program, "export", work / f"{family}-run", "--out", out, "--merge")
    theirs = adapted(base, work / f"{family}-adapter")[0].merge_and_unload().state_dict()
    model, tokenizer = tiny.load(out)
    worst = 0.0
    for name, tensor in model.state_dict().items():
        # Both round sums of a few f32 terms: a few eps of the largest element.
        error = ((tensor - theirs[name]).abs().max() / theirs[name].abs().max()).item()
        expect(error < 1e-6, f"{name} differs by {error:.1e} of its largest element")
        worst = max(worst, error)
    tiny.same_behaviour(program, out, model, tokenizer, texts[1])
    return f"weights within {worst:.1e}, the same greedy text and loss"


def saved(program, work, family, texts):
    """By PEFT; read by atoll."""
    case = CASES[family]
    base, directory = work / family, work / f"{family}-saved"
    config = peft.LoraConfig(
        r=case["rank"], lora_alpha=case["alpha"], use_rslora=case["rslora"], lora_dropout=0.1,
        target_modules=case["targets"][0] if len(case["targets"]) == 1 else case["targets"],
        fan_in_fan_out=family == "gpt2", bias="none", task_type="CAUSAL_LM")
    model, tokenizer = tiny.load(base)
    made = peft.get_peft_model(model, config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    made.save_pretrained(directory)
    again, _ = adapted(base, directory)
    expect_change(base, again, tokenizer, texts[1])
    return tiny.same_behaviour(program, directory, again, tokenizer, texts[1])


def main():
    """See above."""
    program, work = arguments("peft_adapters")
    checks = Checks("peft_adapters")
    texts = tiny.write_texts(work)
    for family in CASES:
        for name, check in {"trained": trained, "merged": merged, "saved": saved}.items():
            checks.run(f"{family} {name}", check, program, work, family, texts)
    checks.finish()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes the fixtures of tests/golden from tiny random models in transformers, torch and PEFT.

    python3 -m venv .venv-golden && .venv-golden/bin/pip install torch transformers peft numpy
    .venv-golden/bin/python tools/golden/families.py write      # tests/golden/families, .../lora

and reads what atoll wrote, the other way round:

    ATOLL_FAMILIES_ORACLE=DIRECTORY build/release/tests/golden_test --gtest_filter='*Transformers*'
    .venv-golden/bin/python tools/golden/families.py check DIRECTORY

A fixture is a model directory as transformers saves it (config.json, model.safetensors) with
expected.safetensors beside it:

    tokens, targets     (STEPS, B, T)  the batches of ten optimizer steps
    logits, loss        of the first batch, before the first step
    gradient.<name>     of that loss, for every parameter; where there are experts, of the loss
                        with router_aux_loss_coef times their load-balance loss
    losses              (STEPS) of AdamW with HYPERPARAMETERS, before each update
    greedy              (16) what follows the first PROMPT tokens of the first row
    packed_logits       of the first row as separate documents that begin at DOCUMENTS
    inv_freq            the rotary frequencies; absent for learned positions

A LoRA fixture holds an adapter on one of those models: the files as PEFT saves them, and in
expected.safetensors tokens, targets, logits, loss, gradient.<name in the file>, merged_logits.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
STEPS, BATCH, LENGTH, VOCAB, PROMPT = 10, 2, 24, 101, 11
DOCUMENTS = [0, 7, 8, 18]
HYPERPARAMETERS = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
WEIGHT_DECAY, CLIP = 0.1, 1.0

SHAPE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4, max_position_embeddings=64, bos_token_id=None,
             eos_token_id=None)

# Heads of DeepSeek's attention: 6 elements that do not rotate, 4 that do.
LATENT = dict(kv_lora_rank=24, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8)

LATENT_TARGETS = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]


def configs():
    """One model for each family and for each way that its mathematics can go."""
    t = transformers
    return {
        # Multi-head, nothing shared: Llama 2.
        "llama2": t.LlamaConfig(**SHAPE, num_key_value_heads=4, tie_word_embeddings=False),
        # Wavelengths of 6, 26, 109 and 453 around an original context of 32: the first stays, the
        # second lies between 8 and 32 and is blended, the others are divided.
        "llama3": t.LlamaConfig(
            **SHAPE, num_key_value_heads=2, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="llama3", rope_theta=300.0, factor=8.0,
                                 low_freq_factor=1.0, high_freq_factor=4.0,
                                 original_max_position_embeddings=32)),
        "llama_linear": t.LlamaConfig(
            **{**SHAPE, "num_hidden_layers": 1}, num_key_value_heads=1, tie_word_embeddings=True,
            attention_bias=True, mlp_bias=True,
            rope_parameters=dict(rope_type="linear", rope_theta=1000.0, factor=4.0)),
        "mistral": t.MistralConfig(**SHAPE, num_key_value_heads=2, head_dim=12, sliding_window=6,
                                   tie_word_embeddings=False),
        "qwen2": t.Qwen2Config(**SHAPE, num_key_value_heads=2, use_sliding_window=True,
                               sliding_window=7, max_window_layers=1, tie_word_embeddings=True),
        "qwen3": t.Qwen3Config(**SHAPE, num_key_value_heads=2, head_dim=12,
                               tie_word_embeddings=True),
        "gpt2": t.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_inner=40,
                             n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                             bos_token_id=None, eos_token_id=None),
        "mixtral": t.MixtralConfig(
            **{**SHAPE, "intermediate_size": 24}, num_key_value_heads=2, sliding_window=7,
            num_local_experts=4, num_experts_per_tok=2, router_aux_loss_coef=0.0),
        # One block with experts: transformers takes the loads of all blocks together, and atoll
        # each block's, which is the same where there is one.
        "qwen3_moe": t.Qwen3MoeConfig(
            **SHAPE, num_key_value_heads=2, head_dim=12, tie_word_embeddings=True,
            moe_intermediate_size=20, num_experts=6, num_experts_per_tok=3, norm_topk_prob=False,
            mlp_only_layers=[0], router_aux_loss_coef=0.3),
        # Four layers: the last does not rotate.
        "smollm3": t.SmolLM3Config(**{**SHAPE, "num_hidden_layers": 4}, num_key_value_heads=2,
                                   pad_token_id=None, rope_parameters=dict(
                                       rope_type="default", rope_theta=5000.0)),
        "phi3": t.Phi3Config(**SHAPE, num_key_value_heads=2, pad_token_id=None, sliding_window=7,
                             resid_pdrop=0.0, embd_pdrop=0.0, attention_dropout=0.0),
        # Phi-4-mini's: half of a head rotates, by the factors for short contexts.
        "phi3_longrope": t.Phi3Config(
            **{**SHAPE, "num_hidden_layers": 1, "max_position_embeddings": 128},
            num_key_value_heads=2, pad_token_id=None, tie_word_embeddings=True,
            original_max_position_embeddings=64,
            rope_parameters=dict(rope_type="longrope", rope_theta=300.0, partial_rotary_factor=0.5,
                                 short_factor=[1.0, 1.5], long_factor=[2.0, 4.0],
                                 original_max_position_embeddings=64)),
        "granite": t.GraniteConfig(
            **SHAPE, num_key_value_heads=2, tie_word_embeddings=True, embedding_multiplier=6.0,
            residual_multiplier=0.4, attention_multiplier=0.25, logits_scaling=2.0),
        # Six layers: the last has no window. The window's rotations are not scaled.
        "gemma3": t.Gemma3TextConfig(
            **{**SHAPE, "num_hidden_layers": 6, "hidden_size": 16, "intermediate_size": 24,
               "num_attention_heads": 2}, num_key_value_heads=1,
            head_dim=8, sliding_window=6, query_pre_attn_scalar=12, pad_token_id=None,
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1000.0),
                sliding_attention=dict(rope_type="default", rope_theta=100.0))),
        "glm4": t.Glm4Config(
            **SHAPE, num_key_value_heads=2, head_dim=8, attention_bias=True, pad_token_id=None,
            tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=300.0,
                                 partial_rotary_factor=0.5)),
        # The slow half of the frequencies is divided, one lies on the ramp.
        "llama_yarn": t.LlamaConfig(
            **{**SHAPE, "num_hidden_layers": 1}, num_key_value_heads=2, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="yarn", rope_theta=300.0, factor=3.0,
                                 original_max_position_embeddings=16)),
        # Caps so low that they bend scores and logits.
        "gemma2": t.Gemma2Config(
            **{**SHAPE, "num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 24,
               "num_attention_heads": 2}, num_key_value_heads=1,
            head_dim=8, sliding_window=6, query_pre_attn_scalar=12, pad_token_id=None,
            attn_logit_softcapping=1.5, final_logit_softcapping=4.0),
        "olmo2": t.Olmo2Config(**SHAPE, num_key_value_heads=2, pad_token_id=None,
                               rope_parameters=dict(rope_type="default", rope_theta=300.0)),
        # Four layers: the last has no window, and alone scales its rotation.
        "olmo3": t.Olmo3Config(
            **{**SHAPE, "num_hidden_layers": 4, "hidden_size": 16, "intermediate_size": 24},
            num_key_value_heads=2, pad_token_id=None, sliding_window=6,
            rope_parameters=dict(
                full_attention=dict(rope_type="yarn", rope_theta=300.0, factor=3.0,
                                    original_max_position_embeddings=16),
                sliding_attention=dict(rope_type="default", rope_theta=200.0))),
        "starcoder2": t.Starcoder2Config(**SHAPE, num_key_value_heads=2, sliding_window=7,
                                         pad_token_id=None),
        # Pythia: half of each head rotates here, where a quarter would be one pair.
        "gpt_neox": t.GPTNeoXConfig(
            **SHAPE, hidden_act="gelu", tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=300.0,
                                 partial_rotary_factor=0.5)),
        # One branch after the other, as in models before GPT-J.
        "gpt_neox_sequential": t.GPTNeoXConfig(
            **{**SHAPE, "num_hidden_layers": 1}, hidden_act="gelu_fast", tie_word_embeddings=True,
            use_parallel_residual=False, attention_bias=False,
            rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=300.0,
                                 partial_rotary_factor=1.0)),
        # Windows in the first of two layers; one frequency lies on YaRN's ramp. Gates and ups reach
        # the bound: see randomize().
        "gpt_oss": t.GptOssConfig(
            **{**SHAPE, "intermediate_size": 24}, num_key_value_heads=2, head_dim=12,
            sliding_window=7, num_local_experts=4, num_experts_per_tok=2, pad_token_id=None,
            router_aux_loss_coef=0.0, layer_types=["sliding_attention", "full_attention"],
            rope_parameters=dict(rope_type="yarn", rope_theta=300.0, factor=3.0, beta_fast=32.0,
                                 beta_slow=1.0, truncate=False,
                                 original_max_position_embeddings=16)),
        # Queries of x itself, a plain MLP in front, all experts to choose from; YaRN's growth of
        # angles cancels, that of scores does not. Values are narrower than keys.
        "deepseek_v2_lite": t.DeepseekV2Config(
            **SHAPE, **LATENT, q_lora_rank=None, pad_token_id=None, n_routed_experts=6,
            n_shared_experts=2, num_experts_per_tok=3, moe_intermediate_size=12,
            first_k_dense_replace=1, topk_method="greedy", routed_scaling_factor=1.0,
            rope_parameters=dict(rope_type="yarn", rope_theta=300.0, factor=4.0, mscale=0.707,
                                 mscale_all_dim=0.707, original_max_position_embeddings=16)),
        # Queries of a latent vector, two of four groups by their best, values wider than keys,
        # biases, and YaRN's growth of angles and of scores.
        "deepseek_v2": t.DeepseekV2Config(
            **SHAPE, **{**LATENT, "v_head_dim": 16}, q_lora_rank=20, pad_token_id=None,
            attention_bias=True, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3,
            moe_intermediate_size=12, first_k_dense_replace=1, n_group=4, topk_group=2,
            topk_method="group_limited_greedy", routed_scaling_factor=4.0, rms_norm_eps=1e-5,
            rope_parameters=dict(rope_type="yarn", rope_theta=300.0, factor=4.0, mscale=1.0,
                                 mscale_all_dim=0.5, original_max_position_embeddings=16)),
        # Sigmoid scores, corrected to choose by, groups by their best two, weights over their sum.
        "deepseek_v3": t.DeepseekV3Config(
            **SHAPE, **LATENT, q_lora_rank=20, num_key_value_heads=4, pad_token_id=None,
            n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3,
            moe_intermediate_size=12, first_k_dense_replace=1, n_group=4, topk_group=2,
            routed_scaling_factor=2.5, num_mtp_layers=0,
            rope_parameters=dict(rope_type="default", rope_theta=300.0)),
        # As Moonlight: one group, no latent vector of queries; halves that turn, experts everywhere.
        "deepseek_v3_halves": t.DeepseekV3Config(
            **{**SHAPE, "num_hidden_layers": 1}, **LATENT, q_lora_rank=None, num_key_value_heads=4,
            pad_token_id=None, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=3,
            moe_intermediate_size=12, first_k_dense_replace=0, n_group=1, topk_group=1,
            norm_topk_prob=False, routed_scaling_factor=1.5, num_mtp_layers=0,
            rope_interleave=False, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=300.0)),
    }


# The form of config.json before transformers 5, which most published models have.
OLD_FORM = {"llama2", "llama_linear", "mistral", "qwen2", "gpt_neox"}


def rewrite_in_old_form(path):
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    theta, part = rope.pop("rope_theta"), rope.pop("partial_rotary_factor", None)
    if config["model_type"] == "gpt_neox":
        config["rotary_emb_base"], config["rotary_pct"] = theta, part
    else:
        config["rope_theta"] = theta
    config["rope_scaling"] = None
    if rope["rope_type"] != "default":
        config["rope_scaling"] = {"type": rope["rope_type"], "factor": rope["factor"]}
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    path.write_text(json.dumps(config, indent=2) + "\n")


# A buffer of DeepSeek V3's routers: files have it, and gradients do not reach it.
CORRECTION = "e_score_correction_bias"


def randomize(model, generator):
    """Far from the initial values, so that every weight, bias and scale matters."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name or "ln_" in name:
                parameter.copy_(0.3 * noise + (0.0 if name.endswith("bias") else 1.0))
            elif "sinks" in name:
                parameter.copy_(noise)
            elif name.endswith("gate_up_proj_bias"):  # some lie beyond the bound of 7
                parameter.copy_(4.0 * noise)
            elif parameter.dim() == 1 or name.endswith("_bias"):
                parameter.copy_(0.3 * noise)
            elif "embed" in name or "wte" in name or "wpe" in name or "lm_head" in name:
                parameter.copy_(0.5 * noise)
            else:
                parameter.copy_(0.25 * noise)
        for name, buffer in model.named_buffers():
            if name.endswith(CORRECTION):
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))


def loss_of(model, tokens, targets):
    logits = model(input_ids=tokens).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def objective_of(model, tokens, targets, loss):
    """What training lowers: the loss, and where there are experts the balance of their loads."""
    weight = getattr(model.config, "router_aux_loss_coef", 0.0)
    if weight == 0.0:
        return loss
    return loss + weight * model(input_ids=tokens, output_router_logits=True).aux_loss


def gradients_of(model):
    """By the names of files, which split what transformers holds as one."""
    gradients = {name: value.grad.clone() for name, value in model.named_parameters()}
    gradients |= {name: torch.zeros_like(buffer) for name, buffer in model.named_buffers()
                  if name.endswith(CORRECTION)}
    # Files of GPT-NeoX call the head embed_out.
    renamed = model.config.model_type in ("gpt_neox", "deepseek_v2", "deepseek_v3")
    if not renamed and not hasattr(model.config, "router_aux_loss_coef"):
        return gradients
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory, state_dict=gradients)
        return load_file(pathlib.Path(directory) / "model.safetensors")


def optimizer_of(model):
    named = list(model.named_parameters())
    is_matrix = {n: p.dim() >= 2 and not n.endswith("_bias") for n, p in named}  # gpt_oss's are (E, N)
    matrices = [p for n, p in named if is_matrix[n]]
    rest = [p for n, p in named if not is_matrix[n]]
    return torch.optim.AdamW([dict(params=matrices, weight_decay=WEIGHT_DECAY),
                              dict(params=rest, weight_decay=0.0)], **HYPERPARAMETERS)


def losses_of_steps(model, tokens, targets):
    optimizer = optimizer_of(model)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, tokens[step], targets[step])[1]
        objective_of(model, tokens[step], targets[step], loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def greedy_continuation(model, row):
    prompt = row[None, :PROMPT]  # which may have a 0, and that is no padding
    made = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt),
                          max_new_tokens=16, min_new_tokens=16, do_sample=False, pad_token_id=0)
    # A tie would be decided by rounding, and say nothing.
    sorted_logits = model(input_ids=made).logits[0, PROMPT - 1:-1].sort(descending=True).values
    assert (sorted_logits[:, 0] - sorted_logits[:, 1]).min() > 1e-3, "a near tie: change the seed"
    return made[0, PROMPT:]


def packed_logits(model, row):
    ends = DOCUMENTS[1:] + [LENGTH]
    parts = [model(input_ids=row[None, a:b]).logits[0] for a, b in zip(DOCUMENTS, ends)]
    return torch.cat(parts)


def batches(generator):
    tokens = torch.randint(0, VOCAB, (STEPS, BATCH, LENGTH), generator=generator)
    targets = torch.randint(0, VOCAB, (STEPS, BATCH, LENGTH), generator=generator)
    return tokens, targets


def save(path, tensors):
    tensors = {name: (t.to(torch.int32) if t.dtype == torch.int64 else t).detach().contiguous()
               for name, t in tensors.items()}
    save_file(tensors, path)


def load(directory):
    """Eager attention: the definition, not a fused kernel."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager", dtype=torch.float32).eval()


def write_family(name, config, seed):
    directory = ROOT / "families" / name
    directory.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    randomize(model, generator)
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink()
    if name in OLD_FORM:
        rewrite_in_old_form(directory / "config.json")

    model = load(directory)  # what the files say, in the form they now have
    tokens, targets = batches(generator)
    logits, loss = loss_of(model, tokens[0], targets[0])
    objective_of(model, tokens[0], targets[0], loss).backward()
    expected = dict(tokens=tokens, targets=targets, logits=logits, loss=loss.reshape(1))
    for parameter, gradient in gradients_of(model).items():
        expected["gradient." + parameter] = gradient
    with torch.no_grad():
        expected["greedy"] = greedy_continuation(model, tokens[0, 0])
        expected["packed_logits"] = packed_logits(model, tokens[0, 0])
    rotary = getattr(model.base_model, "rotary_emb", None)
    if hasattr(rotary, "inv_freq"):
        expected["inv_freq"] = rotary.inv_freq.clone()
    expected["losses"] = losses_of_steps(model, tokens, targets)
    save(directory / "expected.safetensors", expected)
    print(name, "losses", expected["losses"].tolist())


def write_lora(name, base, targets_of_lora, seed, transposed=False):
    """An adapter; `transposed` of GPT-2's Conv1D, whose weights are (in, out)."""
    import peft

    directory = ROOT / "lora" / name
    directory.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    model = load(ROOT / "families" / base)
    adapted = peft.get_peft_model(model, peft.LoraConfig(
        r=4, lora_alpha=8, lora_dropout=0.0, target_modules=targets_of_lora, bias="none",
        task_type="CAUSAL_LM", base_model_name_or_path=base, fan_in_fan_out=transposed))
    with torch.no_grad():
        for parameter_name, parameter in adapted.named_parameters():
            if "lora_" in parameter_name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(directory)
    (directory / "README.md").unlink(missing_ok=True)
    config = json.loads((directory / "adapter_config.json").read_text())
    if isinstance(config["target_modules"], list):  # a set, written in no particular order
        config["target_modules"].sort()
    config["base_model_name_or_path"] = base
    (directory / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")

    tokens, targets = (t[0] for t in batches(generator))
    logits, loss = loss_of(adapted, tokens, targets)
    loss.backward()
    expected = dict(tokens=tokens, targets=targets, logits=logits, loss=loss.reshape(1))
    for parameter_name, parameter in adapted.named_parameters():
        if "lora_" in parameter_name:
            expected["gradient." + parameter_name.replace(".default", "")] = parameter.grad.clone()
        else:
            assert parameter.grad is None, parameter_name
    saved = load_file(directory / "adapter_model.safetensors")
    assert {"gradient." + n for n in saved} == {n for n in expected if n.startswith("gradient.")}
    with torch.no_grad():
        expected["merged_logits"] = adapted.merge_and_unload()(input_ids=tokens).logits
    save(directory / "expected.safetensors", expected)
    print("lora", name, "loss", loss.item(), len(saved), "tensors")


def write(names):
    if names:  # these alone; the others stay as they are
        for seed, (name, config) in enumerate(configs().items()):
            if name in names:
                shutil.rmtree(ROOT / "families" / name, ignore_errors=True)
                write_family(name, config, seed + 1)
        return
    for folder in ("families", "lora"):
        shutil.rmtree(ROOT / folder, ignore_errors=True)
    for seed, (name, config) in enumerate(configs().items()):
        write_family(name, config, seed + 1)
    write_lora("query_value", "llama3", ["q_proj", "v_proj"], 21)
    write_lora("all_linear", "qwen2", "all-linear", 22)
    write_lora("conv1d", "gpt2", ["c_attn", "c_fc", "c_proj"], 23, transposed=True)
    write_lora("by_head", "gpt_neox", ["query_key_value", "dense", "dense_4h_to_h"], 24)
    write_lora("latent", "deepseek_v3", LATENT_TARGETS, 25)


def check(directory):
    """Model directories that atoll wrote, each with expected.safetensors: tokens and logits."""
    failed = []
    for folder in sorted(p for p in pathlib.Path(directory).iterdir() if p.is_dir()):
        expected = load_file(folder / "expected.safetensors")
        with torch.no_grad():
            logits = load(folder)(input_ids=expected["tokens"].long()).logits
        error = ((logits - expected["logits"]).abs().max() / logits.abs().max()).item()
        with tempfile.TemporaryDirectory() as again:
            load(folder).save_pretrained(again)
            ours = load_file(folder / "model.safetensors")
            theirs = load_file(pathlib.Path(again) / "model.safetensors")
            same = ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n])
                                                        for n in ours)
        print(f"{folder.name:12} logits differ by {error:.1e} of the largest; "
              f"weights {'the same' if same else 'DIFFER'} after a round trip")
        if not same or not error < 1e-5:
            failed.append(folder.name)
    if failed:
        sys.exit("not as transformers has it: " + ", ".join(failed))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write").add_argument("names", nargs="*", metavar="NAME")
    commands.add_parser("check").add_argument("directory")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    if arguments.command == "write":
        write(arguments.names)
    else:
        check(arguments.directory)


if __name__ == "__main__":
    main()

#include "atoll/train/config.h"

#include <cmath>

#include "atoll/nn/models/family.h"
#include "atoll/train/config_compress.h"
#include "atoll/train/config_device.h"
#include "atoll/train/config_elsewhere.h"
#include "atoll/train/config_experts.h"
#include "atoll/train/config_groups.h"
#include "atoll/train/config_mup.h"
#include "atoll/train/config_offload.h"
#include "atoll/train/config_server.h"
#include "atoll/train/held_out_history.h"
#include "atoll/train/rules.h"

namespace atl::train {

namespace {

// Nobody means more, and steps x batch and batch x context stay far below 2^63.
constexpr double kMaxCount = 1 << 20;
constexpr double kMaxSeed = 0x1p53;  // what a double, and so JSON and Python's floats, hold exactly

void add_run(SettingRegistry& settings, TrainConfig& c) {
  settings.group("run", "The run as a whole.");
  settings
      .add("run.dir", &c.run.dir,
           "Directory of checkpoints, metrics and the resolved settings; made if missing. The "
           "same command on the same directory goes on where it stopped.")
      .with_scope(Scope::kIsland);
  settings
      .add("run.seed", &c.run.seed, "Decides initial weights, sample order and dropout.",
           between(0, kMaxSeed))
      .fixed();
  settings
      .add(
          "run.on_signal", &c.run.on_signal,
          "What SIGUSR1 does: `end` saves and ends the run, as Ctrl-C, SIGTERM, SIGHUP and SIGUSR2 "
          "always do; `save` saves and goes on. Schedulers send it before time is up "
          "(`#SBATCH --signal=USR1@120`).",
          one_of({"end", "save"}))
      .with_scope(Scope::kIsland);
}

void add_model(SettingRegistry& settings, TrainConfig& c) {
  ModelSettings& m = c.model;
  settings.group("model",
                 "The model: `model.from`, or `model.config`, or a shape given by the other keys, "
                 "which have the names of Hugging Face's config.json.");
  settings.add("model.from", &m.from, "Hugging Face directory with the weights to start from.")
      .with_scope(Scope::kIsland);
  settings.add("model.config", &m.config, "config.json of a new model.");
  settings.add("model.family", &m.family, "Kind of model.",
               one_of({"llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gpt2"}));
  settings.add("model.hidden_size", &m.hidden_size, "Width of the residual stream.", at_least(1));
  settings.add("model.num_hidden_layers", &m.num_hidden_layers, "Blocks.", at_least(1));
  settings.add("model.num_attention_heads", &m.num_attention_heads, "Query heads.", at_least(1));
  settings.add("model.num_key_value_heads", &m.num_key_value_heads,
               "Key and value heads, each shared by a group of query heads; 0: one per query head.",
               at_least(0));
  settings.add("model.head_dim", &m.head_dim, "Width of a head; 0: hidden_size / heads.",
               at_least(0));
  settings.add("model.intermediate_size", &m.intermediate_size,
               "Width inside the MLP; 0: gpt2 4 x hidden_size, the others 8/3 of hidden_size "
               "rounded up to a multiple of 32.",
               at_least(0));
  settings.add("model.max_position_embeddings", &m.max_position_embeddings,
               "Longest context the model can ever take; 0: train.context.", at_least(0));
  settings.add("model.rope_theta", &m.rope_theta, "Base of rotary positions; gpt2 has none.",
               above(0));
  settings.add("model.sliding_window", &m.sliding_window,
               "mistral and mixtral: how many tokens back attention sees, itself included; 0: all.",
               at_least(0));
  settings.add("model.norm_eps", &m.norm_eps, "Added to the variance in norms.", above(0));
  settings.add("model.tie_word_embeddings", &m.tie_word_embeddings,
               "Use one matrix for the token embedding and the output.");
  settings.add("model.initializer_range", &m.initializer_range,
               "Standard deviation of initial weights.", above(0));
  add_expert_shape(settings, m);
  add_parametrisation(settings, m);
}

void add_data(SettingRegistry& settings, TrainConfig& c) {
  DataSettings& d = c.data;
  settings.group("data",
                 "What the model learns from: `data.text` or `data.shards`. Paths are relative to "
                 "the directory the command is called in.",
                 Scope::kIsland);
  settings.add("data.text", &d.text,
               "Files, or directories searched for them: text (*.txt), JSON lines (*.jsonl with "
               "text, prompt and completion, or messages) and token files (*.bin of llm.c and "
               "nanoGPT). Tokenized into the run directory.");
  settings.add("data.shards", &d.shards, "Directories made by `atoll tokenize`.");
  settings
      .add("data.weights", &d.weights,
           "Shares of the samples that the directories of data.shards give, in their order; "
           "empty: in proportion to their tokens.",
           above(0))
      .fixed();
  settings
      .add("data.packing", &d.packing,
           "stream: sequences are cut from the tokens end to end. masked: the same, but "
           "attention does not cross documents and positions restart. documents: whole "
           "documents are packed into sequences, and the rest is padding.",
           one_of({"stream", "masked", "documents"}))
      .fixed();
  settings.add("data.tokenizer", &d.tokenizer,
               "tokenizer.json, SentencePiece's tokenizer.model, or a directory that holds one; "
               "empty: the one of model.from, or else a new one is made of data.text.");
  settings.add("data.new_tokenizer", &d.new_tokenizer,
               "Kind of a new tokenizer: trained byte-level BPE, one token a byte, or one token a "
               "character of data.text.",
               one_of({"bpe", "byte", "char"}));
  settings.add("data.vocab_size", &d.vocab_size, "Tokens of a BPE tokenizer that is trained.",
               between(257, 1 << 20));
  settings.add(
      "data.special_tokens", &d.special_tokens,
      "Texts that are special tokens of a new tokenizer, beside <|endoftext|>: those that a "
      "chat template marks turns with, such as <|im_start|> and <|im_end|>.");
  settings.add(
      "data.chat_template", &d.chat_template,
      "Jinja file that turns messages into text; empty: the one of model.from. The model carries "
      "it, also where data.shards were made with it before.");
  data::Fields& f = d.fields;
  settings.add("data.fields.text", &f.text,
               "JSON lines: the key that holds a text, or a text with keys in braces, such as "
               "\"{title}\\n\\n{body}\"; {{ and }} are braces.");
  settings.add("data.fields.prompt", &f.prompt,
               "JSON lines: the same of a prompt, such as \"Question: {question}\\nAnswer:\".");
  settings.add("data.fields.completion", &f.completion,
               "JSON lines: the same of what completes the prompt, such as \" {answer}\".");
  settings.add(
      "data.fields.chat", &f.chat,
      "JSON lines: prompt and completion are messages of a user and the assistant, written "
      "with the chat template.");
  settings.add("data.fields.messages", &f.messages,
               "JSON lines: the key that holds a conversation; ShareGPT has conversations.");
  settings.add("data.fields.role", &f.role,
               "JSON lines: the key of a message that says who speaks; ShareGPT has from.");
  settings.add("data.fields.content", &f.content,
               "JSON lines: the key of a message that holds its text; ShareGPT has value.");
  settings.add("data.fields.roles", &f.roles,
               "JSON lines: who speaks, and what the chat template calls that: [\"human=user\", "
               "\"gpt=assistant\"], which is also meant when it is empty and data.fields.role is "
               "from. Others stay as they are.");
  settings.add("data.held_out", &d.held_out,
               "Fraction of data.text that is kept from training, for evaluation.",
               between(0, 0.5));
  settings.add("data.documents", &d.documents,
               "What separates documents in data.text: files, or blank lines in them.",
               one_of({"file", "blank-line"}));
  settings
      .add("data.cache_dir", &d.cache_dir,
           "Directory on a local disk to copy data.shards to and read them from; empty: read "
           "them where they are.")
      .with_scope(Scope::kHost);
  settings.add("data.cache_gib", &d.cache_gib,
               "GiB that data.cache_dir may take; what was used longest ago goes first.", above(0));
}

void add_train(SettingRegistry& settings, TrainConfig& c) {
  LoopSettings& t = c.train;
  settings.group("train", "The loop.");
  settings.add("train.steps", &t.steps, "Optimizer steps.", between(1, 1e12));
  settings.add("train.stop_after", &t.stop_after,
               "Step after which this start of the run ends, with its checkpoint and evaluation, "
               "while the learning rate moves as train.steps says; started again with a later one, "
               "or without, the run goes on with the same bits. 0: train.steps.",
               between(0, 1e12));
  settings
      .add("train.batch_size", &t.batch_size, "Sequences in one optimizer step.",
           between(1, kMaxCount))
      .fixed();
  settings
      .add("train.micro_batch", &t.micro_batch,
           "Sequences in one forward pass; gradients add up over batch_size / micro_batch of "
           "them. Smaller takes less memory.",
           between(1, kMaxCount))
      .fixed();
  settings.add("train.context", &t.context, "Tokens in a sequence.", between(1, kMaxCount)).fixed();
  settings
      .add("train.dtype", &t.dtype,
           "How weights and activations are stored. Sums, gradients and optimizer state are f32 in "
           "either; device.bf16 says what multiplies.",
           one_of({"f32", "bf16"}))
      .fixed();
  settings.add(
      "train.fp8", &t.fp8,
      "train.dtype = bf16: linear layers multiply in 8 bits (docs/gpus.md). Each operand is scaled "
      "and "
      "rounded just before a product. tensor: one scale for an operand; activations and weights in "
      "e4m3, gradients in e5m2; GPUs of compute capability 8.9 and above. blocks: one scale for "
      "128 "
      "neighbours, of weights for 128 x 128; all in e4m3; GPUs of compute capability 9.0 alone. A "
      "CPU rounds alike and multiplies in f32.",
      one_of({"off", "tensor", "blocks"}));
  settings.add(
      "train.recompute", &t.recompute,
      "full: keep only the input of each block and compute the rest again in the backward "
      "pass; about a third more work. selective: do so with the MLPs alone; most of the "
      "memory for half of the work. The same bits in any case. But for selective, a GPU keeps "
      "what norms and activations give; a CPU always computes that again.",
      one_of({"none", "selective", "full"}));
  settings
      .add("train.dropout", &t.dropout, "Dropout after the embedding and in every branch.",
           from_below(0, 1))
      .fixed();
  settings.add("train.on_nonfinite", &t.on_nonfinite,
               "What to do when loss or gradient is NaN or infinite: stop, or skip the step.",
               one_of({"stop", "skip"}));
  settings
      .add("train.early_stop", &t.early_stop,
           "Evaluations (eval.every) in a row without a lower held-out loss after which the run "
           "ends, with a checkpoint; 0: never.",
           at_least(0))
      .with_scope(Scope::kIsland);
  settings
      .add("train.early_stop_delta", &t.early_stop_delta,
           "By how much the loss must be lower to count, in nats a token.", at_least(0))
      .with_scope(Scope::kIsland);
  settings.add(
      "train.exact", &t.exact,
      "Sum gradients over the micro-batches of a step one after the other, each as soon as "
      "it is made: the number of ranks then changes no bit of the result. Every round of "
      "micro-batches is reduced by itself.");
}

void add_ranks(SettingRegistry& settings, TrainConfig& c) {
  settings.group("dp", "What data-parallel ranks share; docs/data-parallel.md has the formulas.",
                 Scope::kIsland);
  settings.add(
      "dp.zero", &c.dp.zero,
      "ZeRO stage: 0 shares nothing, 1 optimizer state, 2 gradients too, 3 parameters too.",
      between(0, 3));
  settings.add("dp.shard", &c.dp.shard,
               "Ranks that share one copy, of which there are then several (HSDP); 0: all ranks "
               "share one.",
               between(0, 1 << 20));
  settings.add("dp.bucket_mib", &c.dp.bucket_mib,
               "MiB of gradients that are reduced at once; dp.zero = 3 goes by blocks.",
               between(0.001, 1 << 20));
  settings.add(
      "dp.balance", &c.dp.balance,
      "Give slower ranks fewer micro-batches of each step, by their measured speed. Without "
      "train.exact that changes bits from run to run.");
  add_compress(settings, c.dp);
  settings.group(
      "parallel",
      "How ranks share the work of one model; what is left of the ranks is data parallel.",
      Scope::kIsland);
  settings.add(
      "parallel.layout", &c.parallel.layout,
      "Who chooses how ranks share the work: manual, the settings do; auto, the planner "
      "does before the run begins (docs/which-layout.md). It leaves what the recipe gives of "
      "dp.zero, train.recompute and train.micro_batch as it is.",
      one_of({"manual", "auto"}));
  settings.add(
      "parallel.tp", &c.parallel.tp,
      "Ranks that share each product (tensor parallel) and the rows between them (sequence "
      "parallel): docs/tensor-parallel.md. A divisor of the ranks, of the heads and of "
      "train.context, and a divisor or a multiple of the key-value heads.",
      between(1, 1 << 20));
  settings.add("parallel.pp", &c.parallel.pp,
               "Ranks that have a row of the model's blocks each, which every micro-batch passes "
               "through (pipeline parallel): docs/pipeline-parallel.md. A divisor of the ranks.",
               between(1, 1 << 20));
  settings.add("parallel.schedule", &c.parallel.schedule,
               "The order of work in a pipeline. It changes time and memory, and no bit.",
               one_of({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}));
  settings.add(
      "parallel.chunks", &c.parallel.chunks,
      "Rows of blocks on each rank of a pipeline, for interleaved: more idle less and send "
      "more; 0: as few as parallel.schedule takes.",
      between(0, 1 << 10));
  settings.add(
      "parallel.cp", &c.parallel.cp,
      "Ranks that have a part of each sequence (context parallel): docs/context-parallel.md. A "
      "divisor of the ranks and of train.context.",
      between(1, 1 << 20));
  settings.add(
      "parallel.cp_attention", &c.parallel.cp_attention,
      "How these ranks attend to all of a sequence. ulysses: each has all tokens of a part of the "
      "heads meanwhile, so parallel.cp divides heads and key-value heads. ring: keys and values go "
      "from rank to rank; 2 parallel.cp divides train.context. auto: ulysses where it can, else "
      "ring.",
      one_of({"auto", "ulysses", "ring"}));
  settings.add(
      "parallel.ep", &c.parallel.ep,
      "Ranks that have some of the experts of each block, and exchange tokens (expert parallel): "
      "docs/expert-parallel.md. A divisor of the ranks, of the experts and of a step's "
      "micro-batches.",
      between(1, 1 << 16));
  settings.group("comm", "How ranks talk to each other.", Scope::kIsland);
  settings.add("comm.timeout_s", &c.comm.timeout_s,
               "Seconds after which a collective that is not done ends the run, naming who is "
               "missing.",
               between(0.1, 1e6));
  settings.add(
      "comm.algorithm", &c.comm.algorithm,
      "How bytes go in collectives between hosts: docs/collectives.md. direct: each rank to "
      "each other. ring: each rank to its two neighbours. hierarchical: within hosts, then "
      "between neighbouring hosts. auto: the fastest of them, measured in the first calls "
      "of each size. Changes no bit.",
      one_of({"auto", "direct", "ring", "hierarchical"}));
  settings.add(
      "comm.gpu", &c.comm.gpu,
      "How what ranks exchange goes between GPUs: host, through host memory, by the backend "
      "of the ranks; nccl, by NCCL, with sums in rank order all the same. Changes no bit.",
      one_of({"host", "nccl"}));
  settings.add(
      "comm.gpu_sums", &c.comm.gpu_sums,
      "comm.gpu = nccl: who adds up what GPUs have. ordered: a kernel of atoll's, in rank order, "
      "the same bits everywhere. nccl: NCCL itself, in an order that hangs on its version and on "
      "how GPUs are linked. It was never run on a GPU.",
      one_of({"ordered", "nccl"}));
  settings.add("comm.check_every", &c.comm.check_every,
               "Steps between two comparisons of the ranks' parameters by hash; 0: never.",
               at_least(0));
  settings.group("launch", "What `atoll launch` can do when a rank is lost.", Scope::kIsland);
  settings.add("launch.replicate", &c.launch.replicate,
               "Each rank keeps a copy of the next one's share of the training state, so that the "
               "others can go on at once without it; costs that memory, and one transfer of the "
               "reduced gradients a step. Where ranks have parts of the model "
               "(parallel.*) each keeps its own state and another rank's of two steps, "
               "and the ranks start again from them: docs/layouts.md.");
  settings.add("launch.replicate_every", &c.launch.replicate_every,
               "Where ranks have parts of the model: steps from one copy to the next.",
               at_least(1));
}

void add_islands(SettingRegistry& settings, TrainConfig& c) {
  IslandSettings& i = c.island;
  settings.group("island",
                 "This island, where a run has several: docs/first-islands.md. `atoll train "
                 "--islands N` sets these by itself.",
                 Scope::kIsland);
  settings.add("island.coordinator", &i.coordinator,
               "HOST:PORT of the run's coordinator; empty: the run has no islands.");
  settings.add("island.name", &i.name,
               "Under which it is known for the whole run, whenever it comes back.");
  settings.add(
      "island.listen", &i.listen,
      "HOST:PORT where other islands fetch from it, port 0 takes a free one; of several "
      "ranks, each takes the next port, or one of a list with commas. Empty: it only calls "
      "out, and everything goes through the coordinator.");
  settings.add("island.advertise", &i.advertise,
               "HOST:PORT under which others reach island.listen, of ranks likewise; empty: the "
               "same.");
  settings.add("island.identity", &i.identity,
               "Directory with its certificate, made by `atoll certs issue`; needed wherever an "
               "address is not of this host.");
  settings.add("island.secret", &i.secret,
               "File with the secret of the run, which its coordinator has made: islands of one "
               "machine know each other by it, where they have no certificates.");
  OuterSettings& o = c.outer;
  settings.group("outer", "What islands do together; the same on all of them.");
  settings.add("outer.islands", &o.islands,
               "Islands that the run is planned for: it begins when so many are there, and has "
               "train.steps for each of them. They may come and go later.",
               between(0, 1 << 16));
  settings.add(
      "outer.algorithm", &o.algorithm,
      "diloco: all parameters every outer.inner_steps. streaming: by fragments, one after "
      "the other. eager: as diloco, and training goes on for a whole round meanwhile. async: "
      "islands come one by one, and none waits for others. gossip: pairs of islands average what "
      "they have, and all do at the end.",
      one_of({"diloco", "streaming", "eager", "async", "gossip"}));
  settings.add("outer.async_momentum", &o.async_momentum,
               "async: delayed: a step of the momentum for as many arrivals as there are islands. "
               "naive: one for each arrival, for comparison.",
               one_of({"delayed", "naive"}));
  settings.add("outer.inner_steps", &o.inner_steps,
               "Steps between two exchanges of the same parameters (H).", between(1, kMaxCount));
  settings.add("outer.fragments", &o.fragments,
               "streaming: parts of the model, which take turns; divides outer.inner_steps.",
               between(1, 4096));
  settings.add("outer.overlap", &o.overlap,
               "streaming: steps that are taken while a fragment is exchanged (tau).",
               between(0, kMaxCount));
  settings.add("outer.merge", &o.merge,
               "streaming: how much of its own parameters an island keeps when an exchange ends "
               "(alpha).",
               between(0, 1));
  settings.add("outer.optimizer", &o.optimizer, "What applies the islands' mean change.",
               one_of({"nesterov", "sgd", "adam"}));
  settings.add("outer.lr", &o.lr,
               "Its learning rate; 0: the published one for so many outer.islands.", at_least(0));
  settings.add("outer.momentum", &o.momentum, "nesterov: its momentum.", from_below(0, 1));
  settings.add("outer.codec", &o.codec,
               "How changes are sent: f32, bf16, int8, int4, e3m0 (4 bits), topk, sign_prune; "
               "docs/codecs.md.");
  settings.add("outer.quorum", &o.quorum,
               "Islands that an outer step needs at least; 0: half of those there are.",
               between(0, 1 << 16));
  settings.add("outer.grace_s", &o.grace_s,
               "Seconds that an outer step waits for more islands than it needs.", between(0, 1e6));
  settings.add("outer.data", &o.data,
               "shared: one corpus, of which each island is leased parts. private: each island has "
               "a corpus of its own, which it never sends.",
               one_of({"shared", "private"}));
  settings.add("outer.policy", &o.policy,
               "How much is communicated while the run goes on: fixed: as these settings say. qsr: "
               "longer rounds as the learning rate falls. adacomm: shorter ones as the loss falls. "
               "budget: the most that outer.round_mb and outer.day_mb allow. auto: what is "
               "predicted to be fastest by what was measured.",
               one_of({"fixed", "qsr", "adacomm", "budget", "auto"}));
  settings.add("outer.min_inner_steps", &o.min_inner_steps,
               "The least that a policy makes of outer.inner_steps; 0: an eighth of them.",
               between(0, kMaxCount));
  settings.add("outer.max_inner_steps", &o.max_inner_steps, "And the most; 0: eight times as many.",
               between(0, kMaxCount));
  settings.add("outer.qsr_alpha", &o.qsr_alpha,
               "qsr: (alpha / learning rate)^2 inner steps, as soon as that is more than "
               "outer.inner_steps; 0: from the highest learning rate on.",
               at_least(0));
  settings.add("outer.round_mb", &o.round_mb,
               "budget, auto: MB that an island may send for an outer step; 0: any number.",
               at_least(0));
  settings.add("outer.day_mb", &o.day_mb,
               "budget, auto: MB that an island may send for the outer steps of a day; 0: any "
               "number.",
               at_least(0));
}

void add_optim(SettingRegistry& settings, TrainConfig& c) {
  OptimSettings& o = c.optim;
  settings.group("optim", "The optimizer and its learning rate.");
  Choices kinds;
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) {
    kinds.names.emplace_back(kind.name);
  }
  settings.add("optim.kind", &o.kind, optim::describe(optim::optimizer_kinds()), kinds).fixed();
  settings.add("optim.lr", &o.lr, "Highest learning rate, reached after warm-up.", above(0));
  settings.add("optim.min_lr_ratio", &o.min_lr_ratio, "Last learning rate over the highest.",
               between(0, 1));
  settings.add("optim.schedule", &o.schedule,
               "How the learning rate moves after warm-up; wsd is constant, then straight down.",
               one_of({"cosine", "linear", "constant", "wsd"}));
  settings.add("optim.warmup_steps", &o.warmup_steps, "Steps of straight rise to lr.", at_least(0));
  settings.add("optim.decay_fraction", &o.decay_fraction,
               "wsd only: the part of all steps that goes down.", between(0, 1));
  optim::register_default_options(settings.settings(), o.values, optim::optimizer_kinds());
  settings.add("optim.clip", &o.clip, "Largest gradient norm; 0: no clipping.", at_least(0));
  optim::register_other_options(settings.settings(), o.values, optim::optimizer_kinds());
  settings
      .add("optim.masters", &o.masters,
           "train.dtype = bf16: keep weights in f32 beside (f32), or update the bf16 weights "
           "themselves with stochastic rounding, which takes 4 bytes a parameter less "
           "(stochastic).",
           one_of({"f32", "stochastic"}))
      .fixed();
}

void add_lora(SettingRegistry& settings, TrainConfig& c) {
  LoraSettings& l = c.lora;
  settings.group("lora",
                 "Low-rank adapters (LoRA): trains a small part beside the frozen weights of "
                 "model.from. Checkpoints hold the adapter, as the PEFT library does.");
  settings.add("lora.rank", &l.rank, "Rank of the adapters; 0: no LoRA.", between(0, 4096)).fixed();
  settings.add("lora.alpha", &l.alpha, "Adapters are scaled by alpha / rank.", above(0)).fixed();
  settings
      .add("lora.targets", &l.targets,
           "Modules to adapt, as PEFT's target_modules; all-linear: every one but the head.")
      .fixed();
  settings
      .add("lora.rank_stabilized", &l.rank_stabilized,
           "Scale by alpha / sqrt(rank) instead (rsLoRA).")
      .fixed();
}

void add_reporting(SettingRegistry& settings, TrainConfig& c) {
  settings.group("eval", "Loss on held-out text.", Scope::kIsland);
  settings.add("eval.every", &c.eval.every, "Steps between evaluations; 0: only at the end.",
               at_least(0));
  settings.add("eval.max_tokens", &c.eval.max_tokens,
               "Held-out tokens of an evaluation, rounded up to whole sequences; 0: all.",
               at_least(0));
  settings.add(
      "eval.samples", &c.eval.samples,
      "Texts that the model writes after each evaluation, to standard output and to "
      "samples.jsonl: as many for each of eval.prompts; 0: none. A checkpoint is written for "
      "them.",
      between(0, 1000));
  settings.add("eval.prompts", &c.eval.prompts,
               "What these texts begin with; none: nothing, the model begins a new text.");
  settings.add("eval.sample_tokens", &c.eval.sample_tokens, "Tokens that each of them has at most.",
               between(1, 1 << 20));
  settings.group("checkpoint", "What a stopped run goes on from.", Scope::kIsland);
  settings.add("checkpoint.every", &c.checkpoint.every,
               "Steps between checkpoints; 0: only at the end and when interrupted.", at_least(0));
  settings.add("checkpoint.keep", &c.checkpoint.keep, "Newest checkpoints that are kept.",
               at_least(1));
  settings.add(
      "checkpoint.keep_best", &c.checkpoint.keep_best,
      "Checkpoints of the lowest held-out losses that are kept beside the newest: written at "
      "evaluations (eval.every) that are among them; 0: none.",
      between(0, static_cast<double>(HeldOutHistory::kMost)));
  settings.add("checkpoint.async", &c.checkpoint.async,
               "Write checkpoints beside the steps that follow, from a copy in memory of what each "
               "rank writes; the same files.");
  settings.group("log", "What is said on the way; metrics.jsonl is always written.",
                 Scope::kIsland);
  settings.add("log.every", &c.log.every, "Steps between lines.", at_least(1));
  settings.add("log.format", &c.log.format, "Lines for people, or JSON for programs.",
               one_of({"text", "json"}));
  settings.add("log.tensorboard", &c.log.tensorboard, "Write TensorBoard event files too.");
  settings.add("log.trace", &c.log.trace,
               "File to write a trace of some steps to, for chrome://tracing and Perfetto: what "
               "every rank does when, on one clock; empty: none.");
  settings.add("log.trace_after", &c.log.trace_after,
               "Steps of this start that are taken before the trace begins.", at_least(0));
  settings.add("log.trace_steps", &c.log.trace_steps,
               "Steps in the trace, with evaluations and checkpoints between them.", at_least(1));
  settings.group(
      "alerts",
      "What is said when something is wrong with the run: docs/alerts.md. All alerts are on "
      "by default.",
      Scope::kHost);
  settings.add(
      "alerts.off", &c.alerts.off,
      "Kinds of alerts that are not told: nonfinite, spike, divergence, stall, throughput, "
      "straggler, rank_lost, island_lost, checkpoint_late, disk_low; or all.");
  settings.add("alerts.webhook", &c.alerts.webhook,
               "http:// or https:// address that each alert is posted to, as JSON; empty: none.");
  settings.group("metrics", "Metrics as Prometheus reads them: docs/prometheus.md.", Scope::kHost);
  settings.add("metrics.listen", &c.metrics.listen,
               "HOST:PORT where the rank that leads serves them at /metrics; port 0: a free one, "
               "which the log names; empty: nowhere. With train --islands N and with servers that "
               "-n starts, each process takes the next port.");
  settings.add("metrics.token_file", &c.metrics.token_file,
               "File with a secret that Prometheus must show; needed unless HOST is this machine.");
  settings.add("metrics.certificate", &c.metrics.certificate,
               "PEM file to serve them by TLS with, and metrics.key.");
  settings.add("metrics.key", &c.metrics.key, "PEM file with its key.");
}

std::int64_t default_intermediate_size(const ModelSettings& model) {
  if (model.family == "gpt2") return 4 * model.hidden_size;
  // 8/3: three matrices of SwiGLU then weigh as much as two of 4 x hidden (Shazeer 2020).
  constexpr std::int64_t kMultiple = 32;
  return (8 * model.hidden_size + 3 * kMultiple - 1) / (3 * kMultiple) * kMultiple;
}

}  // namespace

void add_all(SettingRegistry& settings, TrainConfig& config) {
  add_run(settings, config);
  add_device(settings, config.device);
  add_model(settings, config);
  add_data(settings, config);
  add_train(settings, config);
  add_experts(settings, config.moe);
  add_ranks(settings, config);
  add_offload(settings, config.offload);
  add_optim(settings, config);
  add_lora(settings, config);
  add_sync(settings, config.sync);
  add_islands(settings, config);
  add_reporting(settings, config);
  add_names_elsewhere(settings.settings());
}

Settings make_settings(TrainConfig& config) {
  Settings settings;
  Rules rules;
  SettingRegistry registry(settings, rules);
  add_all(registry, config);
  return settings;
}

nn::ModelConfig inline_model(const TrainConfig& config, std::int64_t vocab_size,
                             std::int64_t eos_token) {
  const ModelSettings& m = config.model;
  nn::ModelConfig model;
  model.family = m.family;
  model.vocab_size = vocab_size;
  model.hidden_size = m.hidden_size;
  model.num_layers = m.num_hidden_layers;
  model.heads.num_heads = m.num_attention_heads;
  model.heads.num_kv_heads =
      m.num_key_value_heads != 0 ? m.num_key_value_heads : m.num_attention_heads;
  model.heads.head_dim = m.head_dim != 0 ? m.head_dim : m.hidden_size / m.num_attention_heads;
  model.intermediate_size =
      m.intermediate_size != 0 ? m.intermediate_size : default_intermediate_size(m);
  model.max_positions =
      m.max_position_embeddings != 0 ? m.max_position_embeddings : config.train.context;
  model.rope_theta = m.rope_theta;
  model.norm_eps = m.norm_eps;
  model.initializer_range = m.initializer_range;
  model.tie_embeddings = m.tie_word_embeddings;
  model.sliding_window = m.sliding_window;
  model.eos_token = eos_token;
  model.experts = expert_shape(m, model.intermediate_size);
  // Through config.json and back: a new model is then exactly what its directory will say.
  return nn::parse_config(nn::config_json(model), "model.*");
}

}  // namespace atl::train

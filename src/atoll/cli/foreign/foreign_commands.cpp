#include "atoll/cli/foreign/foreign_commands.h"

#include "atoll/cli/foreign/foreign_words.h"

namespace atl::cli {

namespace {

struct Foreign {
  std::string_view names;  // words, with '-' where some write '_'
  std::string_view advice;
};

constexpr Foreign kForeign[] = {
    {"api web chat-web webui llama-server openai", "did you mean `atoll serve MODEL`?"},
    {"chat-cli ask talk converse interact llama-cli main",
     "`atoll chat MODEL` is a conversation; `atoll generate MODEL --chat --prompt TEXT` answers "
     "one "
     "one message"},
    {"complete completion predict infer inference sample speak write prompt text-generation",
     "did you mean `atoll generate MODEL --prompt TEXT`?"},
    {"run exec start",
     "`atoll train RECIPE.toml` trains, and `atoll generate MODEL --prompt TEXT` runs a model"},
    {"download pull fetch hub cache clone",
     "`atoll get ORG/NAME` gets a model of the Hugging Face hub, and every command takes such a "
     "name for a model"},
    {"login auth",
     "the token of the Hugging Face hub is what HF_TOKEN or the file ~/.cache/huggingface/token "
     "holds"},
    {"upload push publish share",
     "atoll uploads nothing; `atoll export RUN --out DIRECTORY`, then `hf upload ORG/NAME "
     "DIRECTORY`"},
    {"convert convert-hf-to-gguf convert-hf-to-gguf.py convert.py transform",
     "`atoll import FILE.gguf --out DIRECTORY` reads GGUF, and `atoll export MODEL --out "
     "FILE.gguf` writes it"},
    {"gguf", "`atoll export MODEL --out FILE.gguf` writes it, and `atoll import` reads it"},
    {"quantize quantise llama-quantize quant",
     "`atoll export MODEL --out FILE.gguf --gguf Q4_K_M` writes 4 bits, and `atoll generate MODEL "
     "--weights=int8` rounds as it loads"},
    {"finetune fine-tune tuning sft chat-sft mid-train instruct lora qlora peft adapter",
     "`atoll train --model.from=MODEL --data.text=TEXT --run.dir=DIRECTORY` goes on from a model; "
     "--lora.rank=8 trains an adapter"},
    {"merge merge-lora merge-adapter fuse",
     "`atoll export RUN --merge --out DIRECTORY` merges an adapter into its base model"},
    {"dpo rlhf ppo grpo chat-rl reward", "atoll trains on texts and on answers to prompts alone"},
    {"pretrain base-train train-gpt train-gpt2 train.py fit learn",
     "did you mean `atoll train RECIPE.toml`?"},
    {"resume continue restart goon",
     "the command that began a run goes on with it (the same run.dir); a study goes on with `atoll "
     "tune resume DIRECTORY`"},
    {"stop kill pause cancel abort",
     "Ctrl-C, or `kill PID`, stops a run after it has saved; the same command goes on"},
    {"list ls ps models history", "`atoll runs list` lists runs"},
    {"show info inspect describe stat check verify validate",
     "`atoll doctor DIRECTORY` looks at a run, checkpoint, corpus or model; `atoll runs show` at "
     "what islands did"},
    {"status", "`atoll runs list` lists runs, and `atoll watch` shows them in a browser"},
    {"compare diff plot curves graph", "`atoll runs compare` and `atoll runs plot` take runs"},
    {"rm remove delete prune",
     "a run is a directory: `rm -r` removes it, and nothing else keeps it"},
    {"cp copy create new init",
     "a run begins with a recipe: copy one of recipes/, or give settings alone: `atoll train "
     "--data.text=TEXT --run.dir=DIRECTORY`"},
    {"torchrun mpirun mpiexec accelerate deepspeed distributed horovodrun srun",
     "`atoll train RECIPE.toml -n N` trains on N ranks, and `atoll launch` on ranks that may die"},
    {"worker agent node join",
     "`atoll launch --join=HOST:PORT --slots=N` offers ranks of this machine, and `atoll tune work "
     "HOST:PORT` trains trials of a study"},
    {"island islands",
     "`atoll train RECIPE.toml --islands N` trains islands on this machine; docs/first-islands.md "
     "has several machines"},
    {"preprocess prepare prepare-data pretokenize encode tokenizer tok-train train-tokenizer",
     "did you mean `atoll tokenize TEXT... --out DIRECTORY`?"},
    {"evaluate base-eval base-loss chat-eval tok-eval perplexity ppl llama-perplexity lm-eval test "
     "score lighteval",
     "did you mean `atoll eval MODEL`? --text says on which text, --task on which questions"},
    {"benchmark llama-bench speed perf", "did you mean `atoll bench`?"},
    {"profile profiler", "`atoll trace RUN` records steps of a run, `atoll bench step` times ops"},
    {"sweep search hpo optimize optuna",
     "`atoll tune STUDY.toml` searches for better settings; recipes/kjv-study.toml is a study"},
    {"tensorboard dashboard ui monitor board visualize top gui logs log tail",
     "did you mean `atoll watch`? It shows runs in a browser"},
    {"settings options keys params configure set env",
     "`atoll config [WORD]` finds settings; they stand in a recipe or on the command line"},
    {"keygen key cert tls", "did you mean `atoll certs`?"},
    {"gpu gpus devices nvidia-smi env-info", "`atoll doctor` says what this machine has"},
    {"estimate memory vram size cost", "did you mean `atoll plan`? It says what a run takes"},
    {"embed embeddings embedding rerank",
     "atoll gives no embeddings; `atoll generate` writes text"},
    {"imatrix", "8 bits (--dtype q8_0 of `atoll export`) are the fewest, and need no such file"},
    {"update upgrade install uninstall",
     "atoll installs nothing; docs/installation.md says how it is installed"},
    {"man", "`atoll manual | man -l -` shows the manual page"},
};

}  // namespace

std::string foreign_command_advice(std::string_view typed) {
  const std::string name = with_dashes(typed);
  for (const Foreign& foreign : kForeign) {
    if (has_word(foreign.names, name)) return std::string(foreign.advice);
  }
  return "";
}

}  // namespace atl::cli

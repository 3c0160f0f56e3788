#include "atoll/cli/foreign_options.h"

#include <algorithm>
#include <cctype>

namespace atl::cli {

namespace {

struct Foreign {
  std::string_view commands;  // words
  std::string_view names;     // words, with '-' where some write '_'
  std::string_view advice;
};

constexpr Foreign kForeign[] = {
    {"train launch plan simulate", "config c f file recipe config-file cfg job.config-file",
     "the recipe is an argument: `atoll COMMAND RECIPE.toml`"},
    {"train plan", "nproc-per-node np num-processes nprocs world-size devices num-gpus gpus",
     "did you mean -n, the number of ranks?"},
    {"launch", "nproc-per-node n np num-processes nprocs world-size devices ranks num-gpus",
     "did you mean --max-ranks?"},
    {"train", "max-ranks min-ranks max-restarts slots join regrow-after",
     "that is an option of `atoll launch`, whose ranks come and go"},
    {"launch", "islands island-restarts", "that is an option of `atoll train`"},
    {"train", "node-rank machine-rank local-rank", "did you mean --rank?"},
    {"train launch",
     "master-addr master-port rdzv-endpoint rdzv-backend rdzv-id main-process-ip "
     "main-process-port dist-url",
     "did you mean --rendezvous=tcp://HOST:PORT?"},
    {"train launch", "nnodes num-machines num-nodes hosts host H",
     "machines are the lines of a --hostfile"},
    {"train launch", "epochs num-epochs num-train-epochs",
     "a run is as long as --train.steps says, each of train.batch_size sequences"},
    {"train launch plan", "device cuda gpu use-cuda accelerator n-gpu-layers ngl",
     "did you mean --device.kind=cuda? docs/gpus.md says what that needs"},
    {"train launch plan", "cpu no-cuda use-cpu", "did you mean --device.kind=cpu, the default?"},
    {"train launch", "fp16", "weights are f32 or bf16: --train.dtype=bf16"},
    {"train launch", "gradient-accumulation-steps grad-accum accumulation-steps",
     "a step of --train.batch_size sequences is made of passes of --train.micro_batch"},
    {"train launch", "resume resume-from-checkpoint load restore continue",
     "the same command on the same run.dir goes on by itself"},
    {"train launch plan", "v verbose debug quiet q log-level",
     "--log.every says how often a line is written"},
    {"generate eval export", "m model hf-repo hf model-path run checkpoint ckpt",
     "the model is an argument: `atoll COMMAND MODEL`"},
    {"generate", "p text input", "did you mean --prompt?"},
    {"generate", "f file input-file", "did you mean --prompt-file?"},
    {"generate", "n n-predict max-new-tokens num-tokens tokens max-length length",
     "did you mean --max-tokens?"},
    {"generate", "temp t", "did you mean --temperature?"},
    {"generate", "s", "did you mean --seed?"},
    {"generate", "num-return-sequences samples", "did you mean --num-samples?"},
    {"generate", "cnv conversation interactive i", "--chat answers one message, --prompt"},
    {"generate", "sys system-prompt", "did you mean --system?"},
    {"generate", "do-sample no-sample", "did you mean --greedy?"},
    {"generate", "dtype quantize quantization load-in-8bit", "did you mean --weights?"},
    {"generate eval", "c ctx-size n-ctx block-size seq-len",
     "the model's own positions are used; eval's --context takes fewer"},
    {"generate eval tokenize bench", "num-threads n-threads thread cpus",
     "did you mean --threads?"},
    {"generate eval", "cuda gpu ngl n-gpu-layers gpu-layers use-cuda accelerator device-map",
     "did you mean --device=cuda? A GPU has the whole model; docs/gpus.md"},
    {"generate eval", "cpu no-cuda use-cpu", "did you mean --device=cpu, the default?"},
    {"eval", "data dataset file f input", "did you mean --text?"},
    {"eval", "tasks", "did you mean --task? It is a file of questions: docs/evaluation.md"},
    {"eval", "batch-size b", "did you mean --micro-batch?"},
    {"eval", "num-fewshot fewshot", "write the examples into the prompts of --task"},
    {"export import tokenize", "output output-dir out-dir o outfile save-dir to dest",
     "did you mean --out?"},
    {"export import", "type outtype quantize q precision", "did you mean --dtype?"},
    {"export", "max-shard-size", "did you mean --shard-size?"},
    {"export", "gguf", "did you mean --format gguf?"},
    {"import export", "i input from file model", "the model is an argument"},
    {"tokenize", "val-fraction test-size val-split validation-split", "did you mean --held-out?"},
    {"tokenize", "input i text data file",
     "texts are arguments: `atoll tokenize TEXT... --out DIR`"},
    {"certs", "hosts san ip dns address", "did you mean --host?"},
    {"certs", "name cn", "the name is an argument: `atoll certs issue DIRECTORY NAME`"},
    {"certs coordinator", "port p", "it is part of HOST:PORT, in --listen of the coordinator"},
    {"coordinator", "host bind address addr", "did you mean --listen?"},
    {"coordinator", "cert certs tls", "did you mean --identity?"},
    {"coordinator", "out output run.dir run-dir ledger", "did you mean --dir?"},
};

bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::string foreign_option_advice(std::string_view command, std::string_view typed) {
  std::string name(typed);
  std::replace(name.begin(), name.end(), '_', '-');
  for (const Foreign& foreign : kForeign) {
    if (!has_word(foreign.commands, command) || !has_word(foreign.names, name)) continue;
    constexpr std::string_view kCommand = "COMMAND";
    std::string advice(foreign.advice);
    if (const std::size_t at = advice.find(kCommand); at != advice.npos) {
      advice.replace(at, kCommand.size(), command);
    }
    return advice;
  }
  return "";
}

}  // namespace atl::cli

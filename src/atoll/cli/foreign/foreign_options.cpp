#include "atoll/cli/foreign/foreign_options.h"

#include <algorithm>
#include <utility>

#include "atoll/cli/foreign/foreign_words.h"

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
    {"train launch plan", "cuda gpu use-cuda n-gpu-layers ngl",
     "did you mean --device.kind=cuda? docs/gpus.md says what that needs"},
    {"train launch plan", "b", "did you mean --train.batch_size?"},
    {"train launch plan", "e", "a run is as long as --train.steps or --train.epochs says"},
    {"train launch plan", "m", "did you mean --model.from?"},
    {"train launch plan", "d", "did you mean --data.text?"},
    {"train launch", "o", "did you mean --run.dir?"},
    {"train launch", "port host watch-port", "did you mean --watch-at=HOST:PORT?"},
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
    {"generate", "dtype quantize quantization torch-dtype bf16 fp16", "did you mean --weights?"},
    {"generate eval", "load-in-8bit load-in-4bit int8",
     "did you mean --weights=int8, the fewest bits there are?"},
    {"generate", "stop stop-sequences stop-strings stop-token stop-words reverse-prompt r eos",
     "a text ends at the model's own end of text or after --max-tokens; no other text stops it"},
    {"generate",
     "repetition-penalty repeat-penalty repeat-last-n presence-penalty frequency-penalty "
     "no-repeat-ngram-size dry-multiplier",
     "there are no penalties; --temperature, --top-k and --top-p say how tokens are drawn"},
    {"generate",
     "min-p typical typical-p tfs mirostat num-beams n-beams beam-size logit-bias grammar "
     "json-schema xtc-probability",
     "--greedy, --temperature, --top-k and --top-p say how tokens are drawn, and nothing else"},
    {"generate", "stream no-stream streaming", "text is written as it comes; leave it out"},
    {"generate", "b batch-size ub",
     "one text is written at a time, and --num-samples after another"},
    {"generate", "port host api-key", "`atoll serve MODEL` is the server"},
    {"serve", "listen bind address addr h H", "did you mean --host and --port?"},
    {"serve", "api-key token token-file key-file",
     "did you mean --api-key-file, a file with keys?"},
    {"serve", "cert tls-cert ssl-certfile ssl-cert-file", "did you mean --certificate?"},
    {"serve", "tls-key ssl-keyfile ssl-key-file", "did you mean --key?"},
    {"serve", "served-model-name alias a", "did you mean --model-name?"},
    {"serve", "max-model-len c ctx-size n-ctx context-length", "did you mean --context?"},
    {"serve", "max-num-seqs np parallel n-parallel", "did you mean --slots?"},
    {"serve", "max-num-batched-tokens b batch-size ub ubatch-size", "did you mean --step-tokens?"},
    {"serve", "max-num-queued-reqs", "did you mean --max-queue?"},
    {"serve", "t num-threads", "did you mean --threads?"},
    {"serve", "dtype q quantization load-in-8bit", "did you mean --weights?"},
    {"generate eval", "compile torch-compile trust-remote-code attn-implementation",
     "leave it out: atoll compiles nothing when it starts, and runs no code of a model's "
     "directory"},
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
    {"import export", "i input from file model", "the model is an argument"},
    {"tokenize", "val-fraction test-size val-split validation-split", "did you mean --held-out?"},
    {"tokenize", "input i text data file",
     "texts are arguments: `atoll tokenize TEXT... --out DIR`"},
    {"watch", "port p", "it is part of HOST:PORT: --listen=127.0.0.1:PORT"},
    {"watch", "host bind bind-all address addr h H",
     "did you mean --listen=HOST:PORT? Others than this machine need --token-file or "
     "--certificate"},
    {"watch", "logdir log-dir dir d runs run-dir path",
     "directories are arguments: `atoll watch DIR...`"},
    {"watch", "token password auth", "did you mean --token-file, a file with the secret?"},
    {"watch", "cert ssl-certfile tls-cert", "did you mean --certificate?"},
    {"watch", "ssl-keyfile tls-key", "did you mean --key?"},
    {"watch", "open browser no-browser", "it prints the address; open that in a browser"},
    {"tune", "trials n-trials num-trials max-trials num-samples n budget count",
     "did you mean --budget.trials?"},
    {"tune", "workers n-jobs jobs j num-workers parallel", "did you mean --study.workers?"},
    {"tune", "time timeout hours max-time", "did you mean --budget.hours?"},
    {"tune", "storage study-name name out output dir directory o run-dir",
     "did you mean --study.dir?"},
    {"tune", "sampler search searcher search-alg algorithm", "did you mean --study.searcher?"},
    {"tune", "pruner scheduler", "did you mean --study.scheduler?"},
    {"tune", "objective metric monitor", "did you mean --study.objective?"},
    {"tune", "config c f file study recipe", "the study is an argument: `atoll tune STUDY.toml`"},
    {"runs", "watch follow f live", "`atoll watch` shows runs in a browser while they train"},
    {"runs", "output o csv html", "did you mean --out? `atoll runs export` writes files"},
    {"server", "port p", "it is part of HOST:PORT, in --listen"},
    {"server", "host bind address addr", "did you mean --listen?"},
    {"doctor", "json v verbose gpu fix",
     "what it says has no other form; it takes a directory to look at"},
    {"trace", "output o", "did you mean --out?"},
    {"certs", "hosts san ip dns address", "did you mean --host?"},
    {"certs", "name cn", "the name is an argument: `atoll certs issue DIRECTORY NAME`"},
    {"certs coordinator", "port p", "it is part of HOST:PORT, in --listen of the coordinator"},
    {"coordinator", "host bind address addr", "did you mean --listen?"},
    {"coordinator", "cert certs tls", "did you mean --identity?"},
    {"coordinator", "out output run.dir run-dir ledger", "did you mean --dir?"},
};

// Words for values and for parts of commands: others', ours.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"gpu nvidia cuda:0", "cuda"},
    {"bfloat16", "bf16"},
    {"fp32 float32 float", "f32"},
    {"fp16 float16 half", "f16"},
    {"q8 q8-k int8 8bit q4-k-m q4-0 q5-k-m q6-k", "q8_0"},
    {"8bit 4bit q8-0 q8 int4 q4", "int8"},
    {"safetensors huggingface pytorch", "hf"},
    {"ls", "list"},
    {"diff", "compare"},
    {"graph chart curves", "plot"},
    {"info status describe audit", "show"},
    {"why", "explain"},
    {"create new sign add renew", "issue"},
    {"ca setup", "init"},
    {"delete remove rm", "revoke"},
    {"sentencepiece unigram wordpiece", "bpe"},
    {"characters character", "char"},
};

}  // namespace

std::string foreign_word_meant(std::string_view word, const std::vector<std::string>& names) {
  const std::string typed = with_dashes(word);
  for (const auto& [theirs, ours] : kWords) {
    const bool is_one = std::find(names.begin(), names.end(), ours) != names.end();
    if (is_one && has_word(theirs, typed)) return std::string(ours);
  }
  return "";
}

std::string foreign_option_advice(std::string_view command, std::string_view typed) {
  const std::string name = with_dashes(typed);
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

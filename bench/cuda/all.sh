#!/usr/bin/env bash
# What only a GPU can show, in parts of at most ten minutes each, and a table at the end. Needs an NVIDIA
# GPU and driver, and the CUDA toolkit; builds the preset `cuda`.
#
#   bench/cuda/all.sh [PART...]      all parts when none is given; in this order:
#
# kernels    every kernel gives the bits of the shim (the tests that run on the fake GPU, and then here)
# products   ones times ones, a hundred times each; cross-entropy, and attention with tensor cores and by
#            cuDNN a hundred times each, against double
# sanitizer  compute-sanitizer over the kernels' tests: memcheck, initcheck, racecheck, synccheck; each
#            must first find the mistake that bench/cuda/planted.cu makes
# training   twenty steps twice: the same bits, and the CPU's losses within what bf16 costs; `atoll train`
#            of 50 steps twice, as graphs, and of 25 that go on to 50: the same weights; with cuDNN's
#            attention too; each feature of a trainer for a few steps, as on the CPU
# ops        time of each op beside the GPU's own rates: own kernels at 85% of a copy's; and of each
#            kernel of a step
# mfu        124M and 1B, beside PyTorch compiled (PEER_PYTHON) and llm.c (LLMC), if these are given;
#            PEAK_TFLOPS is the GPU's in bf16 (989, an H100's); ATTENTION=cudnn sets device.attention
# record     the GPU, the driver and the libraries, as files to keep as test data
#
# Exit code: 0 when all passed, 1 when something failed, 2 when there is no GPU or no such part, 3 when a
# part could not be run. Logs and records are in build/cuda/gpu/.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
all=(kernels products sanitizer training ops mfu record)
parts=("$@")
((${#parts[@]})) || parts=("${all[@]}")
bin=build/cuda/src/atoll
logs=build/cuda/gpu
own_kernels='CudaNorm*:CudaColumn*:CudaEmbedding*:CudaAttention*:CudaSum*:CudaMuon*:CudaCopy*:CudaDropout*'
own_kernels+=':CudaAssign*:CudaExpert*:CudaRouter*:CudaGrouped*:CudaMixed*:CudaCrossEntropy*:CudaGelu*:CudaSwiglu*'
own_kernels+=':CudaRope*:CudaCodes*:CudaSigns*:CudaFactors*:CudaInt8*:CudaBf16*:CudaQkNorm*:CudaVocabulary*:CudaAdamW*'
own_kernels+=':CudaLion*:CudaSgd*:CudaSampleToken*:CudaConvert*:CudaAdd*:CudaFp8*'

for name in "${parts[@]}"; do
  [[ " ${all[*]} " == *" $name "* ]] || {
    echo "error: there is no part '$name'; there are: ${all[*]}" >&2
    exit 2
  }
done
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L; then
  echo "error: nvidia-smi finds no GPU, so there is nothing to check; without one, ./dev test does what can be done" >&2
  exit 2
fi

table=()
failed=0
# At most ten minutes for one line; what the command says is kept.
part() { # <name> <command...>
  local name=$1 log="$logs/$1.log" start=$SECONDS verdict note=""
  shift
  timeout 600 "$@" >"$log" 2>&1
  local code=$?
  if ((code == 124)); then
    verdict=FAILED note="took more than ten minutes; $log"
  elif ((code == 77)) || grep -q '\[  SKIPPED \]' "$log"; then
    verdict="NOT RUN" note=$log # a test that is skipped shows nothing
  elif ((code != 0)); then
    verdict=FAILED note=$log
  else
    verdict=passed
  fi
  case $verdict in
  FAILED) failed=1 ;;
  "NOT RUN") ((failed == 1)) || failed=3 ;;
  esac
  table+=("$(printf '%-26s %-8s %4d s  %s' "$name" "$verdict" $((SECONDS - start)) "$note")")
  echo "${table[-1]}"
}

# Passes when the tool finds the mistake. Called by name below.
# shellcheck disable=SC2317
finds_planted() { # <tool>
  compute-sanitizer --tool "$1" "$logs/planted" "$1" | tee /dev/stderr |
    grep -Eq '(ERROR|RACECHECK) SUMMARY: [1-9]'
}
export -f finds_planted
export logs

sanitizers() {
  local tool
  if ! command -v compute-sanitizer >/dev/null; then
    part sanitizer bash -c 'echo "compute-sanitizer is not on the PATH; it comes with the CUDA toolkit"; exit 77'
    return
  fi
  # shellcheck disable=SC2016
  part planted bash -c 'PATH=$PATH:/usr/local/cuda/bin nvcc -lineinfo -arch=native bench/cuda/planted.cu -o "$logs/planted"'
  for tool in memcheck initcheck racecheck synccheck; do
    part "$tool-planted" bash -c "finds_planted $tool"
    part "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$bin/ops_test" \
      "--gtest_filter=$own_kernels"
  done
}

# shellcheck disable=SC2317
record() {
  nvidia-smi -q -x >"$logs/gpu.xml" &&
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv \
      >"$logs/gpu.csv" &&
    "$PWD/build/cuda/bin/atoll" doctor >"$logs/doctor.txt" &&
    CUBLASLT_LOG_LEVEL=5 CUBLASLT_LOG_FILE="$logs/cublaslt.log" "$bin/ops_test" --gtest_filter='RealGpu*' &&
    grep -h "algo" "$logs/cublaslt.log" | sort | uniq -c >"$logs/algorithms.txt"
}
export -f record
export bin

./dev build cuda || exit 1
cmake --build build/cuda --target ops_test device_test parallel_slow_test gpu_ops_bench atoll || exit 1
cmake --build build/cuda --target kernel_times || echo "no CUPTI, so step-kernels is not run"
mkdir -p "$logs"
atoll=build/cuda/bin/atoll
for name in "${parts[@]}"; do
  case $name in
  kernels)
    part kernels "$bin/ops_test" '--gtest_filter=Cuda*'
    part device "$bin/device_test" '--gtest_filter=Cuda*'
    ;;
  products)
    part products "$bin/ops_test" '--gtest_filter=RealGpu*:-RealGpuFp8*'
    part products-fp8 "$bin/ops_test" '--gtest_filter=RealGpuFp8*' # not of every GPU
    ;;
  sanitizer) sanitizers ;;
  training)
    part steps "$bin/parallel_slow_test" '--gtest_filter=*OnARealGpu*'
    part runs python3 bench/cuda/runs.py repeat --atoll "$atoll"
    part features python3 bench/cuda/runs.py features --atoll "$atoll"
    part runs-cudnn python3 bench/cuda/runs.py repeat --atoll "$atoll" --attention cudnn
    ;;
  ops)
    part ops build/cuda/bench/gpu_ops_bench
    cat "$logs/ops.log"
    part ops-experts build/cuda/bench/gpu_ops_bench --model moe
    cat "$logs/ops-experts.log"
    part step-kernels python3 bench/cuda/runs.py kernels --atoll "$atoll"
    cat "$logs/step-kernels.log"
    ;;
  mfu)
    for model in 124m 1b; do
      part "mfu-$model" python3 bench/cuda/runs.py mfu --atoll "$atoll" --model "$model" \
        ${ATTENTION:+--attention "$ATTENTION"} \
        ${PEAK_TFLOPS:+--peak "$PEAK_TFLOPS"} ${PEER_PYTHON:+--python "$PEER_PYTHON"} ${LLMC:+--llmc "$LLMC"}
      cat "$logs/mfu-$model.log"
    done
    for scaling in tensor blocks; do
      part "mfu-fp8-$scaling" python3 bench/cuda/runs.py mfu --atoll "$atoll" --model 1b --fp8 "$scaling" --rounds 1 \
        ${ATTENTION:+--attention "$ATTENTION"} ${PEAK_TFLOPS:+--peak "$PEAK_TFLOPS"}
      cat "$logs/mfu-fp8-$scaling.log"
    done
    ;;
  record) part record bash -c record ;;
  esac
done
echo
printf '%s\n' "${table[@]}"
exit $failed

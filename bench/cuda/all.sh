#!/usr/bin/env bash
# What only a GPU can show, in parts of at most ten minutes each. Needs an NVIDIA GPU and driver, and
# the CUDA toolkit; builds the preset `cuda`.
#
#   bench/cuda/all.sh [PART...]      PART: kernels products sanitizer training; all when none is given
#
# kernels    every kernel gives the bits of the shim (the tests that run on the fake GPU, and then here)
# products   ones times ones, a hundred times each; cross-entropy against double
# sanitizer  compute-sanitizer over the kernels' tests: memcheck, initcheck, racecheck, synccheck
# training   twenty steps twice: the same bits, and the CPU's losses within what bf16 costs
#
# Not here yet: times beside the roofline, MFU, and other programs on the same GPU.
set -uo pipefail
cd "$(dirname "$0")/../.."
parts=("$@")
((${#parts[@]})) || parts=(kernels products sanitizer training)
build=build/cuda/src/atoll

if ! nvidia-smi -L; then
  echo "error: nvidia-smi finds no GPU, so there is nothing to check; without one, ./dev test does what can be done" >&2
  exit 2
fi
# At most ten minutes for one part; the tests' own output is kept.
part() { # <name> <command...>
  local name=$1 log=build/cuda/$1.log start=$SECONDS
  shift
  if timeout 600 "$@" >"$log" 2>&1; then
    # A test that is skipped shows nothing.
    if grep -q '\[  SKIPPED \]' "$log"; then
      printf '%-22s NOT RUN  tests were skipped, see %s\n' "$name" "$log"
      return 1
    fi
    printf '%-22s passed   %d s\n' "$name" $((SECONDS - start))
  else
    printf '%-22s FAILED   %s\n' "$name" "$log"
    return 1
  fi
}

sanitizers() {
  local tool status=0
  command -v compute-sanitizer >/dev/null || {
    echo "error: compute-sanitizer is not on the PATH; it comes with the CUDA toolkit" >&2
    return 1
  }
  for tool in memcheck initcheck racecheck synccheck; do
    part "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/ops_test" \
      '--gtest_filter=CudaNorm*:CudaColumn*:CudaEmbedding*:CudaAttention*:CudaSum*' || status=1
  done
  return $status
}

./dev build cuda || exit 1
failed=0
for name in "${parts[@]}"; do
  case $name in
  kernels) part kernels "$build/ops_test" '--gtest_filter=Cuda*' && part device "$build/device_test" '--gtest_filter=Cuda*' ;;
  products) part products "$build/ops_test" '--gtest_filter=RealGpu*' ;;
  sanitizer) sanitizers ;;
  training) part training "$build/parallel_slow_test" '--gtest_filter=*OnARealGpu*' ;;
  *)
    echo "error: there is no part '$name'; there are: kernels products sanitizer training" >&2
    exit 2
    ;;
  esac || failed=1
done
exit $failed

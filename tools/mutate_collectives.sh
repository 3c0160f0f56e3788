#!/bin/bash
# Does a test fail for every collective that is left out? Links the tests of parallel/ and train/
# with a Group whose calls from one place in the code do nothing, on all ranks, when the environment
# names that place; runs them once for each place, and prints the first test that fails.
#
#   tools/mutate_collectives.sh [BUILD] [PLACE...]
#
# BUILD (build/release) is a build folder of the preset release; a PLACE is as this prints it. All
# places that the tests reach are tried when none is given. Exit code 1 when nothing fails for one.
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD build=$(realpath "${1:-build/release}")
shift $(($# > 0))
programs=(parallel_test train_test)
limit=150 # seconds for one program: ranks that wait for ever are a test that fails
scratch=$build/mutations
rm -rf "$scratch"
mkdir -p "$scratch"

cat >"$scratch/left_out.h" <<'END'
#pragma once
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include "atoll/comm/where.h"
namespace atl::comm {
inline bool left_out(const std::string& place) {
  if (const char* log = std::getenv("ATOLL_PLACES")) {
    if (std::FILE* file = std::fopen(log, "a")) {
      const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
      fmt::print(file, "{} {}.{}\n", place, test->test_suite_name(), test->name());
      std::fclose(file);
    }
  }
  const char* name = std::getenv("ATOLL_WITHOUT");
  return name != nullptr && place == name;
}
inline bool left_out(const Where& where) {
  return left_out(fmt::format("{}:{}", where.file_name(), where.line()));
}
// For functions that are not told who calls: the caller's place in the program.
inline bool left_out(void* caller) {
  Dl_info info = {};
  dladdr(caller, &info);
  const auto offset = static_cast<char*>(caller) - static_cast<char*>(info.dli_fbase);
  return left_out(fmt::format("+{:x}", offset - 1));
}
}  // namespace atl::comm
END
# A source of comm/ or parallel/ with the hook, compiled as the build compiles it.
mutant() { # <folder/name> <sed expression>...: each must change something
  local source=$repository/src/atoll/$1.cpp copy=$scratch/${1//\//-}.cpp object before command
  object=src/atoll/CMakeFiles/atoll_${1%%/*}.dir/$1.cpp.o
  { printf '#include "left_out.h"\n#line 1 "%s"\n' "$source" && cat "$source"; } >"$copy"
  shift
  for expression in "$@"; do
    before=$(<"$copy")
    sed -i -E "$expression" "$copy"
    [[ $before != "$(<"$copy")" ]] || { echo "$source: nothing to change" >&2; exit 2; }
  done
  command=$(ninja -C "$build" -t commands "$object" | tail -n 1)
  command=${command//"$source"/"$copy"}
  command=${command//"-o $object"/"-o ${copy%.cpp}.o"}
  (cd "$build" && eval "$command -MF $copy.d -I$scratch")
}
here='left_out(__builtin_return_address(0))'
mutant comm/group \
  's/^void Group::run\(.*\{/& if (size() > 1 \&\& left_out(collective.where)) return;/' \
  's/^Work Group::start\(.*\{/& if (size() > 1 \&\& left_out(collective.where)) return Work();/'
mutant comm/agree "s/^  if \(size\(\) == 1\) return action/  if (size() == 1 || $here) return action/"
alone='std::vector<std::string> own(static_cast<std::size_t>(group->size()));'
alone+=' own[static_cast<std::size_t>(group->rank())] = mine; return own;'
mutant parallel/gather_text "s/^  if \(group == nullptr.*/& if (comm::$here) { $alone }/"
# A rank that waits in vain is found sooner.
mutant comm/threads/run \
  's/^(void run_threads\(int num_ranks, const WorldOptions& )options/\1asked/' \
  's/^  if \(num_ranks < 1\)/  WorldOptions options = asked; options.timeout_s = std::min(asked.timeout_s, 20.0); &/'
ninja -C "$build" "${programs[@]}" >"$scratch/build.log" || { tail -n 20 "$scratch/build.log"; exit 2; }
for name in "${programs[@]}"; do
  command=$(ninja -C "$build" -t commands "src/atoll/$name" | tail -n 1)
  command=${command%% && cd *}
  command=${command#: && }
  (cd "$build" && eval "${command/"-o src/atoll/$name"/"$scratch"/*.o -o "$scratch/$name"}")
done

readable() { # <program> <place>
  if [[ $2 == +* ]]; then
    # Inlined calls: the innermost, and the line that it was inlined at.
    addr2line -i -e "$scratch/$1" "0x${2#+}" | head -n 2 | sed -E 's| \(.*||; s|.*/||' |
      paste -sd '<' | sed -E 's|^([^:]+:)([0-9]+)<\1|\1\2<|; s|<.*/||'
  else
    echo "${2##*/}"
  fi
}
first_failure() { # <program> <its tests>
  local log=$scratch/$1.log status=0
  TMPDIR=$scratch timeout "$limit" "$scratch/$1" --gtest_filter="$2" --gtest_fail_fast \
    --gtest_brief=1 >"$log" 2>&1 || status=$?
  ((status != 0)) || return 0
  if ((status == 124)); then
    echo "($1 waits for ever)"
  else
    grep -m1 '^\[  FAILED  \]' "$log" | sed -E 's/^\[  FAILED  \] ([^ ,]+).*/\1/' || echo "($1: $status)"
  fi
}

# "file:line place program tests", a line for each place that tests reach in parallel/ and train/.
unset ATOLL_WITHOUT
for name in "${programs[@]}"; do
  ATOLL_PLACES=$scratch/places.$name
  export ATOLL_PLACES
  : >"$ATOLL_PLACES"
  failure=$(first_failure "$name" '*')
  [[ -z $failure ]] || { echo "nothing is left out, and yet: $failure" >&2; exit 2; }
  sort -u "$ATOLL_PLACES" |
    awk '{ tests[$1] = tests[$1] ":" $2 } END { for (p in tests) print p, substr(tests[p], 2) }' |
    while read -r place tests; do
      echo "$(readable "$name" "$place") $place $name $tests"
    done >>"$scratch/reached"
done
unset ATOLL_PLACES
sort -t : -k1,1 -k2,2n "$scratch/reached" >"$scratch/sorted"
missed=0
for shown in $(cut -d ' ' -f 1 "$scratch/sorted" | uniq); do
  (($# == 0)) || [[ " $* " == *" $shown "* ]] || continue
  compgen -G "src/atoll/parallel/${shown%%:*}" >/dev/null ||
    compgen -G "src/atoll/train/${shown%%:*}" >/dev/null || continue # agree()'s own, and the tests'
  [[ $shown != *_test.cpp* ]] || continue
  failure=
  while read -r _ place name tests; do
    export ATOLL_WITHOUT=$place
    [[ -n $failure ]] || failure=$(first_failure "$name" "$tests")
  done < <(grep -F "$shown " "$scratch/sorted")
  unset ATOLL_WITHOUT
  [[ -n $failure ]] || missed=1
  printf '%-32s %s\n' "$shown" "${failure:-NOTHING FAILS}"
done
exit "$missed"

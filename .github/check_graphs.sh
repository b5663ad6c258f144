#!/usr/bin/env bash
# The step of action.yml: checks the graphs of a repository, and compares those that changed with the
# base branch. Findings are shown beside the files; the summary of the job has them as tables.
#
# INPUT_GRAPHS      patterns of git for the graphs, separated by blanks or lines
# INPUT_FAIL_LEVEL  error, warning, or note
# INPUT_IGNORE      codes, separated by commas
# INPUT_DIFF        nodes, values (run both), or none
# INPUT_BASE        branch or commit to compare with; empty for no comparison
# INPUT_FAIL_ON_DIFFERENCE  true or false
# INPUT_GOLDEN      models and golden outputs, MODEL=FILE.npz, separated by blanks or lines
# INPUT_GOLDEN_OPTIONS  options of the comparison with them
set -euo pipefail

# text in a property of a workflow command, which a name must not end
escaped() {
  local text=${1//%/%25}
  text=${text//$'\r'/%0D}
  text=${text//$'\n'/%0A}
  text=${text//:/%3A}
  echo "${text//,/%2C}"
}

read -ra patterns <<< "${INPUT_GRAPHS//$'\n'/ }"
mapfile -d '' -t graphs < <(git ls-files -z -- "${patterns[@]}")
if [ ${#graphs[@]} = 0 ]; then
  echo "::warning title=cfgraph::no file of the repository matches ${patterns[*]}"
  exit 0
fi

# what fails last is the status of the step
status=0
check=(cfgraph check --fail-level "$INPUT_FAIL_LEVEL")
if [ -n "$INPUT_IGNORE" ]; then
  check+=(--ignore "$INPUT_IGNORE")
fi
"${check[@]}" --format github -- "${graphs[@]}" || status=$?
# a file that is no graph has been reported above, and is a finding in these, too
sarif=$RUNNER_TEMP/cfgraph.sarif
"${check[@]}" --format sarif --exit-zero -- "${graphs[@]}" > "$sarif" 2> /dev/null || true
echo "sarif=$sarif" >> "$GITHUB_OUTPUT"
{
  echo "## Graphs"
  echo
  "${check[@]}" --format markdown --exit-zero -- "${graphs[@]}" 2> /dev/null || true
} >> "$GITHUB_STEP_SUMMARY"

# each is run on the recorded inputs; the base is not asked
read -ra golden <<< "${INPUT_GOLDEN//$'\n'/ }"
read -ra golden_options <<< "$INPUT_GOLDEN_OPTIONS"
if [ ${#golden[@]} -gt 0 ]; then
  printf '\n## Golden outputs\n' >> "$GITHUB_STEP_SUMMARY"
fi
for pair in "${golden[@]}"; do
  model=${pair%%=*} found=0
  echo >> "$GITHUB_STEP_SUMMARY"
  cfgraph diff "${golden_options[@]}" --format markdown -- "$model" "${pair#*=}" >> "$GITHUB_STEP_SUMMARY" || found=$?
  if [ "$found" != 0 ]; then
    text="the outputs differ from ${pair#*=}; the summary of the job has the first difference"
    [ "$found" = 1 ] || text="the model cannot be compared with ${pair#*=}"
    echo "::error file=$(escaped "$model"),title=cfgraph diff::$text"
    status=$found
  fi
done

if [ -z "$INPUT_BASE" ] || [ "$INPUT_DIFF" = none ]; then
  exit "$status"
fi
diff=(cfgraph diff)
if [ "$INPUT_DIFF" = values ]; then
  diff+=(--run)
fi
# the commit at which the branch left the base: later changes of the base are not this branch's
fetch=(git fetch --quiet --filter=blob:none)
if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
  fetch+=(--unshallow)
fi
"${fetch[@]}" -- origin "$INPUT_BASE"
base=$(git merge-base HEAD FETCH_HEAD || git rev-parse FETCH_HEAD)
{
  echo
  echo "## Changed graphs"
} >> "$GITHUB_STEP_SUMMARY"
# files of the base, as they are checked out: attributes apply, but not those of an archive
before=$RUNNER_TEMP/before
index=$RUNNER_TEMP/before.index
GIT_INDEX_FILE=$index git read-tree "$base"
for graph in "${graphs[@]}"; do
  # variables and assets are part of a SavedModel
  model=$graph
  if [[ ${graph##*/} =~ ^saved_model\.pb(txt)?(\.gz)?$ ]]; then
    [ "$graph" = "${graph##*/}" ] && model=. || model=${graph%/*}
  fi
  if git --literal-pathspecs diff --quiet "$base" -- "$model" ||
    [ -z "$(git --literal-pathspecs ls-tree --name-only "$base" -- "$graph")" ]; then
    continue
  fi
  git --literal-pathspecs ls-tree -r -z --name-only "$base" -- "$model" |
    GIT_INDEX_FILE=$index git checkout-index -f -z --stdin --prefix="$before/"
  found=0
  echo >> "$GITHUB_STEP_SUMMARY"
  "${diff[@]}" --format markdown -- "$before/$model" "$model" >> "$GITHUB_STEP_SUMMARY" || found=$?
  if [ "$INPUT_DIFF" = nodes ] && git --literal-pathspecs diff --quiet "$base" -- "$graph"; then
    text="other files of the model changed, such as its variables; diff: values compares what it computes"
    echo "::warning file=$(escaped "$graph"),title=cfgraph diff::$text"
    printf '\nNot compared: %s.\n' "$text" >> "$GITHUB_STEP_SUMMARY"
  fi
  # 1 is a difference, and anything else a failure
  if [ "$found" -gt 1 ] || { [ "$found" = 1 ] && [ "$INPUT_FAIL_ON_DIFFERENCE" = true ]; }; then
    echo "::error file=$(escaped "$graph"),title=cfgraph diff::the graph differs from $INPUT_BASE"
    status=$found
  fi
done
exit "$status"

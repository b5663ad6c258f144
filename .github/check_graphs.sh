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
mapfile -d '' -t changed < <(git diff --name-only -z --diff-filter=M "$base" -- "${patterns[@]}")
{
  echo
  echo "## Changed graphs"
} >> "$GITHUB_STEP_SUMMARY"
for graph in "${changed[@]}"; do
  before=$RUNNER_TEMP/before.${graph##*/}
  git show "$base:$graph" > "$before"
  found=0
  echo >> "$GITHUB_STEP_SUMMARY"
  "${diff[@]}" --format markdown -- "$before" "$graph" >> "$GITHUB_STEP_SUMMARY" || found=$?
  # 1 is a difference, and anything else a failure
  if [ "$found" -gt 1 ] || { [ "$found" = 1 ] && [ "$INPUT_FAIL_ON_DIFFERENCE" = true ]; }; then
    echo "::error file=$(escaped "$graph"),title=cfgraph diff::the graph differs from $INPUT_BASE"
    status=$found
  fi
done
exit "$status"

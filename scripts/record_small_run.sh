#!/usr/bin/env bash
# Records the small real run that tests/test_recorded_run.py replays. Needed again after a change of MathBench's prompts
# or of Duel-Evolve; takes about a minute. Run from the repository's root, with the environment of `make setup`.
set -euo pipefail
target=tests/recordings/smollm2_mathbench
run=$(mktemp -d)
.venv/bin/evorun experiment=quickstart task.limit=3 method.generations=1 evorun.progress=off hydra.run.dir="$run"
mkdir -p "$target"
for file in journal.sqlite manifest.json predictions.jsonl steps.jsonl comparisons.jsonl candidates.jsonl results.json; do
    cp "$run/$file" "$target/$file"
done
sed -i "s#$PWD/##" "$target/manifest.json" # a recording names no folder of the machine that made it
rm -rf "$run"

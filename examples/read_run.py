"""Read a run directory: print its score by generation, and the ancestors of each problem's chosen candidate."""

import sys
from pathlib import Path

from evorun.runs.directory import load_manifest
from evorun.runs.reading import read_metrics, read_predictions, read_records
from evorun.runs.schema import CandidateRecord


def main(run_dir: Path) -> None:
    """Print both. Raises RunDirectoryError or DataError for a directory that cannot be read."""
    manifest = load_manifest(run_dir)
    score = manifest.scores[0]
    print(f"{manifest.method} on {manifest.task}: {score.name} by generation")
    for point in read_metrics(run_dir):
        if point.name == score.name and point.value is not None:
            print(f"{point.step:4}  {point.value:.3f}  after {point.calls:.1f} calls a problem")

    candidates = {(one.problem, one.id): one for one in read_records(run_dir / "candidates.jsonl", CandidateRecord)}
    for prediction in read_predictions(run_dir):
        print(f"\n{prediction.problem}: {score.name} {score.value_in(prediction)}")
        line = [] if prediction.candidate is None else [prediction.candidate]
        for name in line:  # grows: each candidate's parents join at its end
            one = candidates[prediction.problem, name]
            line += [parent for parent in one.parents if parent not in line]
            belief = "" if one.mean is None else f", mean {one.mean:.2f}"
            parents = f" of {', '.join(one.parents)}" if one.parents else ""
            print(f"  {one.id}  {one.operator}{parents}: {one.answer}, {score.name} {score.value_in(one)}{belief}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

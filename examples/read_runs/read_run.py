"""Read a run directory: print its score by generation, and the ancestors of each problem's chosen candidate.

Each candidate comes with the length of the prompt that it answers: the journal has every model call, to the byte.
"""

import json
import sys
from contextlib import closing
from pathlib import Path

from evorun.runs.directory import load_manifest
from evorun.runs.journal_reader import JournalReader, open_journal
from evorun.runs.reading import read_metrics, read_predictions, read_records
from evorun.runs.schema import CandidateRecord


def main(run_dir: Path) -> None:
    """Print both. Raises RunDirectoryError, DataError or JournalError for a directory that cannot be read."""
    manifest = load_manifest(run_dir)
    score = manifest.scores[0]
    print(f"{manifest.method} on {manifest.task}: {score.name} by generation")
    for point in read_metrics(run_dir):
        if point.name == score.name and point.value is not None:
            print(f"{point.step:4}  {point.value:.3f}  after {point.calls:.1f} calls per problem")

    candidates = {(one.problem, one.id): one for one in read_records(run_dir / "candidates.jsonl", CandidateRecord)}
    with closing(open_journal(run_dir / "journal.sqlite")) as journal:
        numbers = {key: number for number, (key, _) in enumerate(journal.index())}
        for prediction in read_predictions(run_dir):
            print(f"\n{prediction.problem}: {score.name} {score.value_in(prediction)}")
            line = [] if prediction.candidate is None else [prediction.candidate]
            for name in line:  # grows: each candidate's parents join at its end
                one = candidates[prediction.problem, name]
                line += [parent for parent in one.parents if parent not in line]
                belief = "" if one.mean is None else f", mean {one.mean:.2f}"
                parents = f" of {', '.join(one.parents)}" if one.parents else ""
                asked = "" if one.call is None else f", asked in {prompt_length(journal, numbers[one.call])} characters"
                value = f"{score.name} {score.value_in(one)}"
                print(f"  {one.id}  {one.operator}{parents}: {one.answer}, {value}{belief}{asked}")


def prompt_length(journal: JournalReader, number: int) -> int:
    """Return the length of all messages of a recorded call."""
    messages = json.loads(journal.effect(number).request)["messages"]
    return sum(len(message["content"]) for message in messages)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

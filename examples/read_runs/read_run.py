"""Read a run directory: print its score by generation, and the ancestors of each problem's chosen candidate.

Each candidate comes with the length of the prompt that it answers: the journal has every model call, to the byte.
"""

import json
import sys

from pandas import isna

import evorun


def main(folder: str) -> None:
    """Print both. Raises RunDirectoryError, DataError or JournalError for a directory that cannot be read."""
    (run,) = evorun.load([folder])
    score = run.manifest.scores[0].name
    print(f"{run.method} on {run.task}: {score} by generation")
    for point in run.curves().query("name == @score").to_dict("records"):
        print(f"{point['step']:4}  {point['value']:.3f}  after {point['calls']:.1f} calls per problem")

    value = "correct" if score == "accuracy" else f"scores.{score}"
    candidates = {(one["problem"], one["id"]): one for one in run.candidates().to_dict("records")}
    prompts = {one["call"]: json.loads(one["prompt"]) for one in run.completions().to_dict("records")}
    for prediction in run.predictions().to_dict("records"):
        print(f"\n{prediction['problem']}: {score} {prediction[value]}")
        line = [] if isna(prediction["candidate"]) else [prediction["candidate"]]
        for name in line:  # grows: each candidate's parents join at its end
            one = candidates[prediction["problem"], name]
            line += [parent for parent in one["parents"] if parent not in line]
            belief = "" if isna(one["mean"]) else f", mean {one['mean']:.2f}"
            parents = f" of {', '.join(one['parents'])}" if one["parents"] else ""
            length = sum(len(message["content"]) for message in prompts.get(one["call"], ()))
            asked = f", asked in {length} characters" if length else ""
            print(f"  {one['id']}  {one['operator']}{parents}: {one['answer']}, {score} {one[value]}{belief}{asked}")


if __name__ == "__main__":
    main(sys.argv[1])

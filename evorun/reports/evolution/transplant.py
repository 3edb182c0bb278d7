"""The transplant matrix: checkpoints against prompts, and how much of the gain lies in either."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evorun.reports.population import Population
from evorun.runs.candidates import CandidateId
from evorun.runs.printable import printable
from evorun.runs.reading import read_artifact
from evorun.runs.schema import PromptScore


@dataclass(frozen=True)
class Transplant:
    """Test scores of prompts with the weights of several steps."""

    cells: Mapping[tuple[CandidateId, int], PromptScore]
    """By prompt and step of the weights."""
    prompts: Sequence[CandidateId]
    steps: Sequence[int]
    names: Mapping[CandidateId, str]
    """By prompt: its id and its mark (root, best, latest) in the run."""

    chosen: CandidateId
    """The prompt whose gains are reported: the best one, if it was tested."""

    @property
    def gains(self) -> tuple[float, float, float] | None:
        """The gain by the chosen prompt alone, by the last weights alone, and by both, over the first of both.

        None if one of these four cells is missing, or there is only one prompt or step.
        """
        first, last, root = self.steps[0], self.steps[-1], self.prompts[0]
        corners = [self.cells.get((prompt, step)) for prompt in (root, self.chosen) for step in (first, last)]
        scores = [corner.score for corner in corners if corner is not None]
        if len(scores) < 4 or root == self.chosen or first == last:
            return None
        before, weights, prompt, both = scores
        return prompt - before, weights - before, both - before


def load_transplant(run_dir: Path, population: Population | None) -> Transplant | None:
    """Read the matrix; None for a run without it. Prompts are in order of creation. Raises DataError."""
    found = read_artifact(run_dir, "transplant.json", list[PromptScore])
    if not found:
        return None
    members = population.members if population is not None else []
    order = {member.id: index for index, member in enumerate(members)}
    prompts = sorted({cell.candidate for cell in found}, key=lambda prompt: (order.get(prompt, len(order)), prompt))
    marks = (
        {member.id: population.mark(index) for index, member in enumerate(members)} if population is not None else {}
    )
    best = None if population is None else population.best
    chosen = next(
        (member.id for index, member in enumerate(members) if index == best and member.id in prompts), prompts[-1]
    )
    return Transplant(
        cells={(cell.candidate, cell.step): cell for cell in found},
        prompts=prompts,
        steps=sorted({cell.step for cell in found}),
        names={prompt: printable(prompt + marks.get(prompt, "")) for prompt in prompts},
        chosen=chosen,
    )

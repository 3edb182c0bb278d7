"""Any family of Reasoning Gym as a task: problems by a generator, at a chosen difficulty, graded by its verifier.

The verifier runs in the sandbox, since some verifiers evaluate the answer that a model wrote.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, NamedTuple

import msgspec

from evorun.fields import NonNegativeInt, OneOf, PositiveInt
from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY, Score
from evorun.sandbox.base import Case, Limits, Program, Suite
from evorun.sandbox.config import SandboxConfig
from evorun.tasks.base import DrawHelp, Grade, GradingTools, LoadedTask, Problem, Provenance, Row, TaskConfig, look_up
from evorun.tasks.benchmark import hash_content
from evorun.tasks.loading import load_rows
from evorun.tasks.reasoning_gym import generator
from evorun.tasks.reasoning_gym.families import MIN_RIGHT
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.split_benchmark import SPLITS, refuse_training_on
from evorun.tasks.text_task import TextTask

VERIFIED = "verifier_score"
# Answers that are wrong for most problems, where those to other problems are all right
_WRONG_ANYWHERE = ("0", "True", "False", "none of them", "-1")
_MAX_MISTAKES = 8
_OPEN, _CLOSE = "<answer>", "</answer>"


class Family(NamedTuple):
    """A family of problems at a difficulty."""

    family: str
    arguments: Mapping[str, Any]
    level: int | None


class ReasoningGym(TextTask):
    """Asks for the answer between tags, as the family's questions say its form."""

    name = "reasoning_gym"
    scores = (ACCURACY, Score(VERIFIED, 0, 1))
    answer_format = (
        f"Give your final answer between {_OPEN} and {_CLOSE}, in the form that the problem asks for, with nothing "
        "else between them."
    )
    draw_help = DrawHelp(
        more_validation="raise task.validation_problems",
        grade_held_out="set task.split=train to grade it",
        keys="task.dataset, task.level, task.arguments, task.split, the splits' sizes and task.limit",
    )

    def read(self, problem: Problem, text: str) -> str:
        start, end = text.rfind(_OPEN), text.rfind(_CLOSE)
        answer = text[start + len(_OPEN) : end].strip() if 0 <= start < end else ""
        if not answer:
            raise ValueError(f"no_answer: expected {_OPEN}...{_CLOSE} with an answer")
        return answer

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"{reasoning}\n{_OPEN}{answer}{_CLOSE}".strip()

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        # Without the verifier, which may accept other answers: for simulated models, whose answers are all known.
        right = response.answer is not None and response.answer == reference["answer"]
        return Grade(correct=right, scores={VERIFIED: float(right)})


class Verifier:
    """Grades by the family's verifier, in the sandbox; counts what it refuses or fails on as wrong."""

    def __init__(self, family: Family, rows: Sequence[Row]) -> None:
        self._family = family
        self._records = {row.problem.id: row.reference["record"] for row in rows}
        self._program = Program(generator.FAMILIES.read_text("utf-8"), entry="score")

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        """Grade one response. Raises DataError for an unknown problem."""
        record = look_up(self._records, problem)
        if response.answer is None:
            return Grade(correct=False, scores={VERIFIED: 0.0})
        given = (*self._family, record, response.answer)
        stdin = "\n".join(msgspec.json.encode(value).decode() for value in given)
        suite = Suite((Case(stdin, expected='[1.0, ""]'),), "json", _LIMITS)
        # All of one test is kept where it does not stop: the value too.
        (result,) = await tools.test(self._program, suite, stop_at_failure=False)
        if result.value is None:
            return Grade(correct=False, scores={VERIFIED: 0.0}, detail=f"verifier_failed: {result.verdict}")
        value, reason = msgspec.json.decode(result.value, type=tuple[float, str])
        return Grade(correct=value >= MIN_RIGHT, scores={VERIFIED: value}, detail=reason)


# Ours: SymPy simplifies an answer within seconds, and the family's data may take a second to read.
_LIMITS = Limits(cpu_seconds=20.0, memory_mib=2048)


class KnownMistakes(TextSimulator):
    """A simulated model whose mistakes are answers to other problems that the family's verifier finds wrong."""

    family: Family

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        if problem.id not in self._mistakes:
            answers = [row.answer for row in self._rows.values() if row.answer is not None]
            place = list(self._rows).index(problem.id)
            # Those after its own come first, so that problems do not share one typical mistake.
            others = dict.fromkeys(answers[place:] + answers[:place])
            given = {
                **self.family._asdict(),
                "record": self._rows[problem.id].reference["record"],
                "candidates": [text for text in (*others, *_WRONG_ANYWHERE, f"{gold} {gold}") if text != gold],
                "count": _MAX_MISTAKES,
            }
            self._mistakes[problem.id] = generator.shared().ask("find_mistakes", given)
        return self._mistakes[problem.id]


@dataclass(kw_only=True)
class ReasoningGymConfig(TaskConfig):
    """A family of Reasoning Gym, with problems by its generator and a grade by its verifier."""

    task_class = ReasoningGym
    runs_programs = True
    training_split = "train"

    dataset: str
    """The family: countdown, zebra_puzzles, knights_knaves, ..."""
    level: NonNegativeInt | None
    """The level of all attributes of the family's curriculum; null: its default difficulty."""
    arguments: dict[str, Any]
    """The family's own settings by name, which precede those of the level."""
    split: Annotated[str, OneOf(SPLITS)]
    """train | test: which problems the run works on."""
    train_problems: PositiveInt
    test_problems: PositiveInt
    validation_problems: NonNegativeInt
    """Further problems, for demonstrations."""
    limit: PositiveInt | None
    """Work on this many problems only: the first ones of the split."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: PositiveInt | None
    """Maximum characters of a candidate's text in later prompts, which show its beginning and end; null: no limit."""

    def add_to_sandbox(self, settings: SandboxConfig) -> SandboxConfig:
        distributions = [*settings.distributions, "reasoning-gym"]
        return replace(settings, distributions=distributions, preload=[*settings.preload, "reasoning_gym"])

    def load(self) -> LoadedTask:
        """Generate the problems.

        Raises ConfigError for a family or settings that do not exist, DataError without Reasoning Gym.
        """
        family = Family(self.dataset, self.arguments, self.level)
        # The same questions are skipped in a split whichever splits are used.
        counts = {
            "test": self.test_problems,
            "validation": self.validation_problems,
            "train": self.train_problems if self.split == "train" else 0,
        }
        # Reasoning Gym makes its problem i from seed + i: neighbouring seeds would share all but one problem.
        seeds = [int.from_bytes(sha256(f"{self.draw_seed} {split}".encode()).digest()[:4]) // 2 for split in counts]
        given = {**family._asdict(), "splits": list(zip(seeds, counts.values(), strict=True))}
        generated = generator.shared().ask("generate", given)
        rows = {
            split: [
                Row(
                    Problem(id=f"{self.dataset}_{split}_{n:04d}", stratum=self.dataset, data={"question": question}),
                    answer,
                    {"answer": answer, "record": record},
                )
                for n, (question, answer, record) in enumerate(part)
            ]
            for split, part in zip(counts, generated, strict=True)
        }
        selected, held_out = rows[self.split][: self.limit], rows["validation"]
        difficulty = "" if self.level is None else f" at level {self.level}"
        task = ReasoningGym(prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)

        def make_simulator(task: TextTask, rows: Sequence[Row]) -> TextSimulator:
            simulator = KnownMistakes(task, rows)
            simulator.family = family
            return simulator

        return load_rows(
            task,
            selected,
            validation=held_out,
            provenance=Provenance(
                source="generated",
                description=f"{self.dataset}{difficulty}, {self.split} split, draw_seed {self.draw_seed}",
                digest=hash_content(selected),
            ),
            grader=Verifier(family, [*selected, *held_out]),
            simulator=make_simulator,
        )

    def load_training(self) -> LoadedTask:
        """Return the whole train split. Raises ConfigError with task.split=train, and errors of `load`."""
        refuse_training_on(self.split)
        return replace(replace(self, split="train", limit=None).load(), validation=())

"""The settings of `task=verifiers`: a taskset by its id, and which of its tasks a run has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from evorun.errors import ConfigError, DataError
from evorun.fields import PositiveInt
from evorun.tasks.base import LoadedTask, Problem, Prompt, Provenance, Row
from evorun.tasks.benchmark import encode_content, hash_content
from evorun.tasks.loading import load_rows
from evorun.tasks.outside import (
    GivenPromptsConfig,
    JudgedSimulator,
    Unsupported,
    find_form,
    join_messages,
    name_call,
)
from evorun.tasks.replaying import run_apart
from evorun.tasks.text_task import TextTask
from evorun.tasks.verifiers.task import FORMS, JudgedVerifiersTask, Source, VerifiersGrader, VerifiersTask

_REASONING = "One step after another, each of them checked. " * 15
"""As long as a simulated reply's: some rewards count every word of a reply against it."""
_ANSWER = "answer"


@dataclass(kw_only=True)
class VerifiersConfig(GivenPromptsConfig):
    """A taskset of verifiers whose rewards need the reply alone, drawn into problems and held-out ones."""

    task_class: ClassVar[type[TextTask]] = VerifiersTask

    id: str | None
    """The taskset: an installed package; its code runs in this process."""
    arguments: dict[str, Any]
    """The taskset's own settings."""
    first: PositiveInt | None
    """Read only so many of its tasks; null: all."""
    answer: str | None
    """Field of a task's data with a right answer, for demonstrations and simulated replies; null: `answer`, where there
    is one."""
    right_from: float
    """A reply with at least this reward is right."""
    model_graded: bool
    """true: rewards ask judges, and the gold judge answers (gold=MODEL)."""
    stratum: str | None
    """Field of a task's data by which results are broken down."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.task_class = JudgedVerifiersTask if self.model_graded else VerifiersTask  # type: ignore[misc]

    def load(self) -> LoadedTask:
        """Load the taskset and draw. Raises ConfigError for one that evorun cannot score.

        Raises DataError where it has too few tasks.
        """
        self._require_package()
        try:
            return self._load()
        except Unsupported as error:
            raise ConfigError(f"task.id={self.id}: {error}") from error

    def _require_package(self) -> None:
        if not self.id:
            raise ConfigError("task.id: expected the id of an installed taskset of verifiers, got none")
        try:
            found = version("verifiers")
        except PackageNotFoundError:
            raise ConfigError("task=verifiers needs verifiers: pip install 'evorun[verifiers]'") from None
        if not found.startswith("0.4."):
            raise ConfigError(f"task=verifiers: expected verifiers 0.4, got {found}: pip install 'evorun[verifiers]'")

    def _load(self) -> LoadedTask:
        from evorun.tasks.verifiers.offline import Scorer, load_tasks

        tasks = load_tasks(self.id or "", self.arguments, self.first, judged=self.model_graded)
        if not tasks:
            raise DataError(f"task.id={self.id}: expected tasks, got none")
        problems, references, repeated = self._read(tasks)
        selected, validation, training = self.split(problems, self.id or "")
        source = Source(self._title, Scorer(tasks[0]), self.reply or FORMS[0], self.right_from)
        if self.reply is None and not self.model_graded:
            form = find_form(
                FORMS, lambda form: self._make_task(source._replace(form=form)), self._row, selected, references
            )
            source = source._replace(form=form)
        task = self._make_task(source)
        if self.model_graded:
            self._require_judge(task, selected[0], references)
        rows = [[self._row(task, problem, references[problem.id]) for problem in part] for part in
                (selected, validation, training)]  # fmt: skip
        left_out = f", {repeated} repeated ones left out" if repeated else ""
        return load_rows(
            task,
            rows[0],
            validation=rows[1],
            training=rows[2],
            grader=VerifiersGrader(source, task, [row for part in rows for row in part]),
            simulator=JudgedSimulator,
            provenance=Provenance(
                source="benchmark",
                description=f"{len(selected)} of {len(problems)} tasks of {self._title} by verifiers{left_out}",
                digest=hash_content([[row.problem, row.reference] for row in rows[0]]),
            ),
        )

    @property
    def _title(self) -> str:
        return name_call(self.id, self.arguments)

    def _read(self, tasks: Sequence[Any]) -> tuple[list[Problem], dict[str, Mapping[str, Any]], int]:
        """Return problems, references, and the number of tasks that repeat an earlier one's prompt."""
        from evorun.tasks.verifiers.offline import dump_data, read_prompt

        problems, references, repeated = list[Problem](), dict[str, Mapping[str, Any]](), 0
        known = set[object]()
        for task in tasks:
            reference = dump_data(task)
            for key in filter(None, (self.answer, self.stratum)):
                if key not in reference:
                    raise ConfigError(
                        f"task.id={self.id}: expected data with {key}, got {', '.join(sorted(reference))}"
                    )
            shown = [[message["role"], message["content"]] for message in read_prompt(task.data)]
            problem = Problem(
                id=str(task.data.idx),
                stratum=str(reference[self.stratum]) if self.stratum else "all",
                data={"question": join_messages(shown), "messages": shown},
            )
            if (content := encode_content(problem)) in known:
                repeated += 1
                continue
            known.add(content)
            problems.append(problem)
            references[problem.id] = reference
        return problems, references, repeated

    # --- answers ---

    def _make_task(self, source: Source) -> VerifiersTask:
        made = JudgedVerifiersTask if self.model_graded else VerifiersTask
        return made(source, prompts=self.prompts, shown_reasoning_chars=self.shown_reasoning_chars)

    def _require_judge(self, task: VerifiersTask, problem: Problem, references: Mapping[str, Any]) -> None:
        """Refuse a taskset that was said to ask a judge and does not."""
        asked = list[Prompt]()

        async def ask(prompt: Prompt) -> str | None:
            asked.append(prompt)
            return None

        reply = task.parse(
            problem, task.write(problem, str(references[problem.id].get(self.answer or _ANSWER)), _REASONING)
        )
        run_apart(task.reward(reply, references[problem.id], ask))
        if not asked:
            raise ConfigError("task.model_graded=true: expected rewards that ask a judge, got some that ask none")

    def _row(self, task: VerifiersTask, problem: Problem, reference: Mapping[str, Any]) -> Row:
        """Return the row; without an answer where the data name none, or no reply with it is right."""
        named = reference.get(self.answer or _ANSWER)
        if self.model_graded:
            return Row(problem, None if named is None else str(named).strip() or None, reference)
        if named is None or not (answer := str(named).strip()):
            answer, reply = None, task.parse(problem, _REASONING)
        else:
            reply = task.parse(problem, task.write(problem, answer, _REASONING))
        # Asked of every problem, so that a reward that asks a model is refused before any model loads.
        grade = task.score(problem, reply, reference)
        return Row(problem, answer if grade.correct else None, reference)

"""The prompts of a meta reward model and the parsing of its replies (MPO, section 2.3 and appendix I)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from evorun.methods.mpo.refinement_settings import RefinementSettings
from evorun.models.base import Message, Reply
from evorun.rollouts.episodes import Episode, make_blank_episode
from evorun.tasks.base import Demonstration, Prompt
from evorun.tasks.capabilities import SupportsRubrics
from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import replace_lone_surrogates
from evorun.tasks.prompt_files import PromptFiles
from evorun.tasks.rubric_json import rubric_schema
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.rubrics import Rubric, read_rubric
from evorun.tasks.tags import escape_tags
from evorun.tasks.thinking import without_thinking

FOLDER = Path(__file__).parent / "prompts"
MAX_LENGTH_RATIO = 2
"""Maximum words of a rubric, as a multiple of the words asked for (ours): every later score pays for its length."""


class Sample(NamedTuple):
    """A scored episode and the rubric that scored it."""

    episode: Episode
    rubric: Rubric


class MetaPrompts:
    """The prompts of the three stages, from files."""

    def __init__(
        self, task: SupportsRubrics, settings: RefinementSettings, demonstrations: Mapping[str, Demonstration]
    ) -> None:
        """demonstrations: reference solutions by problem id, where prompts may show them.

        Raises ConfigError naming an unusable file of the user.
        """
        self._task = task
        self._settings = settings
        self._demonstrations = demonstrations
        self._files = PromptFiles([FOLDER], settings.meta_prompts, key="method.meta_prompts")
        if settings.meta_prompts is not None:
            self._try_prompts()

    def analysis(self, samples: Sequence[Sample]) -> Prompt:
        """Ask whether samples deserve their scores, and what the rubric lacks (meta-analysis)."""
        options = {"words": self._settings.analysis_words, "own_score": self._settings.flag_above is not None}
        shown = {"sample": self._render_samples(samples), "maximum": number(samples[-1].rubric.maximum)}
        return self._ask("analysis", several=len(samples) > 1, **options, **shown)

    def refinement(self, samples: Sequence[Sample], analysis: str) -> Prompt:
        """Ask for a better rubric (meta-refinement). analysis: of the samples; "" without one (appendix F)."""
        form = self._form(self._settings.refinement_words)
        shown = {"sample": self._render_samples(samples), "analysis": escape_tags(analysis)}
        return self._as_json(self._ask("refinement", several=len(samples) > 1, rubric_format=form, **shown))

    def merging(self, rubric: Rubric, refinements: Sequence[Rubric]) -> Prompt:
        """Ask for one rubric that merges the refinements and replaces the present one (meta-merging)."""
        form = self._form(self._settings.merging_words)
        proposals = "\n\n".join(
            f"=== Proposal {at} ===\n{proposal.text_for_scorers}" for at, proposal in enumerate(refinements, 1)
        )
        shown = {"task_description": self._task.task_description(), "rubric": rubric.text_for_scorers}
        shown |= {"maximum": number(rubric.maximum), "proposals": proposals}
        return self._as_json(self._ask("merging", rubric_format=form, **shown))

    def item(self, number: int, count: int) -> Prompt:
        """Ask for criterion `number` of `count`, in a conversation that `refinement` or `merging` began."""
        return self._ask("item", number=number, count=count, words=self._settings.item_words)

    def with_fault(self, prompt: Prompt, fault: str) -> Prompt:
        """Return the prompt that asks again after an unusable reply. fault: what was wrong with the reply."""
        *before, last = prompt.messages
        # The fault may quote the model.
        text = f"{last['content']}\n\n{self._files.render('retry', fault=escape_tags(fault))}"
        return replace(prompt, messages=(*before, Message(role="user", content=text)))

    def _try_prompts(self) -> None:
        """Render every prompt once, so that a user's bad file fails now, not hours later at the first merging."""
        rubric = Rubric("rubric", 1.0)
        sample = Sample(make_blank_episode({"raw": 1.0, "normalised": 1.0, "maximum": 1.0}), rubric)
        self.analysis([sample, sample])
        self.refinement([sample, sample], "analysis")
        self.merging(rubric, [rubric])
        self.with_fault(self.item(1, 1), "fault")

    def _form(self, words: int) -> str:
        """Return the format of a rubric, or the request for its number of criteria."""
        if self._settings.refine_by == "item":
            return self._files.render("count", most=self._settings.most_items)
        if self._settings.meta_json:
            return self._files.render("rubric_json", words=words, most=self._settings.most_items)
        return self._files.render("rubric_format", words=words)

    def _as_json(self, prompt: Prompt) -> Prompt:
        schema = rubric_schema(self._settings.most_items) if self._settings.meta_json else None
        return replace(prompt, json_schema=schema)

    def _render_samples(self, samples: Sequence[Sample]) -> str:
        """Return the beginning of every prompt: the task, the rubric, and the episodes scored by it."""
        task, cases = self._task.task_description(), [self._case(sample) for sample in samples]
        return self._files.render("sample", task_description=task, cases=cases)

    def _case(self, sample: Sample) -> Mapping[str, str]:
        episode, rubric = sample
        demonstration = self._demonstrations.get(episode.asked.problem.id)
        reference = "" if demonstration is None else demonstration.reference
        prompt = "\n\n".join(message["content"] for message in episode.asked.prompt.messages)
        # For a single turn, show what the reward model saw: the reply without its thinking.
        response = episode.response.text if len(episode.turns) == 1 else episode.transcript
        return {
            "rubric": rubric.text_for_scorers,
            "maximum": number(rubric.maximum),
            "prompt": self._excerpt(prompt),
            "reference": self._excerpt(reference),
            "response": self._excerpt(response),
            "rationale": self._excerpt(episode.reward.rationale),
            "score": number(episode.reward.parts["raw"]),
            "out_of": number(episode.reward.parts["maximum"]),
        }

    def _excerpt(self, text: str) -> str:
        # A policy's text must not end its section of the prompt.
        return escape_tags(excerpt(text, self._settings.sample_chars))

    def _ask(self, file: str, **values: Any) -> Prompt:
        text = self._files.render(file, **values)
        hints: dict[str, Any] = {"role": file}
        if self._settings.refine_by == "item":
            hints["criterion"] = 0
        return Prompt(messages=(Message(role="user", content=text),), hints=hints)


def number(value: float) -> str:
    """Return a score as prompts show it: `5`, `2.5`."""
    return f"{value:.4g}"


def read_analysis(reply: Reply) -> str:
    """Return the analysis in a reply. Raises ValueError("kind: what is wrong") where there is none."""
    text = answer_text(reply)
    if not text:
        raise ValueError("empty: expected an analysis, got nothing but thinking")
    return text


def read_own_score(analysis: str, maximum: float) -> float | None:
    """Return the points that an analysis gives a response; None where none can be read."""
    try:
        return read_scores(analysis, Rubric("", maximum)).total
    except ValueError:
        return None


def read_refinement(reply: Reply, words: int, wrap: Callable[[str], str] = str) -> Rubric:
    """Return the rubric in a reply. words: the maximum that was asked for. wrap: adds tags that the reply lacks.

    Raises ValueError("kind: what is wrong") for a reply without a rubric, or with one of more than `MAX_LENGTH_RATIO`
    times `words`.
    """
    text = answer_text(reply)
    if reply.completions[0].truncated:
        raise ValueError("cut_off: expected a whole rubric, the reply ran out of tokens")
    rubric = read_rubric(wrap(text))
    if len(rubric.text.split()) > MAX_LENGTH_RATIO * words:
        count = len(rubric.text.split())
        raise ValueError(f"too_long: expected at most {MAX_LENGTH_RATIO} times {words} words, got {count}")
    return rubric


def answer_text(reply: Reply) -> str:
    """Return a reply's text without thinking. Raises ValueError for a refused request."""
    if reply.error is not None:
        raise ValueError(f"rejected: {reply.error}")
    return replace_lone_surrogates(without_thinking(reply.completions[0].text)).strip()


def read_count(text: str, maximum: int) -> int:
    """Return the first number in a text, at most `maximum`. Raises ValueError where there is none above 0."""
    words = (word.strip(".,:;*()<>") for word in text.split())
    number = next((word for word in words if word.isascii() and word.isdecimal()), "")
    if not number.strip("0"):
        raise ValueError("count: expected the number of criteria, got none")
    return maximum if len(number) > 9 else min(int(number), maximum)


def read_item(reply: Reply, words: int) -> str:
    """Return a criterion between its tags."""

    def wrap(text: str) -> str:
        return f"<rubric>\n{text if '<item>' in text else f'<item>{text}</item>'}\n</rubric>"

    rubric = read_refinement(reply, words, wrap)
    if len(rubric.items) > 1:
        raise ValueError(f"several: expected one criterion, got {len(rubric.items)}")
    return f"<item>\n{rubric.items[0].text}\n</item>"

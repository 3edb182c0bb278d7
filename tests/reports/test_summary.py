import io
import json
from pathlib import Path

import pytest
from comparison_fixture import edit_manifest, write_method

from evorun.reports import print_summary, write_report
from evorun.runs.results import write_results
from evorun.runs.scores import ACCURACY
from evorun.runs.terminal import Terminal
from run_fixture import HOSTILE, RunSpec, write_run

pytestmark = pytest.mark.usefixtures("without_figures")


def _summary(run: Path) -> str:
    output = io.StringIO()
    print_summary(run, Terminal(file=output, width=110, force_terminal=True, color_system=None))
    return output.getvalue()


def test_the_summary_shows_strata_cost_and_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_report(run)
    summary = _summary(run)
    for expected in ("Sample set", "COLLEGE", "HIGH", "MIDDLE", "generate", "judge", "total", str(run / "report.html")):
        assert expected in summary
    (row,) = [line for line in summary.splitlines() if line.split()[:1] == ["all"]]
    assert row.split()[-1] == "9"


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    spec = RunSpec(finished=False, manifest={"status": "interrupted"})
    summary = _summary(write_run(tmp_path / "run", spec))
    assert "Unfinished" in summary
    assert "all so far" in summary
    assert "none yet: evorun report" in summary


def test_an_empty_run_has_a_summary(tmp_path: Path) -> None:
    spec = RunSpec(problems=0, finished=False, manifest={"status": "failed", "error": "no server"})
    assert "Error: no server" in _summary(write_run(tmp_path / "run", spec))


def test_hostile_texts_cannot_steer_the_terminal(tmp_path: Path) -> None:
    manifest = {"error": "".join(HOSTILE), "method": HOSTILE[6], "task": HOSTILE[7]}
    summary = _summary(write_run(tmp_path / "run", RunSpec(strata=HOSTILE, problems=12, manifest=manifest)))
    assert not {"\x1b[31m", "\x07", "\x00", "\u202e"} & {
        summary[i : i + n] for n in (1, 5) for i in range(len(summary))
    }
    assert "[red]markup[/red] [/]" in summary


def test_judge_and_losses_are_shares_in_words(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    results = json.loads((run / "results.json").read_text())
    rows = [" ".join(line.split()) for line in _summary(run).splitlines()]
    counts = results["counts"]
    expected = {
        "decisive duels: a winner (of two orders, in both)": results["metrics"]["decisive_rate"],
        "for the one shown first (unbiased: 50 %)": results["metrics"]["position_a_rate"],
        "unparsable texts": {"value": counts["unparsable_texts"] / 180, "n": 180},
        "lost candidates (unparsable or refused)": {"value": counts["unparsed_candidates"] / 180, "n": 180},
    }
    for name, metric in expected.items():
        (row,) = [row for row in rows if row.startswith(name)]
        assert row.startswith(f"{name} {100 * metric['value']:.1f} % ")
        assert row.endswith(f" {metric['n']}")
    # over texts there is no interval beside those over problems
    (lost,) = [row for row in rows if row.startswith("lost candidates")]
    assert lost.endswith(" % \u2013 180")
    assert "Intervals are over problems, whatever n counts: " in " ".join(rows)


def test_duels_in_one_order_are_decisive_by_their_one_verdict(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(finished=False))
    duels = [json.loads(line) for line in (run / "comparisons.jsonl").open()]
    for duel in duels:
        verdict = duel["verdicts"][0]
        duel |= {"verdicts": [verdict], "outcome": {"A": "first", "B": "second"}.get(verdict)}
    (run / "comparisons.jsonl").write_text("".join(json.dumps(duel) + "\n" for duel in duels))
    (row,) = [" ".join(line.split()) for line in _summary(run).splitlines() if line.strip().startswith("decisive")]
    share = sum(duel["outcome"] is not None for duel in duels) / len(duels)
    assert row.startswith(f"decisive duels: a winner (of two orders, in both) {100 * share:.1f} % ")
    assert row.endswith(f" {len(duels)}")


def test_texts_that_an_engine_let_go_on_are_a_loss_of_their_own(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert "beyond max_tokens" not in _summary(run)
    results = json.loads((run / "results.json").read_text())
    results["counts"]["overlong_texts"] = 9
    (run / "results.json").write_text(json.dumps(results))
    assert " ".join(_summary(run).split()).count("texts cut beyond max_tokens 5.0 %") == 1


def test_what_a_method_saved_is_a_share_of_what_it_would_have_cost(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert "calls saved" not in _summary(run)
    results = json.loads((run / "results.json").read_text())
    spent = [usage for role, usage in results["cost"].items() if role != "total"]
    results["counts"]["saved_calls"] = sum(usage["calls"] for usage in spent) // 3
    results["counts"]["saved_tokens"] = sum(usage["completion_tokens"] for usage in spent)
    (run / "results.json").write_text(json.dumps(results))
    shown = " ".join(_summary(run).split())
    assert "calls saved 25.0 %" in shown
    assert "completion tokens saved (estimate) 50.0 %" in shown


def test_attempts_without_an_answer_are_shown_by_cause(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert "without an answer" not in _summary(run)
    results = json.loads((run / "results.json").read_text())
    results["wasted"] = {
        "http_429": {"attempts": 1234, "tokens": 0},
        "timed_out": {"attempts": 7, "tokens": 5600},
        "<b>\x1b[31m": {"attempts": 1, "tokens": 1},
    }
    (run / "results.json").write_text(json.dumps(results))
    rows = [" ".join(line.split()) for line in _summary(run).splitlines()]
    assert "HTTP 429 1,234 0" in rows
    assert "no complete answer in time 7 5,600" in rows
    page = write_report(run).read_text()
    assert '<td>HTTP 429</td><td class="num">1,234</td><td class="num">0</td>' in page
    assert "<b>" not in page


def test_a_metric_without_words_keeps_its_name_and_scale(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    results = json.loads((run / "results.json").read_text())
    results["metrics"]["tour_length"] = {"value": 1234.4, "ci95": [1200.0, 1260.0], "n": 9}
    (run / "results.json").write_text(json.dumps(results))
    assert "tour_length 1,234 1,200 to 1,260 9" in [" ".join(line.split()) for line in _summary(run).splitlines()]


def test_the_report_is_named_as_a_user_would_type_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "a run")
    monkeypatch.chdir(tmp_path)
    assert "Report: none yet: evorun report 'a run'\n" in _summary(run)
    write_report(run)
    assert "Report: a run/report.html\n" in _summary(run)


def test_a_method_of_one_step_without_duels_or_beliefs_has_a_summary_and_a_page(tmp_path: Path) -> None:
    run = write_method(tmp_path / "run", [True, False, True], method="few_shot", calls={"demonstrate": 2, "answer": 1})
    assert "<h2>Judge</h2>" not in write_report(run).read_text()
    rows = [" ".join(line.split()) for line in _summary(run).splitlines()]
    assert "search" in rows
    assert "parsable texts 100.0 % 43.9 to 100.0 % 9" in rows  # three texts of each of three problems
    assert not [row for row in rows if "verdict" in row or "judge" in row]
    assert [row.split()[0] for row in rows if row.startswith(("answer", "demonstrate", "total"))] == [
        "answer",
        "demonstrate",
        "total",
    ]


def test_what_training_has_changed_is_shown(tmp_path: Path) -> None:
    run = write_method(tmp_path / "run", [True, False], method="grpo", calls={"rollout": 8, "evaluate": 3})
    figures = {"reward": 0.5, "grad_norm": 0.0, "zero_gradient": 1.0, "edits_add": 2, "edits_refused_unknown_id": 1}
    step = {"step": 5, "figures": figures, "calls": 9, "tokens": 90}
    good = {**step, "step": 4, "figures": {"reward": 0.5, "rejected_share": 0.25, "many_rejected": 1.0}}
    (run / "training.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (good, step, step)))
    shared = {"name": "accuracy", "ci95": None, "n": 40, "calls": 1, "tokens": 1}
    points = [{**shared, "step": step, "value": value} for step, value in ((0, 0.25), (3, 0.6), (5, 0.75))]
    (run / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    rows = [" ".join(line.split()) for line in _summary(run).splitlines()]
    assert rows[rows.index("figure before after steps n") + 2] == "accuracy 25.0 % 75.0 % 5 40"
    assert {"applied add 4", "refused unknown id 2", "gradient norm (before clipping) \u2013 0"} <= set(
        rows
    )  # edits over all steps
    assert not [row for row in rows if row.startswith("edits add")]
    assert any(
        row.startswith("Divergence? In 2 of 3 training steps (the first: 5) the gradient was zero") for row in rows
    )
    refusals = "Refused requests: In 1 of 3 training steps (the first: 4) more than a tenth of the episodes ended in"
    assert any(row.startswith(refusals) for row in rows)


@pytest.mark.parametrize("updated", [0, 1])
def test_training_steps_without_an_update_are_counted_on_top(updated: int, tmp_path: Path) -> None:
    run = write_method(tmp_path / "run", [True, False], method="grpo", calls={"rollout": 8, "evaluate": 3})
    idle = {"step": 7, "figures": {"reward": 0.0, "no_update": 1.0, "truncated": 0.5}, "calls": 9, "tokens": 90}
    learned = {**idle, "step": 6, "figures": {"reward": 0.5, "truncated": 0.0}}
    (run / "training.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (*[learned] * updated, idle, idle)))
    page, summary = write_report(run).read_text(), " ".join(_summary(run).split())
    said = "No update: 2 of 3 training steps (the first: 7)" if updated else "Not trained: none of 2 training steps"
    assert said in summary
    assert said in page
    assert "figure first step last step" in summary
    assert "no update" not in summary
    assert "test problems, before and after training" in summary
    edit_manifest(run, config={"task": {"split": "training"}}, files={})
    assert "problems of the training split, before and after training" in " ".join(_summary(run).split())
    cut = "Cut at max_tokens: 33.3 %" if updated else "Cut at max_tokens: 50.0 %"
    assert cut in summary
    assert cut in page


@pytest.mark.parametrize(("cut", "warned"), [(1, True), (0, False)])
def test_many_texts_cut_at_max_tokens_are_named_on_top(cut: int, warned: bool, tmp_path: Path) -> None:
    run = write_method(tmp_path / "run", [True, False], method="cot", calls={"answer": 2})
    results = json.loads((run / "results.json").read_text())
    results["counts"] |= {"texts": 10, "truncated_texts": cut}
    (run / "results.json").write_text(json.dumps(results))
    assert ("Cut at max_tokens: 10.0 % of the 10 texts" in " ".join(_summary(run).split())) == warned


def test_verdicts_are_counted_as_they_were_given_and_by_whatever_role(tmp_path: Path) -> None:
    run = write_method(
        tmp_path / "run", [True, False], method="feedback_descent", steps=5, calls={"write": 1, "weigh": 1}
    )
    record = {"step": 1, "first": "a", "second": "b", "outcome": "first", "reasons": ["r"]}
    verdicts = ["A", "invalid", "A"]
    duels = [{**record, "problem": "p0", "verdicts": [verdict]} for verdict in verdicts]
    (run / "comparisons.jsonl").write_text("".join(json.dumps(duel) + "\n" for duel in duels))
    write_results(run, (ACCURACY,), {})
    rows = [" ".join(line.split()) for line in _summary(run).splitlines()]
    assert "unparsable verdicts 33.3 % \u2013 3" in rows  # of one problem: no others to draw
    assert "3 verdicts" in write_report(run).read_text()


def test_scores_are_shown_by_stratum_and_overall(tmp_path: Path) -> None:
    scores = {"penalised_score": [100.0, 20.0, 60.0, 40.0], "missing_cities": [0.0, 3.0, 1.0, 0.0]}
    run = write_method(tmp_path / "run", [False] * 4, scores=scores)
    rows = [" ".join(line.replace("\u2013", "none").split()) for line in _summary(run).splitlines()]
    assert "college penalised score 70.0 40.0 to 100 2" in rows  # the first and the fourth problem
    assert "high penalised score 20.0 none 1" in rows
    assert "There is no interval where all problems have the same score." in rows
    (overall,) = [row for row in rows if row.startswith("all penalised score 55.0 ")]
    assert overall.endswith(" 4")
    assert [row for row in rows if row.startswith("missing cities 1.00 ")]
    assert not [row for row in rows if "penalised_score" in row]  # not among the diagnostics again


def test_an_unfinished_run_has_scores_so_far(tmp_path: Path) -> None:
    run = write_method(tmp_path / "run", [False] * 4, ended=1, scores={"penalised_score": [80.0, 20.0, 60.0, 40.0]})
    rows = [" ".join(line.split()) for line in _summary(run).splitlines()]
    assert "all so far penalised score 80.0 \u2013 1" in rows


def test_a_run_of_a_task_without_scores_has_no_table_of_them(tmp_path: Path) -> None:
    assert "scores" not in _summary(write_method(tmp_path / "run", [True, False]))

"""The verbs beside a run, each with its function and its help, and the exit codes of the command line."""

from typing import NamedTuple

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def exit_code(status: str) -> int:
    """Return the exit code for the status of a run."""
    return {"completed": 0, "interrupted": EXIT_INTERRUPTED}.get(status, EXIT_FAILED)


class Interrupted(KeyboardInterrupt):
    """An interrupt that has been reported to the user."""


class Usage(NamedTuple):
    """A verb: what carries it out, and its help."""

    function: str
    """`module:name` within evorun.cli; takes the arguments after the verb and the console, and returns the exit code
    unless it is 0."""
    short: str
    """The verb in the list of all, like `summary`."""
    summary: str
    synopsis: str
    about: str


USAGES = {
    "status": Usage(
        "status:print_status",
        "evorun status [DIR ...] [--watch|--json]",
        "show how far runs and sweeps are",
        "evorun status [DIR ...] [--watch|--json]",
        "Shows how far runs and the jobs of sweeps are: state, progress, primary score with its 95 % interval, calls,\n"
        "tokens, GPU seconds, errors. DIR is a run, a sweep, or a folder of many; by default the folder outputs.\n"
        "  waiting      it has not begun\n"
        "  starting     a process works on it, which loads models or data, or is at its first step\n"
        "  running      a process works on it\n"
        "  reporting    it has ended well; its process writes the report\n"
        "  done, failed, interrupted\n"
        "  lost         its manifest says that it runs, but no process works on it: it was killed\n"
        "--watch looks again every two seconds, until Ctrl-C. --json prints one JSON document. Neither disturbs a job.",
    ),
    "plan": Usage(
        "planning:plan",
        "evorun plan [-m] KEY=VALUE ...",
        "say what runs will cost and could show, before they are paid for",
        "evorun plan STUDY.yaml|[-m] KEY=VALUE ... [--gpus=COUNTxGIB] [--max-price=DOLLARS] [--json]",
        "Says what a study, or a run, a sweep or an experiment in the words that begin it, will cost: calls, tokens,\n"
        "price, hours at the speed of earlier runs below outputs, and memory; and the smallest difference that it\n"
        "could show. Calls come from a formula, or from a small run on simulated models. Nothing is paid for.\n"
        "It also says which GPUs engines and trainer get: of this machine, or --gpus=8x80 (8 of 80 GiB; 2x8x80: two\n"
        "nodes of them). What cannot fit is refused.\n"
        "--max-price refuses what costs more, in tokens and GPUs together, here and before any run or sweep:\n"
        "  evorun ... --max-price=20\n"
        "  evorun plan experiment=lyria/table1 model=gpt_4o_mini engine=openai",
    ),
    "resume": Usage(
        "verbs:resume",
        "evorun resume RUN_DIR|SWEEP_DIR [KEY=VALUE ...]",
        "continue a run or a sweep that was stopped",
        "evorun resume RUN_DIR|SWEEP_DIR [--trust] [--redo-calls] [KEY=VALUE ...]",
        "Continues a stopped run, tournament or sweep. Keys that only decide how it executes may change: engine.*,\n"
        "judge_engine.* (and that of any other role), teacher_engine.*, sandbox.*, run.*, evorun.* and some of\n"
        "training.*; keys that decide its results may not.\n"
        "Of a sweep, the jobs that are not done go on, by the launcher of its start or another one, as\n"
        "hydra/launcher=local hydra.launcher.jobs=4.\n"
        "Resuming a folder runs what it says. If somebody else started the run, evorun first shows its settings and\n"
        "asks you; --trust agrees beforehand.\n"
        "evorun refuses a run without its journal.sqlite; --redo-calls makes, and pays for, all its calls again.",
    ),
    "replay": Usage(
        "branching:replay",
        "evorun replay RUN_DIR|SWEEP_DIR [output=FOLDER]",
        "repeat finished runs from their journals, without their models",
        "evorun replay RUN_DIR|SWEEP_DIR [output=FOLDER] [KEY=VALUE ...]",
        "Carries the run out once more into a new folder, with every answer from its journal, and says whether the\n"
        "records are the same to the byte. Needs no model, no sandbox, no GPU and no key. KEY=VALUE: run.*, evorun.*.\n"
        "Of a sweep, each finished job is replayed, into a folder of its name in FOLDER (by default\n"
        "SWEEP_DIR_replayed). After a change of a grader's code, evorun report FOLDER compares the methods by it.",
    ),
    "extend": Usage(
        "branching:extend",
        "evorun extend RUN_DIR|SWEEP_DIR KEY=VALUE ...",
        "continue finished runs with more steps or budget, paying for what is new only",
        "evorun extend RUN_DIR|SWEEP_DIR KEY=VALUE ... [output=FOLDER] [--trust]",
        "Continues a finished run, in a new folder, with more steps, budget or problems (method.*, budget.*, task.*).\n"
        "Its recorded calls answer again; only new ones are made. A change that would alter what is recorded is\n"
        "refused before anything contradicts it. A run that trains goes on from its last checkpoint, and needs a\n"
        "learning rate that does not depend on the number of steps. The extended run stays as it is.\n"
        "Of a sweep, each finished job is extended. New values of seed, method, task, model or judge add jobs to the\n"
        "sweep, in its own folder: evorun extend SWEEP_DIR seed=0,1,2,3,4\n"
        "  evorun extend RUN_DIR method.generations=30",
    ),
    "fork": Usage(
        "branching:fork",
        "evorun fork RUN_DIR --at step=N KEY=VALUE ...",
        "begin a run with other settings that shares the first steps of another",
        "evorun fork RUN_DIR --at step=N [KEY=VALUE ...] [output=FOLDER] [--trust]",
        "Begins a run, in a new folder, that shares all calls of a recorded run before step N and then goes its own\n"
        "way: with other settings (method.*, model.*, judge.*, task.*, budget.*), at the price of the steps from N\n"
        "on. Another model or sampling counts from step N on. A setting that changes the prompts of an earlier step,\n"
        "or leaves calls of it out, is refused. A run that trains goes on from its checkpoint before step N, with\n"
        "other settings of training, too (training.*).\n"
        "  evorun fork RUN_DIR --at step=5 judge=oracle",
    ),
    "study": Usage(
        "stated_study:start_study",
        "evorun study FILE.yaml",
        "start the sweep that a study file states, and record the file",
        "evorun study FILE.yaml [--max-price=DOLLARS] [hydra/launcher=LAUNCHER] [KEY=VALUE ...]",
        "Starts the sweep that a study file states: question, methods, control, task, score, budget, seeds,\n"
        "smallest_effect, stopping_rule and settings. The sweep's folder and each run record the file, its digest and\n"
        "the time before the first job. evorun report SWEEP_DIR then says whether the runs kept to the file, and\n"
        "answers the question at the smallest effect of interest.\n"
        "KEY=VALUE: hydra.*, and how runs are executed: engine.*, sandbox.*, run.*, evorun.*, tracker.*.",
    ),
    "report": Usage(
        "verbs:report",
        "evorun report RUN_DIR... [--against=RUN_DIR|NAME|all]",
        "print tables, write report.html, compare several runs",
        "evorun report RUN_DIR... [--problem=ID ...] [--against=RUN_DIR|NAME|all] [--score=NAME] [--name=OLD=NEW ...] "
        "[--output=FILE.html] [--overwrite] [--export=FOLDER] [--width=INCHES] [--json]",
        "Prints the tables of a run or tournament and writes RUN_DIR/report.html. A run's shows the problems named\n"
        "by --problem, whose best candidates are printed too, or a selection. Several runs, or a sweep's folder, also\n"
        "get a page that compares them: --output, by default comparison.html in their common folder. Each method is\n"
        "compared with that of --against, by default the one that most runs can be paired with, the best of several;\n"
        "--against=all compares every two methods. Pairs have the same task, model and seed. --score names the score\n"
        "that ranks them and is tested, by default the task's primary one. --export also writes figures (SVG, PDF,\n"
        "PNG) and tables (CSV). --width draws these figures for a paper's column or page of so many inches, without\n"
        "captions, which are in captions.csv. --name gives a row or method another name in tables and figures, which\n"
        "--against may name.\n"
        "--output and --export must lie outside run directories; --overwrite replaces existing files. The default\n"
        "page is also replaced without it, but only where the new one holds all runs of the old one. --json prints\n"
        "the figures as a document.",
    ),
    "view": Usage(
        "view:view_runs",
        "evorun view [DIR ...]",
        "show many runs on one local page, live",
        "evorun view [DIR ...] [--port=N] [--no-browser]",
        "Serves one page over the runs and sweeps in DIR, by default the folder outputs, until Ctrl-C. There you\n"
        "filter, sort and group them by any key, open a run's report, compare several, and follow those that go on.\n"
        "It writes nothing. The page is served to this machine only, under an address with a random token; nobody\n"
        "without it gets an answer. On a desktop's terminal, a web browser opens; --no-browser leaves that to you.\n"
        "--port=N: the port, by default any that is free. From another machine: ssh -L N:localhost:N HOST",
    ),
    "grade": Usage(
        "grading:grade_file",
        "evorun grade task=TASK responses=FILE.jsonl",
        "grade given responses; needs no model",
        "evorun grade task=TASK responses=FILE.jsonl|- [output=FILE.jsonl] [overwrite=true] [task.KEY=VALUE ...] "
        "[--json]",
        'Grades given responses, one per line as {"id": ..., "response": ...} and any number per problem, with the\n'
        "task's own parser and grader. responses=- reads standard input. Needs no model. Writes output=, by default\n"
        "FILE.graded.jsonl, outside run directories; overwrite=true replaces an existing file. --json prints\n"
        "the summary as a document.",
    ),
    "calibrate": Usage(
        "calibrating:calibrate_run",
        "evorun calibrate RUN_DIR [output=FILE.yaml]",
        "fit a simulated model to a recorded run",
        "evorun calibrate RUN_DIR|REJUDGING [output=FOLDER/engine/NAME.yaml] [overwrite=true]",
        "Estimates, from a run's responses and duels, the settings of a simulated model like its own: the skill per\n"
        "problem, the typical mistake, the gain and harm of responses in view, the judge's skill, position bias, ties\n"
        "and persistence, each with its n and a 95 % interval. Leaves out what the run cannot tell. The folder of a\n"
        "rejudging (RUN_DIR/rejudge/DIGEST) stands for its run with that judge's verdicts. output= writes an\n"
        "engine for simulated runs, outside run directories; overwrite=true replaces an existing file. To use it:\n"
        "  evorun --config-dir FOLDER engine=NAME method=... task=...",
    ),
    "traces": Usage(
        "exporting:export_traces",
        "evorun traces RUN_DIR... kind=KIND output=FILE",
        "write fine-tuning data from recorded runs",
        "evorun traces RUN_DIR... kind=laft|dpft|dpft_full|dpft_top output=FILE.jsonl [top=0.2] [parsed_only=true] "
        "[overwrite=true]",
        "Writes fine-tuning data in chat format from completed runs, and FILE.counts.json with the counts of kept and\n"
        "dropped responses.\n"
        "  laft       lyria runs: the initial populations, and the children that are fitter than all their parents\n"
        "  dpft       zero_shot runs: one answer per question\n"
        "  dpft_full  zero_shot and best_of_n runs: all answers\n"
        "  dpft_top   the same runs: each task's top share (top=0.2) by penalised score\n"
        "Responses that no model wrote, refused requests, truncated texts and duplicates are always dropped;\n"
        "parsed_only=true also drops texts without a readable answer.",
    ),
    "export": Usage(
        "export:export_runs",
        "evorun export RUN_DIR... format=FORMAT output=PATH",
        "write runs for other programs, papers and readers",
        "evorun export RUN_DIR... format=archive|csv|hf_eval_results|inspect|latex|model output=PATH [paths=keep] "
        "[sign=KEY] [dataset=ORG/NAME] [task_id=NAME] [source=URL] [against=RUN_DIR|NAME|all] [score=NAME] "
        "[names=OLD=NEW;...] "
        "[tables=NAME,...] [columns=NAME,...] [overwrite=true], or\n"
        "       evorun export task=NAME [task.KEY=VALUE ...] format=verifiers output=FOLDER/NAME [overwrite=true]",
        "Writes what run directories hold. A folder stands for its runs and sweeps.\n"
        "  archive          FILE.zip: completed runs, to replay without their models; no keys, hosts or paths of this\n"
        "                   machine (paths=keep: those in journals and records stay), with SHA256SUMS;\n"
        "                   sign=~/.ssh/id_ed25519 signs it with an SSH key\n"
        "  csv              FOLDER: all records, a file for each kind, with a column for the run\n"
        "  hf_eval_results  FILE.yaml: a run's score for .eval_results/ of a model on the Hub, where dataset= and\n"
        "                   task_id= name the benchmark; source= is a URL of its traces or paper\n"
        "  inspect          FILE.eval: a run as a log of Inspect, for its viewer and data frames; needs inspect_ai\n"
        "  latex            FILE.tex: all tables of the comparison, with captions, for the package booktabs; against=\n"
        "                   and score= as --against and --score of evorun report, names= as --name, with ; between;\n"
        "                   tables=arms,pairs and columns=accuracy+interval,calls choose, + for one cell\n"
        "  model            FOLDER: a run's model with the adapter that the run trained merged into its weights\n"
        "format=verifiers writes a task in place of runs: a package with a taskset whose problems and rewards are the\n"
        "task's; FOLDER/NAME is its folder, named like the package.",
    ),
    "tournament": Usage(
        "tournament:tournament",
        "evorun tournament RUN_DIR... judge=MODEL",
        "rate runs by a judge's pairwise verdicts, or matches=FILE",
        "evorun tournament RUN_DIR... judge=MODEL [judge_engine=ENGINE] [KEY=VALUE ...] [--trust], or\n"
        "       evorun tournament matches=FILE.jsonl|- [by=KEY] [k=4] [initial=1000] [output=FILE.json] "
        "[overwrite=true]",
        "Has a judge compare the final responses of completed runs of one task, in random pairs on random common\n"
        "prompts, and rates the runs: Elo over repetitions (mean, sd), and Bradley-Terry with 95 % intervals, also at\n"
        "equal response length.\n"
        "  matches_per_repetition=2000  repetitions=5  k=4  initial=1000  seed=0  resamples=1000  judge_temperature=0\n"
        "  exclude=model=random: leaves out runs with any of these settings, KEY=VALUE,...; none leaves out no run\n"
        "  judge_max_tokens=N  budget.calls=N  budget.tokens=N  judge.KEY=VALUE  judge_engine.KEY=VALUE\n"
        "  folder=FOLDER: of the tournament (default: outputs/tournaments/TIME); evorun resume FOLDER continues a\n"
        "  stopped one, the same command with a larger budget or more repetitions extends it; neither repeats a call\n"
        "  output=FILE.json: a copy of the results; overwrite=true replaces an existing file\n"
        'matches=FILE: rates matches played elsewhere, one per line as {"a": ..., "b": ..., "winner": ...}, in the\n'
        "order given; winner: the name of a or b, null for a tie. Needs no model. by=KEY: each value of this further\n"
        "key of the lines is a separate repetition.",
    ),
    "rescore": Usage(
        "studies:rescore",
        "evorun rescore RUN_DIR|SWEEP_DIR",
        "score a run's responses by each of its rubrics",
        "evorun rescore RUN_DIR|SWEEP_DIR [--every] [--trust] [answers=N] [KEY=VALUE ...]",
        "Scores the responses of a completed run's last evaluation (--every: of each) by each of the run's rubrics,\n"
        "with its reward model and in the same calls as training (method.scoring), and prints the mean share of the\n"
        "points: how strict the rubrics have become. Of a sweep, each of its runs with rubrics.\n"
        "answers=N: of at most N problems, drawn at random. KEY=VALUE, --trust: as for evorun resume.",
    ),
    "rejudge": Usage(
        "rejudging:rejudge",
        "evorun rejudge RUN_DIR|SWEEP_DIR [judge=MODEL|rubric=NAME|task.KEY=VALUE]",
        "put a run's recorded texts before another judge, rubric or grader",
        "evorun rejudge RUN_DIR [judge=MODEL|rubric=NAME|reward=MODEL|gold=MODEL|task.KEY=VALUE] [budget.calls=N] "
        "[budget.tokens=N] [--max-price=DOLLARS] [--trust] [KEY=VALUE ...], or\n"
        "       evorun rejudge SWEEP_DIR [task.KEY=VALUE ...] [--trust]",
        "Has a completed run's recorded texts judged again and compares the opinions. It generates no text.\n"
        "  judge=MODEL      each duel: agreement by order, length and step; the ratings and choices that follow\n"
        "  rubric=NAME|FILE each rollout of mpo or ppo: rewards by another rubric, and their rank correlation\n"
        "  reward=MODEL     the same by another reward model, with rubric= or the run's own rubrics\n"
        "  task.KEY=VALUE   each response: other grades (task.grader=math, task.data=CORRECTED); gold=MODEL: another\n"
        "                   gold judge\n"
        "  RUN_DIR alone    each response by the task's present code and data, without a call\n"
        "  SWEEP_DIR        each of its runs so, or with task.KEY=VALUE: one table of old and new means by method,\n"
        "                   with their paired change\n"
        "A model keeps the engine of its role (judge_engine=...) unless another is given. The study lies in\n"
        "RUN_DIR/rejudge/DIGEST; the same command continues it and pays only for what is missing.\n"
        "  evorun rejudge RUN_DIR judge=oracle budget.calls=500",
    ),
    "reselect": Usage(
        "rejudging:reselect",
        "evorun reselect RUN_DIR... [selectors=swiss,thompson,uniform]",
        "choose among runs' recorded candidates by every selector",
        "evorun reselect RUN_DIR... [selectors=swiss,thompson,uniform] [comparisons=N] [stop_probability=P,...] "
        "[judge=MODEL] [budget.calls=N] [budget.tokens=N] [--max-price=DOLLARS] [--trust] [KEY=VALUE ...]",
        "Takes the candidates of completed runs as they are and changes the rule of choice alone: majority, weighted\n"
        "votes, majority of bests, best of √N, the best by recorded duels, ratings, public tests or confidences, and\n"
        "an oracle. None of these needs a call. Others ask the run's judge, or judge=MODEL, with N prompts for each\n"
        "problem (by default 2 per candidate):\n"
        "  swiss     ratings of pairs in a Swiss tournament (V1-Infer)\n"
        "  thompson  duels by double Thompson sampling (Duel-Evolve)\n"
        "  uniform   duels of random pairs\n"
        "stop_probability=0.9,0.95: the calls that method.stop_probability would have saved, and the answers then.\n"
        "The study lies in RUN_DIR/rejudge/DIGEST; the same command continues it. Several runs are also pooled.\n"
        "  evorun reselect RUN_DIR selectors=swiss,thompson comparisons=32 budget.calls=2000",
    ),
    "transplant": Usage(
        "studies:transplant_run",
        "evorun transplant RUN_DIR",
        "test a run's system prompts under its weights at several steps",
        "evorun transplant RUN_DIR [--window] [--trust] [method=NAME] [method.eval_samples=N] [KEY=VALUE ...]",
        "Tests the root, the best and the latest system prompt of a completed espl run on its test problems, under\n"
        "the weights of each evaluation (saved by method.transplant=true; otherwise only the base and final ones).\n"
        "This shows how much of the gain lies in the prompt, in the weights, and in both. method=NAME (with\n"
        "method.KEY=VALUE and budget.KEY=VALUE) has a test-time method answer under each: a third axis. --window also\n"
        "tests the system prompts in each step's window, to compare their ratings with test scores in the report.\n"
        "KEY=VALUE, --trust: as for evorun resume.",
    ),
    "delete-one": Usage(
        "studies:delete_one",
        "evorun delete-one RUN_DIR",
        "test a run's best system prompt without each of its principles",
        "evorun delete-one RUN_DIR [--trust] [answers=N] [KEY=VALUE ...]",
        "Tests the best system prompt of a completed run on its test problems, whole and without each of its\n"
        "principles, and prints the effect of each with its 95 % interval. answers=N: at most N answers in total,\n"
        "equally many per problem and prompt (by default as many as in the run's evaluations).",
    ),
    "new": Usage(
        "new:new_package",
        "evorun new task|method|reward NAME [kind=score|duels|dataset]",
        "write a package with a task, a method or a reward of your own",
        "evorun new task|method|reward NAME [kind=score|duels|dataset]",
        "Writes a package into the folder NAME: a module that runs, its test by evorun.testing, an experiment to\n"
        "start from (a reward has none), pyproject.toml with the entry point, and a README with the next commands.\n"
        "NAME is the module's name and the one on the command line (task=NAME, method.reward_source=NAME). A folder\n"
        "that has files already is refused.\n"
        "  kind=score: a task with a partial score and no right and wrong; by default answers are right or wrong.\n"
        "  kind=duels: a method whose responses meet in duels before a judge; by default they vote.\n"
        "  kind=dataset: a method that works on all problems together: it searches for a system prompt.",
    ),
    "list": Usage(
        "listing:print_listing",
        "evorun list [methods|tasks|models|engines|experiments|NAME]",
        "list what is available, and which methods fit which tasks",
        "evorun list [methods|tasks|models|engines|experiments|NAME ...] [--json]",
        "Lists methods, tasks, models and engines, one per line, and which methods fit which tasks; experiments where\n"
        "they are asked for. With names, says of each what it is, which file has its keys, and of a method or a task\n"
        "what it goes with: what the method then sees beside the problem, or needs. --json prints a document.",
    ),
    "doctor": Usage(
        "verbs:doctor",
        "evorun doctor",
        "check what this machine can run",
        "evorun doctor [--json]",
        "Checks what this machine can run, and says how to get what is missing. --json prints it as a document.",
    ),
}

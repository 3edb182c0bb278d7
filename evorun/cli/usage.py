"""The verbs' usages and the exit codes of the command line."""

from typing import NamedTuple

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


class Usage(NamedTuple):
    """A verb's help."""

    synopsis: str
    about: str


USAGES = {
    "list": Usage(
        "evorun list [methods|tasks|models|engines ...]",
        "Prints what there is, in a line each, and which methods fit which tasks.",
    ),
    "doctor": Usage("evorun doctor", "Prints what this machine can run, and how to get what is missing."),
    "resume": Usage(
        "evorun resume RUN_DIR [KEY=VALUE ...]",
        "Continues a run that was stopped. Keys may change how it is carried out: engine.*, judge_engine.*,\n"
        "teacher_engine.*, sandbox.*, run.*, evorun.* and parts of training.*, nothing that decides its results.",
    ),
    "report": Usage(
        "evorun report RUN_DIR... [--problem=ID ...] [--against=RUN_DIR] [--output=FILE.html]",
        "Prints the tables of a run and writes RUN_DIR/report.html; its browser shows the named problems or a spread.\n"
        "Several runs, or a sweep's folder, are compared on one page more: --output, else comparison.html in their\n"
        "folder. Each run meets the method of --against, else the best, on its own task, model and seed.",
    ),
    "grade": Usage(
        "evorun grade task=TASK responses=FILE.jsonl [output=FILE.jsonl] [task.KEY=VALUE ...]",
        'Grades given responses ({"id": ..., "response": ...} a line) with the task\'s parser and grader; no model.',
    ),
    "traces": Usage(
        "evorun traces RUN_DIR... kind=laft|dpft|dpft_full|dpft_top output=FILE.jsonl [top=0.2] [parsed_only=true] "
        "[overwrite=true]",
        "Writes fine-tuning data in chat format from completed runs, and FILE.counts.json: what was kept and dropped.\n"
        "laft: of lyria runs, the initial populations and the children that are fitter than all their parents.\n"
        "dpft: of zero_shot runs, one answer a question. dpft_full: of zero_shot and best_of_n runs, all answers.\n"
        "dpft_top: of these, each task's top share by penalised score.\n"
        "Never kept: what no model wrote, refused requests, texts that were cut short, repeats. parsed_only=true also\n"
        "drops texts without a readable answer.",
    ),
}

"""Parse a run's rubrics into trees of rhetorical structure, whose motifs `rubric_motifs.py` counts (MPO, figure 8).

    pip install isanlp_rst isanlp    # a parser, not among evorun's dependencies; its model is downloaded
    python scripts/parse_rubrics.py RUN

Of each key the first rubric, the one after the first refinement, and the last are parsed; each leaves
artifacts/rst/<id of the rubric>.rs3 in the run's folder. Trees of another parser may stand there in their place, as
.rs3 or bracketed .dis files. The parser could not be had where evorun was made: its calls follow its documentation, and
were tried with another object in its place.
"""

import argparse
from pathlib import Path
from typing import Any

from rubric_motifs import FOLDER

from evorun.reports.population import measure_rubrics
from evorun.runs.reading import read_records
from evorun.runs.schema import CandidateRecord


def chosen(run: Path) -> dict[str, str]:
    """Return the text of each rubric that figure 8 is about, by its id."""
    records = [record for record in read_records(run / "candidates.jsonl", CandidateRecord) if record.kind == "rubric"]
    texts = {record.id: record.text for record in records}
    ids = [
        of_key[place].rubric
        for of_key in measure_rubrics(records).values()
        for place in (0, 1, -1)
        if len(of_key) > place
    ]
    return {rubric: texts[rubric] for rubric in dict.fromkeys(ids)}


def plain(text: str) -> str:
    """Return a rubric without its tags: what a reader sees."""
    for tag in ("rubric", "item"):
        text = text.replace(f"<{tag}>", "").replace(f"</{tag}>", "")
    return "\n".join(line.strip() for line in text.split("\n") if line.strip())


def parser(version: str, device: int) -> Any:
    """Return the parser. device: -1 for the CPU."""
    try:
        from isanlp_rst.parser import Parser  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise SystemExit(f"expected the parser isanlp_rst: pip install isanlp_rst isanlp ({error})") from error
    return Parser(hf_model_name="tchewik/isanlp_rst_v3", hf_model_version=version, cuda_device=device)


def write_trees(run: Path, parse: Any) -> list[Path]:
    """Parse the rubrics and return the files written."""
    folder = run / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in chosen(run).items():
        path = folder / f"{name}.rs3"
        if path.parent != folder:
            raise SystemExit(f"{name}: a rubric's id with a slash is no file's name")
        parse(plain(text))["rst"][0].to_rs3(str(path))
        written.append(path)
    return written


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path, metavar="RUN")
    options.add_argument("--model", default="rstdt", help="version of the parser's model (default: %(default)s)")
    options.add_argument("--device", type=int, default=-1, help="number of a GPU; -1 (default): the CPU")
    given = options.parse_args()
    for file in write_trees(given.run, parser(given.model, given.device)):
        print(file)

"""OpenEvolve in the race: one program evolved for CALLS iterations of a call each, with its logs and checkpoints.

python openevolve_racer.py URL CALLS FOLDER
"""

import sys
from pathlib import Path

import yaml
from openevolve.cli import main as openevolve

PROGRAM = "def answer():\n    return 0\n"
EVALUATOR = '''
def evaluate(path):
    """Score the number that the program returns."""
    scope = {}
    exec(open(path).read(), scope)
    return {"combined_score": scope["answer"]() * 7919 % 1000 / 1000}
'''
PROCESSES = 4
"""Each is a Python process; with 64, as many as others have calls in flight, they starve each other on few cores."""


def main() -> int:
    """Evolve; continue a folder that a killed process left from its last checkpoint."""
    url, calls, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "evaluator.py").write_text(EVALUATOR)
    settings = {
        "max_iterations": calls,
        "diff_based_evolution": False,
        "llm": {"api_base": f"{url}/v1", "api_key": "none", "models": [{"name": "race", "weight": 1.0}]},
        "evaluator": {"parallel_evaluations": PROCESSES, "cascade_evaluation": False},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    words = [f"{folder}/program.py", f"{folder}/evaluator.py", f"--config={folder}/config.yaml", f"--output={folder}"]
    done = max((int(path.name.partition("_")[2]) for path in folder.glob("checkpoints/checkpoint_*")), default=0)
    if done:
        words.append(f"--checkpoint={folder}/checkpoints/checkpoint_{done}")
    sys.argv[1:] = [*words, f"--iterations={calls - done}"]
    return openevolve()


if __name__ == "__main__":
    sys.exit(main())

"""LAFT: Lyria by a student that was fine-tuned on a teacher's Lyria (Lyria paper, section 5).

What makes the student comes before the run and is no part of the algorithm: see
`evorun.runner.student` and `evorun.runner.stages`.
"""

from evorun.methods.lyria.lyria import Lyria


class Laft(Lyria):
    """Lyria, whose model is a student."""

    name = "laft"
    description = "Lyria by a model that is first fine-tuned on what a stronger one answered, by Lyria too"
    requires_student = True

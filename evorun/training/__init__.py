"""Weight updates: the glue to TRL and PEFT that methods with a reinforcement-learning or fine-tuning step share.

The method, in evorun's own process, owns the order of the loop; a trainer process of its own holds the weights and
TRL's trainer, which owns the mathematics of a step. `policy` is the method's side, `worker` the trainer's, `wire` what
they say to each other.
"""

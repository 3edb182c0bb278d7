"""Weight updates with TRL and PEFT, for methods with a reinforcement-learning or fine-tuning step.

The method, in evorun's own process, controls the loop; a separate trainer process holds the weights and TRL's trainer,
which computes a step. `policy` is the method's side, `worker` the trainer's, `wire` the messages between them.
"""

"""Weight updates with TRL and PEFT, for methods with a reinforcement-learning or fine-tuning step.

The method, in evorun's process, controls the loop. A separate trainer process holds the weights and TRL's trainer,
which computes a step. `policy` is the method's side, `worker` the trainer's, `wire` the messages between them. They
have another trainer, too: a server that speaks Tinker's API (`tinker`; `trainers` chooses).
"""

"""The world of simulated runs, without weights: a policy, its judges and reward models, and what training changes.

- `settings`: every parameter of the world, with its meaning, range and default.
- `skill`: the chance of a right answer, and verdicts on two responses.
- `writing`, `loopholes`: texts without a right answer, and those that exploit a rubric.
- `principles`, `reflection`: what system prompts add, and how reflections edit them.
- `reviewing`: reward models, meta reward models, and evaluators of a response.
- `learning`: what updates add to the skill and to a writer's weights.
- `engine`: serves all of it as the engine `simulated`.

A task's simulator (`Simulator`) joins it to the task: it knows the problems, the right answers and the form of a reply.
"""

"""The world of simulated runs, without weights: a policy, its judges and reward models, and what training changes.

- `settings`: every parameter of the world, with its meaning, range and default.
- `skill`: the chance of a right answer, and verdicts on two responses.
- `writing`, `loopholes`: texts without a right answer, and those that exploit a rubric.
- `principles`, `reflection`: what system prompts add, and how reflections edit them.
- `reviewing`: reward models, meta reward models, and evaluators of a response.
- `learning`: what updates add to the skill and to a writer's weights.
- `simulator`: what joins it to a task, whose simulator knows the right answers and the form of a reply.
- `engine`: serves all of it as `engine=simulated`.
"""

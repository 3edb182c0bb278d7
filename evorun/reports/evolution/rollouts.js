// A sample of rollouts: found by step, prompt, outcome and words; each opens on a click.
(async () => {
  if (!byId("rollouts-data")) return;
  const data = await unpacked("rollouts-data");
  if (data === null) {
    byId("rollout-count").replaceChildren("The rollouts need a web browser of 2023 or later.");
    return;
  }
  const NAMES = ["step", "problem", "member", "reward", "advantage", "correct", "finish", "prompt", "completion", "turns", "call", "text", "normalised", "unscored", "penalised", "points"];
  const rollouts = data.rollouts.map((row) => Object.fromEntries(row.map((value, i) => [NAMES[i], value])));
  const members = await evolved;
  const AT_ONCE = 40;
  let most = AT_ONCE;

  const control = (name) => byId(`rollout-${name}`);
  const options = (name, values, word) => {
    const distinct = [...new Set(values)].filter((value) => value !== null).sort((a, b) => a - b);
    control(name).append(...distinct.map((value) => element("option", { value }, word(value))));
  };
  options("step", rollouts.map((rollout) => rollout.step), String);
  options("prompt", rollouts.map((rollout) => rollout.member), (i) => members[i].id);

  const OUTCOMES = {
    right: (rollout) => rollout.correct === true,
    wrong: (rollout) => rollout.correct === false,
    unrewarded: (rollout) => rollout.reward === null,
    cut: (rollout) => rollout.finish !== "stop",
  };

  function found() {
    const wanted = control("search").value.trim().toLowerCase();
    const [step, prompt, outcome] = ["step", "prompt", "outcome"].map((name) => control(name).value);
    return rollouts.filter(
      (rollout) =>
        (!step || rollout.step === Number(step)) &&
        (!prompt || rollout.member === Number(prompt)) &&
        (!outcome || OUTCOMES[outcome](rollout)) &&
        (!wanted || `${rollout.problem}\n${rollout.call}\n${rollout.text ?? ""}`.toLowerCase().includes(wanted)),
    );
  }

  function show() {
    const matching = found();
    const shown = matching.slice(0, most);
    control("list").replaceChildren(...shown.map(item));
    const begun = shown.length < matching.length ? `, of which the first ${shown.length} are shown` : "";
    control("count").textContent = `${matching.length} of ${rollouts.length} match${begun}.`;
    control("more").hidden = shown.length === matching.length;
  }

  // What it was played under or scored by.
  const word = (rollout) => (members[rollout.member].kind === "rubric" ? "rubric" : "prompt");

  // Its last 120 characters, from a whole word on.
  const showEnd = (text) => (text.length > 120 ? `… ${text.slice(-120).replace(/^\S*\s+/, "")}` : text);

  const number = (value) => (value === null ? "–" : signed(Number(value.toPrecision(3))));

  function item(rollout) {
    const outcome = rollout.correct === true ? "right" : rollout.correct === false ? "wrong" : "ungraded";
    const prompt = rollout.member === null ? "" : `  ${word(rollout)} ${members[rollout.member].id}`;
    const head = element(
      "summary",
      {},
      element("span", { class: outcome }, { right: "✓", wrong: "✗", ungraded: "·" }[outcome]),
      ` step ${rollout.step}  ${rollout.problem}${prompt}  reward ${number(rollout.reward)}`,
    );
    if (rollout.text) head.append(element("span", { class: "note end" }, showEnd(rollout.text)));
    const details = element("details", { "data-call": rollout.call }, head);
    details.addEventListener("toggle", () => fill(details, rollout));
    return element("li", {}, details);
  }

  // Only what is open has a body: many long texts are slow to lay out.
  function fill(details, rollout) {
    if (details.open && details.children.length === 1) details.append(...body(rollout));
  }

  function body(rollout) {
    const turns = rollout.turns > 1 ? `${rollout.turns} turns, ` : "";
    const ended = { stop: "ended by itself", length: "cut off by max_tokens", overlong: "cut off, overlong", low_confidence: "ended for low confidence", rejected: "refused" };
    const facts = [
      ...(rollout.penalised === null ? [] : [["Reward with the penalty for a missing ending", number(rollout.penalised)]]),
      ...(rollout.advantage === null ? [] : [["Advantage", rollout.advantage]]),
      ...(rollout.points === null ? [] : [["Points", rollout.points]]),
      ...(rollout.normalised === null ? [] : [["Normalised", number(rollout.normalised)]]),
      ...(rollout.unscored === null ? [] : [["Without a score", rollout.unscored]]),
      ["Tokens", `${turns}${rollout.prompt.toLocaleString("en")} prompt, ${rollout.completion.toLocaleString("en")} completion`],
      ["End", ended[rollout.finish]],
      ["Call", rollout.call],
    ].flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    if (rollout.member !== null) {
      const open = () => links.member(rollout.member);
      const link = element("button", { type: "button", class: "link", onclick: open }, members[rollout.member].id);
      facts.push(element("dt", {}, word(rollout) === "rubric" ? "Rubric" : "Prompt"), element("dd", {}, link));
    }
    return [element("dl", {}, ...facts), element("pre", { tabindex: 0 }, rollout.text ?? "(no text)")];
  }

  links.rollout = (call) => {
    for (const name of ["search", "step", "prompt", "outcome"]) control(name).value = "";
    control("search").value = call;
    show();
    const details = [...control("list").querySelectorAll("details")].find((item) => item.dataset.call === call);
    details.open = true;
    fill(details, rollouts.find((rollout) => rollout.call === call)); // its event comes later, and would move what is centred
    details.scrollIntoView({ block: "center" });
    details.querySelector("summary").focus();
  };

  const again = () => {
    most = AT_ONCE;
    show();
  };
  control("search").addEventListener("input", again);
  for (const name of ["step", "prompt", "outcome"]) control(name).addEventListener("change", again);
  control("more").addEventListener("click", () => {
    most += 5 * AT_ONCE;
    show();
  });
  show();
  byId("rollouts").dataset.ready = "";
})();

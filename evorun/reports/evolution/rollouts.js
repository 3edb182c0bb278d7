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
  options("step", rollouts.map((one) => one.step), String);
  options("prompt", rollouts.map((one) => one.member), (i) => members[i].id);

  const OUTCOMES = {
    right: (one) => one.correct === true,
    wrong: (one) => one.correct === false,
    unrewarded: (one) => one.reward === null,
    cut: (one) => one.finish !== "stop",
  };

  function found() {
    const wanted = control("search").value.trim().toLowerCase();
    const [step, prompt, outcome] = ["step", "prompt", "outcome"].map((name) => control(name).value);
    return rollouts.filter(
      (one) =>
        (!step || one.step === Number(step)) &&
        (!prompt || one.member === Number(prompt)) &&
        (!outcome || OUTCOMES[outcome](one)) &&
        (!wanted || `${one.problem}\n${one.call}\n${one.text ?? ""}`.toLowerCase().includes(wanted)),
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
  const word = (one) => (members[one.member].kind === "rubric" ? "rubric" : "prompt");

  const number = (value) => (value === null ? "–" : signed(Number(value.toPrecision(3))));

  function item(one) {
    const outcome = one.correct === true ? "right" : one.correct === false ? "wrong" : "ungraded";
    const prompt = one.member === null ? "" : `  ${word(one)} ${members[one.member].id}`;
    const head = element(
      "summary",
      {},
      element("span", { class: outcome }, { right: "✓", wrong: "✗", ungraded: "·" }[outcome]),
      ` step ${one.step}  ${one.problem}${prompt}  reward ${number(one.reward)}`,
    );
    if (one.text) head.append(element("span", { class: "note end" }, one.text.slice(-120)));
    const details = element("details", { "data-call": one.call }, head);
    details.addEventListener("toggle", () => fill(details, one));
    return element("li", {}, details);
  }

  // Only what is open has a body: many long texts are slow to lay out.
  function fill(details, one) {
    if (details.open && details.children.length === 1) details.append(...body(one));
  }

  function body(one) {
    const turns = one.turns > 1 ? `${one.turns} turns, ` : "";
    const ended = { stop: "ended by itself", length: "cut off by max_tokens", overlong: "cut off, overlong", rejected: "refused" };
    const facts = [
      ...(one.penalised === null ? [] : [["Learned from, with the penalty for a missing end", number(one.penalised)]]),
      ...(one.advantage === null ? [] : [["Advantage", one.advantage]]),
      ...(one.points === null ? [] : [["Points", one.points]]),
      ...(one.normalised === null ? [] : [["Normalised", number(one.normalised)]]),
      ...(one.unscored === null ? [] : [["Without a score", one.unscored]]),
      ["Tokens", `${turns}${one.prompt.toLocaleString("en")} prompt, ${one.completion.toLocaleString("en")} completion`],
      ["End", ended[one.finish]],
      ["Call", one.call],
    ].flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    if (one.member !== null) {
      const open = () => links.member(one.member);
      const link = element("button", { type: "button", class: "link", onclick: open }, members[one.member].id);
      facts.push(element("dt", {}, word(one) === "rubric" ? "Rubric" : "Prompt"), element("dd", {}, link));
    }
    return [element("dl", {}, ...facts), element("pre", { tabindex: 0 }, one.text ?? "(no text)")];
  }

  links.rollout = (call) => {
    for (const name of ["search", "step", "prompt", "outcome"]) control(name).value = "";
    control("search").value = call;
    show();
    const details = [...control("list").querySelectorAll("details")].find((one) => one.dataset.call === call);
    details.open = true;
    fill(details, rollouts.find((one) => one.call === call)); // its event comes later, and would move what is centred
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

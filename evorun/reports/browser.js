// The browser of problems and their candidates.
(() => {
  if (!byId("browser-index")) return;
  const index = JSON.parse(byId("browser-index").textContent);
  // `score` says how good a response is; null: it is right or wrong. `stepName`: a generation, or a training step.
  const { score, step: stepName } = JSON.parse(byId("browser-words").textContent);
  const problems = new Map();
  let problem = null;
  let selected = 0;

  // Of a problem, a step or a candidate.
  const figure = (value) => (value === null ? "–" : signed(Number(value.toPrecision(4))));
  const mark = ({ correct, value }) => (score ? figure(value) : correct === true ? "✓" : correct === false ? "✗" : "·");
  const tone = ({ correct, value }) => {
    if (score) return value === null ? "ungraded" : "scored";
    return correct === true ? "right" : correct === false ? "wrong" : "ungraded";
  };
  const graded = (entry) => {
    const words = score ? score.words : tone(entry);
    return element("span", { class: tone(entry), title: words }, score ? `${words} ${mark(entry)}` : `${mark(entry)} ${words}`);
  };
  const percent = (share) => `${Math.round(100 * share)} %`;
  // The name of what `belief` shows of a problem's candidates: not all methods have a posterior.
  function beliefName() {
    if (problem.candidates.some((c) => c.fitness !== null)) return "Fitness";
    return problem.candidates.some((c) => c.sd !== null) ? "Posterior" : "Estimate";
  }

  // A program, say: its lines must stay lines.
  const isBlock = (answer) => answer !== null && answer.trim().includes("\n");

  // Rows of figures, say, which must stand below one another; prose has longer lines.
  const isGrid = (text) => isBlock(text) && text.split("\n").every((line) => line.length <= 60);

  // A problem's data is unpacked when it is first chosen: all of it may be many times the page's own size.
  async function load(position) {
    if (!problems.has(position)) {
      problems.set(position, await unpacked(`problem-${position}`));
    }
    return problems.get(position);
  }

  /* ---- choosing a problem ---- */

  function listProblems() {
    const wanted = byId("problem-search").value.trim().toLowerCase();
    const outcome = byId("problem-outcome").value;
    const list = byId("problem-list");
    const before = list.value;
    list.replaceChildren();
    index.forEach((entry, position) => {
      const label = `${mark(entry)}  ${entry.id}   ${entry.stratum}   ${entry.candidates} candidate${entry.candidates === 1 ? "" : "s"}`;
      const found = label.toLowerCase().includes(wanted) && (outcome === "all" || outcome === tone(entry));
      if (found) list.append(element("option", { value: position }, label));
    });
    byId("problem-none").hidden = list.options.length > 0;
    list.value = before;
    if (list.selectedIndex < 0 && list.options.length > 0) {
      list.selectedIndex = 0;
      showProblem(Number(list.value));
    }
  }

  async function showProblem(position) {
    const list = byId("problem-list");
    const loaded = await load(position);
    if (Number(list.value) !== position) return; // another one was chosen in the meantime
    if (loaded === null) {
      byId("problem-outcome-line").replaceChildren("The browser of candidates needs a web browser of 2023 or later.");
      return;
    }
    problem = loaded;
    problem.children = problem.candidates.map(() => []);
    problem.candidates.forEach((c, child) => new Set(c.parents).forEach((p) => problem.children[p].push(child)));
    problem.ranking = problem.candidates.map((_, i) => i);
    problem.ranking.sort((a, b) => (problem.candidates[b].mean ?? -Infinity) - (problem.candidates[a].mean ?? -Infinity));
    showOutcome(index[position]);
    showQuestion();
    showTable();
    select(problem.chosen ?? problem.ranking[0]);
    list.dataset.shown = position;
  }

  function showOutcome(entry) {
    const cut = `Texts longer than ${entry.text_limit.toLocaleString("en")} characters are cut.`;
    const answer = problem.answer === null ? "none" : isBlock(problem.answer) ? "see the one returned" : problem.answer;
    const parts = [element("strong", {}, problem.id), ` ${problem.stratum}: answer `, element("b", {}, answer), " "];
    parts.push(graded(problem));
    const ends = {
      generations: `ended after its last ${stepName}`,
      goal: "ended early, its goal reached",
      budget: "stopped by the budget",
      failed: "no result",
    };
    parts.push(` (${problem.stop === null ? "not ended" : ends[problem.stop]})`);
    const line = element("p", {}, ...parts.map((p) => (p instanceof Node ? p : document.createTextNode(visible(p)))));
    const best = problem.steps.map((s) => `${s.step}${score ? ":" : ""} ${mark(s)}`).join("  ·  ");
    const path = best ? element("p", { class: "note" }, `Best answer by ${stepName}: ${best}`) : "";
    byId("problem-outcome-line").replaceChildren(line, path, element("p", { class: "note" }, cut));
  }

  /* ---- the problem as the prompts show it: any task's fields, by their JSON types ---- */

  function showQuestion() {
    const fields = Object.entries(problem.data);
    const rows = fields.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, shown(value))]);
    byId("problem-data").replaceChildren(...(fields.length ? [element("h4", {}, "Problem"), element("dl", {}, ...rows)] : []));
  }

  function shown(value) {
    if (Array.isArray(value)) return element("ol", { type: "A" }, ...value.map((item) => element("li", {}, shown(item))));
    if (typeof value === "string" && isGrid(value)) return element("span", { class: "block" }, value);
    if (value === null || typeof value !== "object") return String(value);
    const items = Object.entries(value);
    return element("ul", {}, ...items.map(([name, item]) => element("li", {}, element("b", {}, name), ": ", shown(item))));
  }

  /* ---- the candidates ---- */

  function link(position) {
    const c = problem.candidates[position];
    return element(
      "button",
      { type: "button", class: "link", "data-candidate": position, onclick: () => select(position, true) },
      c.id,
    );
  }

  function showTable() {
    byId("head-belief").textContent = beliefName();
    const body = byId("candidate-rows");
    body.replaceChildren();
    for (const position of problem.ranking) {
      const c = problem.candidates[position];
      const row = element(
        "tr",
        { "data-row": position },
        element("td", {}, link(position), position === problem.chosen ? element("span", { class: "tag" }, "returned") : ""),
        element("td", { class: "num" }, c.generation),
        element("td", { class: "clip", title: visible(c.answer ?? "") }, c.answer ?? "none"),
        score ? element("td", { class: "num" }, mark(c)) : element("td", {}, graded(c)),
        element("td", { class: "num" }, belief(c)),
        element("td", {}, c.survivor === true ? "kept" : c.survivor === false ? "dropped" : "–"),
      );
      row.addEventListener("click", () => select(position));
      body.append(row);
    }
  }

  function select(position, scroll) {
    selected = position;
    for (const row of byId("candidate-rows").children) {
      const here = Number(row.dataset.row) === position;
      row.classList.toggle("selected", here);
      row.querySelector("button").setAttribute("aria-pressed", here);
      if (here && scroll) row.scrollIntoView({ block: "nearest" });
    }
    drawLineage();
    showCandidate();
  }

  byId("candidate-rows").addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move) return;
    const next = problem.ranking[problem.ranking.indexOf(selected) + move];
    event.preventDefault();
    if (next === undefined) return;
    select(next, true);
    byId("candidate-rows").querySelector(`tr[data-row="${next}"] button`).focus();
  });

  function family(title, positions) {
    const links = positions.length ? positions.map(link) : ["none"];
    return [element("dt", {}, title), element("dd", { class: "links" }, ...links)];
  }

  function showCandidate() {
    const c = problem.candidates[selected];
    const facts = [
      ["Answer", isBlock(c.answer) ? "below" : (c.answer ?? "none (unparsable)")],
      [beliefName(), c.fitness === null ? belief(c) : c.fitness.toFixed(2)],
      [stepName[0].toUpperCase() + stepName.slice(1), c.generation],
      ["Operator", c.operator + (c.attempts > 1 ? `, ${c.attempts} attempts` : "")],
    ].flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    if (c.note) facts.push(element("dt", {}, "Note"), element("dd", {}, c.note));
    if (c.error) facts.push(element("dt", {}, "Error"), element("dd", {}, c.error));
    for (const [name, value] of Object.entries(c.scores)) {
      const shown = value === null ? "–" : signed(Number(value.toFixed(4)));
      facts.push(element("dt", {}, name.replaceAll("_", " ")), element("dd", {}, shown));
    }
    if (c.errors) facts.push(element("dt", {}, "Errors found"), element("dd", {}, element("pre", {}, c.errors)));
    const parts = [
      element("h3", {}, `Candidate ${c.id} `, graded(c)),
      element("dl", {}, ...facts, ...family("Parents", c.parents), ...family("Children", problem.children[selected])),
    ];
    if (c.feedback) parts.push(folded(`Public tests: ${percent(c.feedback.score)} passed`, c.feedback.text));
    if (isBlock(c.answer)) parts.push(element("h4", {}, "Answer"), element("pre", { tabindex: 0 }, c.answer));
    parts.push(...changes(c, c.parents.map((parent) => problem.candidates[parent])));
    if (c.transcript) {
      parts.push(element("h4", {}, "Turns before the last one, with the tools' answers"), element("pre", { tabindex: 0 }, c.transcript));
    }
    parts.push(element("h4", {}, "Text"), element("pre", { tabindex: 0 }, c.text || "(empty)"));
    if (c.reasoning && c.reasoning !== c.text) parts.push(folded("Reasoning, as parsed", c.reasoning));
    if (c.memory) parts.push(folded("Memory left to its children", c.memory));
    byId("candidate").replaceChildren(...parts);
    byId("duels").replaceChildren(...duelsOf(selected));
  }

  /* ---- its duels ---- */

  function duelsOf(position) {
    const own = problem.duels.filter(([, first, second]) => first === position || second === position);
    const won = own.filter((duel) => result(duel, position) === "won").length;
    const lost = own.filter((duel) => result(duel, position) === "lost").length;
    const undecided = own.length - won - lost;
    const title = `Duels of ${problem.candidates[position].id}`;
    const tally = own.length ? `${won} won, ${lost} lost, ${undecided} undecided` : "no duels";
    return [
      element("h3", {}, title),
      element("p", { class: "note" }, tally),
      element("ol", {}, ...own.map((duel) => duelItem(duel, position))),
    ];
  }

  function result([, first, , , outcome], position) {
    if (outcome === null) return "undecided";
    return (outcome === "first") === (first === position) ? "won" : "lost";
  }

  // A pair is judged twice: `first` is shown as A the first time, and as B the second time.
  function duelItem(duel, position) {
    const [step, first, second, verdicts, , reasons] = duel;
    const isFirst = first === position;
    const outcome = result(duel, position);
    const seats = isFirst ? ["A", "B"] : ["B", "A"];
    const verdict = (i) => {
      if (verdicts[i] === "T") return "tie";
      if (verdicts[i] === "invalid") return "unparsable";
      return verdicts[i] === seats[i] ? "won" : "lost";
    };
    const judged = verdicts.map((_, i) => `as ${seats[i]}: ${verdict(i)}`).join(", ");
    const opponent = isFirst ? second : first;
    const item = element(
      "li",
      {},
      element("span", { class: `result ${outcome}` }, outcome),
      " against ",
      link(opponent),
      " ",
      graded(problem.candidates[opponent]),
      element("span", { class: "note" }, ` ${stepName} ${step}; shown ${judged}`),
    );
    const given = reasons.map((reason, i) => [seats[i], reason]).filter(([, reason]) => reason);
    if (given.length) {
      const texts = given.flatMap(([seat, reason]) => [
        element("p", { class: "note" }, `Shown as ${seat}, the judge wrote:`),
        element("pre", {}, reason),
      ]);
      item.append(element("details", {}, element("summary", {}, "Judge's reasons"), ...texts));
    }
    return item;
  }

  /* ---- lineage: generations from left to right, the better ones above ---- */

  const WIDTH = 1040, HEIGHT = 300, LEFT = 56, RIGHT = 16, TOP = 18, BOTTOM = 40;
  const MOST_COLUMNS = 32; // that have a number and a line of their own

  function places() {
    const candidates = problem.candidates;
    const generations = [...new Set(candidates.map((c) => c.generation))].sort((a, b) => a - b);
    const known = candidates.every((c) => c.mean !== null);
    // Where the method rates nothing, grades are all that there is to see.
    const grade = (c) => (score ? (c.value === null ? 50 : share(c.value)) : { true: 100, false: 0 }[c.correct] ?? 50);
    const rated = candidates.some((c) => c.mean !== null);
    const height = candidates.map((c, i) =>
      known ? c.mean : rated ? -problem.ranking.indexOf(i) : grade(c));
    const low = Math.min(...height), high = Math.max(...height);
    const column = (WIDTH - LEFT - RIGHT) / generations.length;
    const members = new Map(generations.map((g) => [g, []]));
    candidates.forEach((c, i) => members.get(c.generation).push(i));
    const points = candidates.map((c, i) => {
      const peers = members.get(c.generation);
      const across = (peers.indexOf(i) + 1) / (peers.length + 1);
      const up = high > low ? (height[i] - low) / (high - low) : 0.5;
      return [
        LEFT + column * (generations.indexOf(c.generation) + 0.08 + 0.84 * across),
        TOP + (HEIGHT - TOP - BOTTOM) * (1 - up),
      ];
    });
    return { generations, column, points, known, low, high };
  }

  function ancestorsOf(position) {
    const found = new Set();
    const waiting = [position];
    while (waiting.length) {
      for (const parent of problem.candidates[waiting.pop()].parents) {
        if (!found.has(parent)) {
          found.add(parent);
          waiting.push(parent);
        }
      }
    }
    return found;
  }

  function drawLineage() {
    byId("lineage-card").hidden = problem.candidates.length < 2;
    const { generations, column, points, known, low, high } = places();
    const ancestors = ancestorsOf(selected);
    const drawing = [];
    const radius = Math.min(5, Math.max(2, 0.45 * column)); // neighbours in a long lineage must not cover one another
    const every = Math.ceil(generations.length / MOST_COLUMNS);
    generations.forEach((g, i) => {
      if (i % every) return;
      const x = LEFT + column * i;
      if (i > 0) drawing.push(svg("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM, class: "rule" }));
      drawing.push(svg("text", { x: x + column / 2, y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, g));
    });
    drawing.push(svg("text", { x: LEFT + (WIDTH - LEFT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, stepName));
    if (known) {
      const digits = high - low < 1 ? 2 : 1;
      const middle = (TOP + HEIGHT - BOTTOM) / 2;
      const turned = { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` };
      drawing.push(svg("text", turned, beliefName().toLowerCase()));
      drawing.push(svg("text", { x: LEFT - 8, y: TOP + 4, "text-anchor": "end" }, signed(high.toFixed(digits))));
      drawing.push(svg("text", { x: LEFT - 8, y: HEIGHT - BOTTOM, "text-anchor": "end" }, signed(low.toFixed(digits))));
    }
    const edge = (from, to, kind) => {
      const [[x1, y1], [x2, y2]] = [points[from], points[to]];
      const bend = (x1 + x2) / 2;
      drawing.push(svg("path", { d: `M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}`, class: `edge ${kind}` }));
    };
    for (const ancestor of ancestors) problem.candidates[ancestor].parents.forEach((p) => edge(p, ancestor, "far"));
    problem.candidates[selected].parents.forEach((p) => edge(p, selected, "parent"));
    problem.children[selected].forEach((child) => edge(selected, child, "child"));
    points.forEach(([x, y], i) => drawing.push(node(i, x, y, radius)));
    byId("lineage").replaceChildren(
      svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Lineage by ${stepName}` }, ...drawing),
    );
  }

  // How far a value is from the worst to the best among the problem's candidates, in percent.
  function share(value) {
    const values = problem.candidates.map((c) => c.value).filter((value) => value !== null);
    const low = Math.min(...values), high = Math.max(...values);
    const up = high > low ? (value - low) / (high - low) : 1;
    return 100 * (score.higher_is_better ? up : 1 - up);
  }

  function node(position, x, y, radius) {
    const half = 1.2 * radius;
    const c = problem.candidates[position];
    const classes = `node ${tone(c)}${position === selected ? " selected" : ""}`;
    // Shape repeats what colour says: right candidates are discs, wrong ones diamonds. Scores are colours in between.
    const shape = c.correct === false
      ? svg("path", { d: `M${x} ${y - half}L${x + half} ${y}L${x} ${y + half}L${x - half} ${y}Z`, class: classes })
      : svg("circle", { cx: x, cy: y, r: radius, class: classes });
    if (tone(c) === "scored") shape.style.fill = `color-mix(in oklch, var(--right) ${share(c.value)}%, var(--wrong))`;
    shape.append(svg("title", {}, `${c.id}: ${belief(c)}, ${score ? `${score.words} ${mark(c)}` : tone(c)}`));
    shape.dataset.node = position;
    shape.addEventListener("click", () => select(position, true));
    return shape;
  }

  byId("problem-search").addEventListener("input", listProblems);
  byId("problem-outcome").addEventListener("change", listProblems);
  byId("problem-list").addEventListener("change", (event) => showProblem(Number(event.target.value)));
  listProblems();
})();

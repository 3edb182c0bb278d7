// What serves all problems: the tree, the table, and the text that is chosen in either.
const links = {}; // what two sections open in one another: `member`, `rollout`
const evolved = (async () => {
  if (!byId("evolution-data")) return [];
  const data = await unpacked("evolution-data");
  if (data === null) {
    byId("member").replaceChildren("The texts need a web browser of 2023 or later.");
    return [];
  }
  const { members, best, latest, limit } = data;
  const children = members.map(() => []);
  members.forEach((candidate, child) => candidate.parents.forEach((parent) => children[parent].push(child)));
  const ranking = members.map((_, i) => i).sort((a, b) => (members[b].mean ?? -Infinity) - (members[a].mean ?? -Infinity));
  const nodes = members.map((_, i) => byId(`prompt-${i}`));
  let selected = best ?? latest;

  const marks = (i) => [[best, "best"], [latest, "latest"]].filter(([at]) => at === i).map(([, word]) => word);
  const rated = members.some((candidate) => candidate.mean !== null);
  const noted = members.some((candidate) => candidate.note);
  const kept = (candidate) => (candidate.kind === "rubric" ? (candidate.kept ? "in use" : "replaced") : candidate.kept ? "kept" : "dropped");
  const link = (i) =>
    element("button", { type: "button", class: "link", "data-member": i, onclick: () => select(i, true) }, members[i].id);

  function showTable() {
    for (const i of ranking) {
      const candidate = members[i];
      const tags = marks(i).map((word) => element("span", { class: "tag" }, word));
      const row = element(
        "tr",
        { "data-row": i },
        element("td", {}, link(i), ...tags),
        element("td", { class: "num" }, candidate.step),
        element("td", {}, candidate.operator),
        element("td", { class: "num" }, belief(candidate)),
        element("td", { class: "num" }, candidate.reward ?? "–"),
        element("td", {}, kept(candidate)),
        ...(noted ? [element("td", {}, candidate.note)] : []),
      );
      row.addEventListener("click", () => select(i));
      byId("member-rows").append(row);
    }
  }

  // Lineages of several keys: the table shows one at a time.
  const keys = [...new Set(members.map((candidate) => candidate.key).filter((key) => key !== null))];
  function showKey(key) {
    byId("member-key").value = key;
    for (const row of byId("member-rows").children) {
      row.hidden = ![key, null].includes(members[Number(row.dataset.row)].key);
    }
  }
  if (keys.length > 1) {
    byId("member-picker").hidden = false;
    byId("member-key").append(...keys.map((key) => element("option", { value: key }, key || "all problems")));
    byId("member-key").addEventListener("change", (event) => {
      const own = members.map((_, i) => i).filter((i) => members[i].key === event.target.value);
      select(own[own.length - 1]);
    });
  }

  function select(i, scroll) {
    selected = i;
    if (keys.length > 1 && members[i].key !== null) showKey(members[i].key);
    for (const row of byId("member-rows").children) {
      const here = Number(row.dataset.row) === i;
      row.classList.toggle("selected", here);
      row.querySelector("button").setAttribute("aria-pressed", here);
      if (here && scroll) row.scrollIntoView({ block: "nearest" });
    }
    nodes.forEach((node, at) => {
      node.setAttribute("aria-pressed", at === i);
      node.setAttribute("tabindex", at === i ? 0 : -1); // one stop for the tab key; arrows walk from there
    });
    nodes[i].parentNode.append(ring(nodes[i]));
    showMember();
  }
  links.member = (i) => {
    select(i, true);
    byId("member").scrollIntoView({ block: "nearest" });
  };

  // A node's marker stands where its `use` element has been placed.
  const centre = (node) => ["x", "y"].map((name) => node.querySelector("use").getAttribute(name));
  const mark = svg("circle", { r: 9, class: "ring" });
  function ring(node) {
    const [x, y] = centre(node);
    mark.setAttribute("cx", x);
    mark.setAttribute("cy", y);
    return mark;
  }

  function readyTree() {
    nodes.forEach((node, i) => {
      const [cx, cy] = centre(node);
      node.append(svg("circle", { cx, cy, r: 9, class: "target" })); // a finger is wider than the mark
      node.append(svg("title", {}, [rated ? `${members[i].id}: ${belief(members[i])}` : members[i].id, members[i].operator, ...marks(i)].join(", ")));
      node.setAttribute("role", "button");
      node.setAttribute("class", "member");
      node.addEventListener("click", () => select(i));
      node.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") select(i);
        else walk(event, neighbour(i, event.key), (to) => nodes[to]);
        if (event.key === " ") event.preventDefault();
      });
    });
    const [svgOfTree] = byId("figure-tree").children;
    svgOfTree.setAttribute("role", "group");
    const { width } = svgOfTree.viewBox.baseVal; // a wide one scrolls; letters stay readable
    svgOfTree.style.minWidth = `${width < 760 ? 600 : width * 1.33}px`;
  }

  // To the parent, the first child, or the next one of the same parent.
  function neighbour(i, key) {
    const peers = members[i].parents.length ? children[members[i].parents[0]] : members.map((_, at) => at).filter((at) => !members[at].parents.length);
    const at = peers.indexOf(i);
    return { ArrowLeft: members[i].parents[0], ArrowRight: children[i][0], ArrowUp: peers[at - 1], ArrowDown: peers[at + 1] }[key];
  }

  function walk(event, to, focused) {
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    if (to === undefined) return;
    select(to, true);
    focused(to).focus();
  }

  byId("member-rows").addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move) return;
    const listed = ranking.filter((i) => !byId("member-rows").querySelector(`tr[data-row="${i}"]`).hidden);
    const next = listed[listed.indexOf(selected) + move];
    walk(event, next, (to) => byId("member-rows").querySelector(`tr[data-row="${to}"] button`));
  });

  function family(title, positions) {
    const shown = positions.length ? positions.map(link) : ["none"];
    return [element("dt", {}, title), element("dd", { class: "links" }, ...shown)];
  }

  function showMember() {
    const candidate = members[selected];
    const signed = (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value).toFixed(3);
    const facts = [
      ...(rated ? [["Rating", `${belief(candidate)}, ${kept(candidate)}`]] : []),
      ["Made", `in step ${candidate.step} by ${candidate.operator}`],
      ...(candidate.words === null ? [] : [["Length", candidate.words]]),
    ];
    if (candidate.note) facts.push(["Note", candidate.note]);
    if (candidate.reward !== null) {
      const interval = candidate.interval === "–" ? "" : ` (95 %: ${candidate.interval})`;
      const named = candidate.kind === "rubric" ? "Normalised score" : "Reward";
      facts.push([named, `${candidate.reward}${interval} over ${candidate.rollouts} rollouts`]);
      if (candidate.gain !== null) facts.push(["Against its steps' means", signed(candidate.gain)]);
    }
    if (candidate.scores.length) {
      facts.push(["Test score", candidate.scores.map(([step, score, n]) => `step ${step}: ${score} (n = ${n})`).join("; ")]);
    }
    const rows = facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    const parts = [
      element("h3", {}, candidate.kind, " ", candidate.id, ...marks(selected).map((word) => element("span", { class: "tag" }, word))),
      element("dl", {}, ...rows, ...family("Parents", candidate.parents), ...family("Children", children[selected])),
      ...changes(candidate, candidate.parents.map((parent) => members[parent]), true),
      element("h4", {}, "Text"),
    ];
    if (candidate.whole) parts.push(copier(candidate.text));
    else parts.push(element("p", { class: "note" }, `Cut after ${limit.toLocaleString("en")} characters.`));
    parts.push(element("pre", { tabindex: 0, class: "text" }, candidate.text || "(empty)"));
    if (candidate.reflection) parts.push(folded(candidate.kind === "rubric" ? "Analyses that it was made from" : "Reflection that it was made from", candidate.reflection));
    parts.push(...blamed(candidate));
    if (candidate.ratings.length > 1) {
      const course = candidate.ratings.map(([step, mean, sd]) => `step ${step}: ${belief({ mean, sd })}`);
      parts.push(folded("Rating by step", course.join("\n")));
    }
    byId("member").replaceChildren(...parts);
  }

  // The rollouts that were reflected on, which the section of rollouts shows.
  function blamed(candidate) {
    if (!candidate.blamed.length && !candidate.blamed_more) return [];
    const open = (call) =>
      element("button", { type: "button", class: "link", "data-call": call, onclick: () => links.rollout(call) }, call);
    const more = candidate.blamed_more ? `${candidate.blamed_more} more, in journal.sqlite` : "";
    const list = element("dd", { class: "links" }, ...candidate.blamed.map(open), more);
    return [element("details", { class: "blamed" }, element("summary", {}, "Rollouts that it was made from"), list)];
  }

  function copier(text) {
    const button = element("button", { type: "button", class: "copy" }, "Copy");
    button.addEventListener("click", () => copy(text, button));
    return button;
  }

  async function copy(text, button) {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed here: select the text";
    }
  }

  const chosen = members[selected];
  if (chosen.whole) {
    byId("copy-best").hidden = false;
    byId("copy-best").addEventListener("click", () => copy(chosen.text, byId("copy-best")));
  }
  readyTree();
  showTable();
  select(selected);
  return members;
})();

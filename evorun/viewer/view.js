// The page over many runs: asks the server for what has changed, and draws the table and the run under the cursor.
(() => {
  const POLL_MS = 2000, CURSOR_MS = 120;
  const runs = new Map(); // by id, in the server's order
  let settingKeys = [], version = 0;
  const ticked = new Set();
  const drawnRows = new Map(); // by id: the row's element and what it shows
  let shown = []; // ids, in the order on the page
  let cursor = null;
  let hint = ""; // why the last key did nothing: stays until the next one, whatever comes from the server

  /* ---- columns ---- */

  const count = (n) => (n === null || n === undefined ? "" : n.toLocaleString("en"));
  const short = (n) =>
    n === null || n === undefined || n < 1e5 ? count(n) : n < 1e7 ? `${count(Math.round(n / 1e3))} k` : `${count(Math.round(n / 1e6))} M`;
  const clock = (s) => {
    if (s === null || s === undefined) return "";
    const [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
    return h ? `${h}:${String(m).padStart(2, "0")} h` : m ? `${m}:${String(Math.floor(s % 60)).padStart(2, "0")} min` : `${s.toFixed(1)} s`;
  };
  const decimals = (size) => [100, 10, 1, 0.01].findIndex((least) => size >= least); // as evorun/runs/formats.py has them
  const number = (value) =>
    value === 0 ? "0" : decimals(Math.abs(value)) < 0 ? value.toPrecision(3) : value.toFixed(decimals(Math.abs(value)));
  const figure = (value, { rate, scale_low: low, scale_high: high }) => {
    if (rate) return `${(100 * value).toFixed(1)} %`;
    return signed(low === null || high === null || high - low > 1 ? number(value) : value.toFixed(3));
  };
  const score = ({ status }) => (status.value === null ? "" : figure(status.value, status));
  const interval = ({ status }) =>
    status.ci95 === null ? "" : status.ci95.map((bound) => figure(bound, status)).join(" to ").replace(" % to ", " to ");
  // Jobs of different sweeps may have equal names, and a job's tells it from those of its sweep alone.
  let places = new Map(); // by sweep: the shortest end of its folder that no other sweep has
  const nameOf = (run) => (run.sweep !== null && places.size > 1 ? `${run.status.name} in ${places.get(run.sweep)}` : run.status.name);
  function namePlaces(all) {
    const parts = [...new Set(all.map((run) => run.sweep))].filter((sweep) => sweep !== null).map((sweep) => sweep.split("/"));
    const end = (folder, length) => folder.slice(-length).join("/");
    places = new Map(parts.map((folder) => {
      let length = 1;
      while (length < folder.length && parts.some((other) => other !== folder && end(other, length) === end(folder, length))) length += 1;
      return [folder.join("/"), end(folder, length)];
    }));
  }
  const marksOf = (run) => [
    ...(run.status.kind === "tournament" ? ["tournament"] : []),
    ...(run.origin ? [run.origin.split(" ")[0]] : []),
    ...(run.rejudged ? ["judged again"] : []),
  ];
  const sentence = (name) => (name[0] || "").toUpperCase() + name.slice(1).replaceAll("_", " ");
  const progress = ({ status }) => {
    if (status.state === "done") return "";
    const step = status.unit === "steps" ? "step " : "";
    const counted =
      status.done === null || (status.planned === null && !step) ? ""
      : step + count(status.done) + (status.planned === null ? "" : `/${count(status.planned)}`);
    const left = status.left_seconds === null ? "" : `, ${clock(status.left_seconds)} left`;
    return (status.share !== null ? `${Math.round(100 * status.share)} %` : counted) + left;
  };
  const COLUMNS = [
    { key: "run", value: nameOf },
    { key: "state", value: (r) => r.status.state },
    { key: "progress", value: (r) => r.status.share, text: progress, number: true },
    { key: "method", value: (r) => r.method, constant: true },
    { key: "task", value: (r) => r.task, constant: true },
    { key: "model", value: (r) => r.model, constant: true },
    { key: "seed", value: (r) => r.seed, constant: true, number: true },
    { key: "score", value: (r) => r.status.value, text: score, number: true },
    { key: "interval", value: (r) => r.status.ci95 && r.status.ci95[1] - r.status.ci95[0], text: interval, number: true },
    { key: "calls", value: (r) => r.status.calls, text: (r) => short(r.status.calls), number: true },
    { key: "tokens", value: (r) => r.status.tokens, text: (r) => short(r.status.tokens), number: true },
    { key: "price", value: (r) => r.status.price, text: (r) => (r.status.price === null ? "" : `$${r.status.price.toPrecision(3)}`), number: true },
    { key: "gpu_seconds", value: (r) => r.status.gpu_seconds, text: (r) => short(r.status.gpu_seconds), number: true },
    { key: "seconds", value: (r) => r.seconds, text: (r) => clock(r.seconds), number: true },
    { key: "started", value: (r) => r.started, text: (r) => (r.started || "").slice(5, 16).replace("T", " ") },
    { key: "sweep", value: (r) => r.sweep, hidden: true },
    { key: "origin", value: (r) => r.origin, hidden: true },
    { key: "kind", value: (r) => marksOf(r).join(", "), hidden: true },
    { key: "folder", value: (r) => r.status.folder, hidden: true },
    { key: "error", value: (r) => r.status.error || r.status.note, hidden: true },
  ];
  const own = new Map(COLUMNS.map((column) => [column.key, column]));
  const columnOf = (key) =>
    own.get(key) || (settingKeys.includes(key) ? { key, value: (r) => r.settings[key] } : null);
  const textOf = (column, run) => {
    const value = column.value(run);
    return column.text ? column.text(run) : value === null || value === undefined ? "" : String(value);
  };

  /* ---- what the reader has chosen: kept in the address, so that going back brings it back ---- */

  const chosen = { filter: "", group: "", sort: "", order: "", columns: [] };

  function restore() {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const key of ["filter", "group", "sort", "order"]) chosen[key] = given.get(key) || "";
    chosen.columns = given.getAll("column");
    given.getAll("run").forEach((id) => ticked.add(id));
    cursor = given.get("at");
  }

  function remember() {
    const kept = new URLSearchParams();
    for (const key of ["filter", "group", "sort", "order"]) if (chosen[key]) kept.set(key, chosen[key]);
    chosen.columns.forEach((key) => kept.append("column", key));
    ticked.forEach((id) => kept.append("run", id));
    if (cursor) kept.set("at", cursor);
    history.replaceState(null, "", `#${kept}`);
  }

  /* ---- filter, sort, group ---- */

  const OPERATORS = {
    "=": (a, b) => a === b, "!=": (a, b) => a !== b,
    "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
  };

  // All words must hold: `key=value` and its like of that key, any other word anywhere in what is known of a run.
  function filters() {
    const unknown = [];
    const tests = chosen.filter.split(/\s+/).filter(Boolean).map((word) => {
      const found = word.match(/^([\w./-]+?)(!=|<=|>=|=|<|>)(.*)$/);
      const column = found && columnOf(found[1]);
      if (found && !column) unknown.push(found[1]);
      return column ? (run) => compares(column.value(run), found[2], found[3]) : (run) => run.words.includes(word.toLowerCase());
    });
    return { unknown, passes: (run) => tests.every((test) => test(run)) };
  }

  function compares(value, operator, given) {
    const shown = value === null || value === undefined ? "" : String(value);
    if (shown === "" && operator !== "=" && operator !== "!=") return false;
    const wanted = given.endsWith("%") ? Number(given.slice(0, -1)) / 100 : Number(given);
    const numeric = given !== "" && typeof value === "number" && !Number.isNaN(wanted);
    return numeric ? OPERATORS[operator](value, wanted) : OPERATORS[operator](shown.toLowerCase(), given.toLowerCase());
  }

  const collator = new Intl.Collator("en", { numeric: true });

  function sorted(list) {
    const column = columnOf(chosen.sort);
    if (!column) return chosen.order ? list.reverse() : list;
    const direction = chosen.order ? -1 : 1;
    const keyed = list.map((run, place) => ({ run, place, value: column.value(run) ?? null }));
    keyed.sort((a, b) => {
      if (a.value === null || b.value === null) return (a.value === null) - (b.value === null) || a.place - b.place;
      const numbers = typeof a.value === "number" && typeof b.value === "number";
      const found = numbers ? a.value - b.value : collator.compare(String(a.value), String(b.value));
      return direction * found || a.place - b.place;
    });
    return keyed.map(({ run }) => run);
  }

  function grouped(list) {
    const column = columnOf(chosen.group);
    if (!column) return [[null, list]];
    const groups = new Map();
    for (const run of list) {
      const name = textOf(column, run);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(run);
    }
    return [...groups].sort(([a], [b]) => (a === "") - (b === "") || collator.compare(a, b));
  }

  const ORDER = byId("states").dataset.order.split(" ");

  function states(list) {
    const found = ORDER.map((state) => [state, list.filter((run) => run.status.state === state).length]);
    return found.filter(([, n]) => n);
  }

  function summary(name, list) {
    const counted = states(list).map(([state, n]) => `${n} ${state}`).join(", ");
    const scored = list.filter((run) => run.status.value !== null);
    const like = new Set(scored.map((run) => `${run.status.score} ${run.task}`)).size === 1;
    const mean = scored.reduce((sum, run) => sum + run.status.value, 0) / scored.length;
    const said = like ? `; mean ${scored[0].status.score.replaceAll("_", " ")} ${figure(mean, scored[0].status)} (n = ${scored.length})` : "";
    return `${chosen.group} = ${name || "none"}: ${counted}${said}`;
  }

  /* ---- the table ---- */

  function draw() {
    const all = [...runs.values()];
    namePlaces(all);
    const { unknown, passes } = filters();
    const groups = grouped(sorted(all.filter(passes)));
    shown = groups.flatMap(([, list]) => list.map((run) => run.id));
    if (!shown.includes(cursor)) cursor = shown[0] || null;
    const columns = shownColumns(all);
    drawTools(all, columns);
    drawHead(columns);
    const focused = document.activeElement;
    const bodies = groups.map(([name, list]) => {
      const heading = name === null ? [] : [element("tr", {}, element("th", { colspan: columns.length + 1, scope: "rowgroup" }, summary(name, list)))];
      return element("tbody", {}, ...heading, ...list.map((run) => rowOf(run, columns)));
    });
    if (!shown.length && all.length) {
      bodies.push(element("tbody", {}, element("tr", {}, element("td", { class: "none", colspan: columns.length + 1 }, "No run matches the filter. ", clear()))));
    }
    const table = byId("runs");
    table.replaceChildren(table.tHead, ...bodies);
    if (focused && focused !== document.activeElement && table.contains(focused)) focused.focus({ preventScroll: true });
    const parts = [
      `${count(all.length)} runs`,
      ...(shown.length < all.length ? [`${count(shown.length)} shown`] : []),
      ...(ticked.size ? [`${ticked.size} ticked`] : []),
      ...unknown.map((key) => `no key ${key} differs among these runs`),
    ];
    const room = fit(columns);
    byId("said").textContent = hint || visible(all.length ? [...parts, ...room].join(" · ") : "No runs yet.");
    drawPanel();
    remember();
  }

  const clear = () => element("button", { type: "button", class: "button", onclick: () => { chosen.filter = ""; draw(); } }, "Clear the filter");

  // Hide the columns that have no room, the last of these first, and say which; those that the reader has chosen stay.
  const FIRST_TO_GO = ["started", "seconds", "gpu_seconds", "tokens", "model", "task", "price", "calls", "interval", "seed", "method", "progress"];
  const hidden = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, hidden];

  function fit(columns) {
    hidden.replaceSync("");
    const box = byId("runs").parentElement, heads = [...byId("runs").tHead.rows[0].cells].slice(1);
    const style = getComputedStyle(box);
    const room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    let width = byId("runs").scrollWidth;
    const gone = [];
    for (const key of FIRST_TO_GO) {
      const place = columns.findIndex((column) => column.key === key);
      if (width <= room || place < 0 || [chosen.sort, chosen.group, ...chosen.columns].includes(key)) continue;
      width -= heads[place].offsetWidth;
      gone.push([place, key]);
    }
    gone.sort(([a], [b]) => a - b);
    hidden.replaceSync(gone.map(([place]) => `#runs tr > :nth-child(${place + 2}) { display: none; }`).join("\n"));
    const names = gone.map(([, key]) => key.replaceAll("_", " ")).join(", ");
    return gone.length ? [`no room for ${names}: sort by one to see it, or widen the window`] : [];
  }

  // A column that says nothing, or the same of all runs, would only take room.
  function shownColumns(all) {
    const fits = (column) => {
      const texts = new Set(all.map((run) => textOf(column, run)));
      return !column.hidden && (column.constant ? texts.size > 1 : [...texts].some(Boolean));
    };
    const added = [...chosen.columns, ...(chosen.group ? [chosen.group] : [])].map(columnOf).filter(Boolean);
    return [...new Map([...COLUMNS.filter(fits), ...added].map((column) => [column.key, column])).values()];
  }

  function drawHead(columns) {
    const heads = columns.map((column) => {
      const sorts = chosen.sort === column.key;
      const mark = sorts ? (chosen.order ? " ↓" : " ↑") : "";
      const button = element("button", { type: "button", onclick: () => sortBy(column.key) }, column.key.replaceAll("_", " ") + mark);
      const order = sorts ? (chosen.order ? "descending" : "ascending") : null;
      return element("th", { class: classOf(column), "aria-sort": order, scope: "col" }, button);
    });
    byId("runs").tHead.replaceChildren(element("tr", {}, element("th", {}, ""), ...heads));
  }

  const classOf = (column) => [column.number ? "num" : "", column.key === "run" ? "name" : ""].filter(Boolean).join(" ") || null;

  function sortBy(key) {
    chosen.order = chosen.sort === key && !chosen.order ? "descending" : "";
    chosen.sort = key;
    draw();
  }

  function rowOf(run, columns) {
    const signature = `${run.version} ${nameOf(run)} ${columns.map((column) => column.key)}`;
    const known = drawnRows.get(run.id);
    const row = known && known.signature === signature ? known.row : makeRow(run, columns);
    drawnRows.set(run.id, { row, signature });
    row.className = run.id === cursor ? "selected" : "";
    if (run.id === cursor) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
    row.querySelector("input").checked = ticked.has(run.id);
    return row;
  }

  function makeRow(run, columns) {
    const box = element("input", { type: "checkbox", "aria-label": `tick ${visible(nameOf(run))}`, disabled: isComparable(run) ? null : "" });
    const cells = columns.map((column) => {
      const text = textOf(column, run);
      const content = column.key === "run" && run.opens ? element("a", { href: `run/${run.id}` }, text) : text;
      const marks = column.key === "run" ? marksOf(run).map((mark) => element("span", { class: "mark", title: visible(run.origin || mark) }, mark)) : [];
      const classes = [classOf(column), column.key === "state" ? run.status.state : null].filter(Boolean).join(" ");
      const title = column.key === "run" ? run.status.folder : column.key === "state" ? run.status.error || run.status.note : text;
      return element("td", { class: classes || null, title: title ? visible(title) : null }, content, ...marks);
    });
    const row = element("tr", {}, element("td", {}, box), ...cells);
    row.dataset.id = run.id;
    return row;
  }

  function options(select, entries, value) {
    const keys = JSON.stringify(entries);
    if (select.dataset.keys !== keys) {
      select.dataset.keys = keys;
      select.replaceChildren(...entries.map(([key, name]) => element("option", { value: key }, name)));
    }
    select.value = value;
  }

  function drawTools(all, columns) {
    const named = [...COLUMNS.map(({ key }) => key), ...settingKeys.filter((key) => !own.has(key))].map((key) => [key, key]);
    options(byId("group"), [["", "none"], ...named], chosen.group);
    options(byId("sort"), [["", "place"], ...named], chosen.sort);
    const differing = settingKeys.filter((key) => !own.has(key));
    const marks = differing.map((key) => [key, `${chosen.columns.includes(key) ? "✓ " : ""}${key}`]);
    options(byId("column"), [["", "add or remove"], ...marks], "");
    byId("order").value = chosen.order;
    if (byId("filter").value !== chosen.filter) byId("filter").value = chosen.filter;
    const constant = COLUMNS.filter((column) => column.constant && !columns.includes(column) && all.length);
    const said = constant.map((column) => [column.key, textOf(column, all[0])]).filter(([, text]) => text);
    byId("shared").textContent = visible(all.length > 1 && said.length ? `All runs: ${said.map((pair) => pair.join(" ")).join(", ")}` : "");
    const chips = [["all", "", all.length], ...states(all).map(([state, n]) => [state, `state=${state}`, n])];
    byId("states").replaceChildren(...chips.map(([name, filter, n]) => {
      const press = () => { chosen.filter = filter; draw(); };
      return element("button", { type: "button", "aria-pressed": chosen.filter === filter, onclick: press }, `${name} ${count(n)}`);
    }));
    const there = comparable();
    const link = byId("compare");
    link.textContent = there.length ? `Compare ${there.length}` : "Compare";
    link.setAttribute("aria-disabled", there.length < 2);
    if (there.length < 2) link.removeAttribute("href");
    else link.href = comparison(there);
    byId("untick").hidden = !ticked.size;
  }

  const isComparable = (run) => run.opens && run.status.kind === "run";
  const comparable = () => [...runs.keys()].filter((id) => ticked.has(id) && isComparable(runs.get(id)));
  const comparison = (ids) => `compare?${ids.map((id) => `run=${id}`).join("&")}`;

  /* ---- the run under the cursor ---- */

  let panelOf = null, waiting = null, asked = null;

  function drawPanel() {
    const run = runs.get(cursor);
    const wanted = run ? `${run.id} ${run.version}` : `none of ${runs.size ? "some" : "none"}`;
    if (wanted === panelOf) return;
    const same = panelOf && run && panelOf.startsWith(`${run.id} `);
    panelOf = wanted;
    clearTimeout(waiting);
    if (asked) asked.abort();
    if (!run) return byId("panel").replaceChildren(element("p", { class: "note" }, runs.size ? "No run is chosen." : "Runs appear here as they begin."));
    if (!same) byId("panel").replaceChildren(...heading(run));
    if (run.opens) waiting = setTimeout(() => load(run), CURSOR_MS);
  }

  function heading(run) {
    const { status } = run;
    const name = run.opens ? element("a", { href: `run/${run.id}` }, nameOf(run)) : nameOf(run);
    const again = run.rejudged ? `${count(run.rejudged)} time${run.rejudged > 1 ? "s" : ""}: see its report` : "";
    const facts = [
      ["State", status.state], ["Progress", progress(run)], ["Error", status.error], ["Note", status.note],
      [sentence(status.score || "score"), [score(run), interval(run)].filter(Boolean).join(", ")],
      ["Calls", count(status.calls)], ["Tokens", count(status.tokens)], ["Origin", run.origin], ["Judged again", again], ["Sweep", run.sweep], ["Folder", status.folder],
    ].filter(([, value]) => value);
    return [element("h2", {}, name), element("dl", {}, ...facts.flatMap(([k, v]) => [element("dt", {}, k), element("dd", {}, v)]))];
  }

  async function load(run) {
    asked = new AbortController();
    try {
      const answer = await fetch(`live/${run.id}`, { signal: asked.signal });
      const parts = answer.ok ? live(await answer.json()) : [element("p", { class: "note" }, await answer.text())];
      const open = [...byId("panel").querySelectorAll("details")].map((details) => details.open);
      byId("panel").replaceChildren(...heading(run), ...parts);
      byId("panel").querySelectorAll("details").forEach((details, i) => { if (open[i] !== undefined) details.open = open[i]; });
    } catch (error) {
      if (error.name !== "AbortError") panelOf = null; // the next look asks again
    }
  }

  function live({ curves, texts, note }) {
    const written = texts.map(({ role, place, text }, i) =>
      element("details", i ? {} : { open: "" }, element("summary", {}, `${role}, ${place}`), element("pre", { tabindex: 0 }, text || "(empty)")));
    return [
      ...curves.map(drawCurve),
      ...(written.length ? [element("h4", {}, "Last texts, the newest first"), ...written] : []),
      ...(note ? [element("p", { class: "note" }, note)] : []),
    ];
  }

  function drawCurve(curve) {
    const { name, rate, points } = curve;
    const WIDTH = 380, HEIGHT = 170, LEFT = 52, RIGHT = 10, TOP = 10, BOTTOM = 34;
    const values = points.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value]);
    let [bottom, top] = rate ? [0, 1] : [Math.min(...values), Math.max(...values)];
    if (bottom === top) [bottom, top] = [bottom - 0.5, top + 0.5];
    const steps = points.map(({ step }) => step);
    const [first, last] = [Math.min(...steps), Math.max(...steps)];
    const x = (step) => LEFT + (WIDTH - LEFT - RIGHT) * (last > first ? (step - first) / (last - first) : 0.5);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - bottom) / (top - bottom));
    const path = (list) => list.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
    const banded = points.filter(({ low }) => low !== null);
    const band = [...banded.map(({ step, low }) => [step, low]), ...banded.reverse().map(({ step, high }) => [step, high])];
    const label = (value, at) => svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, figure(value, curve));
    const drawing = svg(
      "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${visible(name)} by step` },
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(bottom), y2: y(bottom), class: "rule" }),
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(top), y2: y(top), class: "rule" }),
      label(top, y(top)), label(bottom, y(bottom)),
      svg("path", { d: band.length ? `${path(band)}Z` : "", class: "band" }),
      svg("path", { d: path(points.map(({ step, value }) => [step, value])), class: "line" }),
      ...(points.length < 40 ? points.map(({ step, value }) => svg("circle", { cx: x(step), cy: y(value), r: 2.5, class: "dot" })) : []),
      svg("text", { x: x(first), y: HEIGHT - 18, "text-anchor": last > first ? "start" : "middle" }, first),
      ...(last > first ? [svg("text", { x: x(last), y: HEIGHT - 18, "text-anchor": "end" }, last)] : []),
      svg("text", { x: LEFT + (WIDTH - LEFT - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "step"),
    );
    const final = points[points.length - 1].value;
    return element("div", {}, element("h4", {}, `${sentence(name)}: ${figure(final, curve)}`), drawing);
  }

  /* ---- keyboard and mouse ---- */

  function tick(id) {
    const run = runs.get(id);
    if (!run || !isComparable(run)) return;
    if (!ticked.delete(id)) ticked.add(id);
    draw();
  }

  function moveTo(place) {
    cursor = shown[Math.max(0, Math.min(shown.length - 1, place))] || null;
    if (document.activeElement !== document.body) document.activeElement.blur();
    draw();
    const row = drawnRows.get(cursor);
    if (row) row.row.scrollIntoView({ block: "nearest" });
  }

  const page = () => Math.max(1, Math.floor(byId("runs").parentElement.clientHeight / 28) - 2);
  const KEYS = {
    j: () => moveTo(shown.indexOf(cursor) + 1),
    k: () => moveTo(shown.indexOf(cursor) - 1),
    PageDown: () => moveTo(shown.indexOf(cursor) + page()),
    PageUp: () => moveTo(shown.indexOf(cursor) - page()),
    Home: () => moveTo(0),
    End: () => moveTo(shown.length - 1),
    " ": () => tick(cursor),
    Enter: () => { if (cursor && runs.get(cursor).opens) location.href = `run/${cursor}`; },
    c: () => {
      if (comparable().length > 1) location.href = comparison(comparable());
      else { hint = "Tick two runs or more to compare them."; draw(); }
    },
    "/": () => byId("filter").focus(),
  };
  Object.assign(KEYS, { ArrowDown: KEYS.j, ArrowUp: KEYS.k });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const { target } = event;
    if (target.matches("input[type=search], select")) {
      if (event.key === "Escape" || (event.key === "Enter" && target.id === "filter")) target.blur();
      return;
    }
    // a focused link, box or button keeps the keys that press it; the panel's texts keep those that scroll them
    if ([" ", "Enter"].includes(event.key) && target.matches("a, button, input, summary")) return;
    if (target.closest("#panel") && !["j", "k", "c", "/"].includes(event.key)) return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    hint = "";
    act();
  });

  document.addEventListener("click", () => { hint = ""; }, true);
  byId("runs").addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-id]");
    if (!row) return;
    cursor = row.dataset.id;
    if (event.target.matches("input")) tick(cursor);
    else draw();
  });
  byId("untick").addEventListener("click", () => { ticked.clear(); draw(); });
  byId("filter").addEventListener("input", (event) => { chosen.filter = event.target.value; draw(); });
  for (const key of ["group", "sort", "order"]) {
    byId(key).addEventListener("change", (event) => { chosen[key] = event.target.value; draw(); });
  }
  byId("column").addEventListener("change", (event) => {
    const key = event.target.value;
    chosen.columns = chosen.columns.includes(key) ? chosen.columns.filter((other) => other !== key) : [...chosen.columns, key];
    draw();
  });

  /* ---- what has changed ---- */

  function take({ order, keys, runs: changed }) {
    settingKeys = keys;
    for (const { run, settings } of changed) {
      const known = [run.status.name, run.status.folder, run.status.state, run.status.error, run.status.note, run.method, run.task, run.model, run.origin, ...marksOf(run)];
      const words = [...known, ...Object.entries(settings).map((pair) => pair.join("="))].join("\n").toLowerCase();
      runs.set(run.id, { ...run, settings, words, version });
    }
    const there = order.map((id) => [id, runs.get(id)]);
    runs.clear();
    there.forEach(([id, run]) => runs.set(id, run));
    for (const id of drawnRows.keys()) if (!runs.has(id)) drawnRows.delete(id);
    for (const id of ticked) if (!runs.has(id)) ticked.delete(id);
  }

  async function look() {
    if (!document.hidden) {
      try {
        const answer = await fetch(`runs.json?since=${version}`);
        if (!answer.ok) throw new Error(answer.status);
        const news = await answer.json();
        const isNews = news.version !== version;
        version = news.version;
        byId("ended").hidden = true;
        if (isNews && news.order) take(news);
        if (isNews || panelOf === null) draw();
      } catch (error) {
        byId("ended").hidden = false;
      }
    }
    setTimeout(look, POLL_MS);
  }

  new ResizeObserver(() => { if (runs.size) draw(); }).observe(byId("runs").parentElement);
  restore();
  look();
})();

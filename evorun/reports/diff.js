// The lines of `after` against those of `before`, as [sign, line]: " " stands in both, "-" has gone, "+" is new.
// As many lines as possible are common (the longest common subsequence).
const lineDiff = (before, after) => {
  const old = before.split("\n"), fresh = after.split("\n");
  const shortest = Math.min(old.length, fresh.length);
  let head = 0, tail = 0;
  while (head < shortest && old[head] === fresh[head]) head++;
  while (tail < shortest - head && old[old.length - 1 - tail] === fresh[fresh.length - 1 - tail]) tail++;
  const left = old.slice(head, old.length - tail), right = fresh.slice(head, fresh.length - tail);
  // common[i][j]: lines in common from the i-th on the left and the j-th on the right
  const common = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      common[i][j] = left[i] === right[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = old.slice(0, head).map((line) => [" ", line]);
  let i = 0, j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      lines.push([" ", left[i++]]);
      j++;
    } else if (j === right.length || (i < left.length && common[i + 1][j] >= common[i][j + 1])) {
      lines.push(["-", left[i++]]);
    } else {
      lines.push(["+", right[j++]]);
    }
  }
  return [...lines, ...old.slice(old.length - tail).map((line) => [" ", line])];
};

// A candidate's text against a parent's, line by line, folded unless `open`; nothing without parents.
function changes({ text }, parents, open = false) {
  const known = [...new Set(parents)];
  if (!known.length) return [];
  const lines = element("pre", { class: "diff", tabindex: 0 });
  const choice = element("select", {}, ...known.map((parent, i) => element("option", { value: i }, parent.id)));
  const compare = () => {
    const tones = { "+": "added", "-": "gone", " ": "common" };
    const compared = lineDiff(known[Number(choice.value)].text, text);
    lines.replaceChildren(...compared.map(([sign, line]) => element("span", { class: tones[sign] }, `${sign} ${line}\n`)));
  };
  choice.addEventListener("change", compare);
  compare();
  const label = element("label", { class: "note" }, "Compared with parent ", choice);
  const title = element("summary", {}, "Changes, line by line");
  return [element("details", { class: "changes", open: open ? "" : null }, title, label, lines)];
}

"use strict";
// Everything shown may be hostile text: nodes are made one by one and texts go in through textContent only.
const byId = (id) => document.getElementById(id);

const CONTROLS = /[\u0000-\u0008\u000b-\u001f]/g;
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const visible = (text) =>
  String(text)
    .replace(CONTROLS, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(DIRECTIONS, "\ufffd");

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children) {
    node.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of children) node.append(child instanceof Node ? child : visible(child));
  return node;
}

const folded = (title, text) => element("details", {}, element("summary", {}, title), element("pre", {}, text));

// A number with a true minus sign, as the tables have it.
const signed = (shown) => String(shown).replace(/^-/, "−");

// The method's belief in a candidate.
const belief = ({ mean, sd }) =>
  mean === null ? "–" : signed(mean.toFixed(2)) + (sd === null ? "" : ` ± ${sd.toFixed(2)}`);

// The JSON that an element holds, compressed; null where the web browser cannot unpack it.
async function unpacked(id) {
  if (!("DecompressionStream" in window)) return null;
  const packed = Uint8Array.from(atob(byId(id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

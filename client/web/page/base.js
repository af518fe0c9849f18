/* Elements from descriptions, and numbers, times and texts as people read them. */

const $ = (id) => document.getElementById(id);

const present = (list) => list.flat(9).filter((c) => c !== null && c !== undefined && c !== false);

/* Describes an element: h("td.num", {key: 1}, "text"). Attributes may be left out: `key` tells siblings apart, `css` is a table of
 * properties, `own` leaves the children to others. Children are descriptions, texts or lists of them; null and false are left
 * out. */
function h(name, ...children) {
  const first = children[0], given = first && typeof first === "object" && !first.tag && !Array.isArray(first);
  const attributes = given ? {...children.shift()} : {}, [tag, ...classes] = name.split(".");
  if (classes.length) attributes.class = classes.join(" ");
  return {tag, attributes, children: present(children)};
}

/* A button that does acts[act] of main.js. */
function button(act, label, kind) {
  return h(kind ? "button." + kind : "button", {type: "button", "data-act": act}, label);
}

const SVG = new Set(["svg", "path", "polyline", "circle", "line"]);

function make_element(tag) {
  return SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
}

function set_attributes(element, wanted) {
  const had = element.ddp || {};
  for (const name of Object.keys(had))
    if (!(name in wanted)) element.removeAttribute(name);
  for (const [name, value] of Object.entries(wanted)) {
    if (name === "key" || name === "own") continue;
    if (name === "css") {
      for (const property of Object.keys(value)) element.style.setProperty(property, value[property]);
    } else if ((name === "checked" || name === "value") && element.nodeName !== "OPTION") {
      if (element[name] !== value && element !== document.activeElement) element[name] = value;
    } else if (value === false || value === null || value === undefined) {
      element.removeAttribute(name);
    } else if (had[name] !== value) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.ddp = wanted;
}

/* Makes the children of an element those that are described. Elements of the same key or tag are kept, and with them the focus,
 * the selection and the scroll position. Text is only ever set as text. */
function patch(parent, ...described) {
  const keyed = new Map();
  for (const child of parent.childNodes)
    if (child.ddp && child.ddp.key !== undefined) keyed.set(child.ddp.key, child);
  let at = parent.firstChild;
  for (const item of present(described)) {
    let node = null;
    if (typeof item !== "object") {
      node = at && at.nodeType === 3 ? at : document.createTextNode("");
      if (node.data !== String(item)) node.data = String(item);
    } else {
      const key = item.attributes.key;
      if (key !== undefined) node = keyed.get(key);
      else if (at && at.ddp && at.ddp.key === undefined && at.nodeName.toLowerCase() === item.tag) node = at;
      if (node && node.nodeName.toLowerCase() !== item.tag) node = null;
      node = node || make_element(item.tag);
      set_attributes(node, item.attributes);
      if (!item.attributes.own) patch(node, ...item.children);
      if (item.tag === "select" && node.value !== item.attributes.value) node.value = item.attributes.value; // after its options
    }
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/* Text of programs and users may hold escape sequences of terminals, control characters and marks that reverse the direction. */
function plain(text) {
  return String(text ?? "")
    .replace(/\x1b\[[0-9;?]*[\x20-/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)/g, "")
    .replace(/[\x00-\x08\x0b-\x1f\x7f]/g, (c) => String.fromCharCode(0x2400 + (c.charCodeAt(0) & 0x3f)))
    .replace(/[\u202a-\u202e\u2066-\u2069\u200e\u200f]/g, "\ufffd");
}

const count_format = new Intl.NumberFormat("en-US");
function count(n) {
  return count_format.format(n);
}

/* 4 digits that matter: 1.304, 0.0016, 23.5k, 1.2e-5. */
function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return value === undefined ? "" : "nan";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-4 || size >= 1e15) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  for (const [unit, sign] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [9999.5, "k"]])
    if (size >= unit) return trim((value / (sign === "k" ? 1e3 : unit)).toPrecision(4)) + sign;
  return trim(size < 1 ? value.toPrecision(3) : value.toPrecision(4));
}

function trim(text) {
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

function bytes(n) {
  let unit = 0;
  for (; n >= 1024 && unit < 5; unit++) n /= 1024;
  return n ? (unit && n < 100 ? n.toPrecision(3) : Math.round(n)) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit] : "";
}

/* 0.4s, 51s, 2m51s, 3h07m, 2d4h */
function span(ms) {
  const s = Math.max(0, ms) / 1000;
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (s < 10) return trim(s.toFixed(1)) + "s";
  if (s < 60) return Math.floor(s) + "s";
  if (s < 3600) return Math.floor(s / 60) + "m" + two(s % 60) + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h" + two((s % 3600) / 60) + "m";
  return Math.floor(s / 86400) + "d" + Math.floor((s % 86400) / 3600) + "h";
}

function clock(ms) {
  if (!ms) return "";
  const date = new Date(ms), today = new Date();
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === today.toDateString() ? time : date.toLocaleDateString("en-CA") + " " + time;
}

function ago(ms) {
  return span(Date.now() - ms).replace(/(\d[a-z])\d+s$/, "$1") + " ago";
}

/* Calls a function at most once each frame, or each `ms` milliseconds. */
function once_a(ms, f) {
  let waits = false, last = 0;
  return () => {
    if (waits) return;
    waits = true;
    setTimeout(() => {
      waits = false;
      last = performance.now();
      f();
    }, Math.max(0, ms - (performance.now() - last)));
  };
}

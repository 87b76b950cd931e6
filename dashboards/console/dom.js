// Making and changing elements. Text only ever goes in as text: names come from users.

const SVG = "http://www.w3.org/2000/svg";

function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "onclick" || name === "onkeydown") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An element: el("td", {class: "number"}, "12"). */
export function el(tag, attributes, ...children) {
  return put(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return put(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Changes the text only where it differs: the browser has nothing to do otherwise. */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/**
 * Brings the children of `parent` in line with `items`: one element for each key, made once, filled
 * anew each time, in this order. Whoever has the focus keeps it.
 */
export function keyed(parent, items, key, make, fill) {
  parent.known ??= new Map();
  const known = parent.known;
  const wanted = new Set();
  let before = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    wanted.add(name);
    let element = known.get(name);
    if (element === undefined) {
      element = make(item);
      known.set(name, element);
    }
    fill(element, item);
    if (element === before) before = before.nextElementSibling;
    else parent.insertBefore(element, before);
  }
  for (const [name, element] of known) {
    if (!wanted.has(name)) {
      element.remove();
      known.delete(name);
    }
  }
}

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export function count(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 100 && !Number.isInteger(value) ? fine.format(value) : plain.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? fine.format(value) : plain.format(value)} ${units[unit]}`;
}

export function time(wallMs) {
  return clock.format(wallMs);
}

export function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : (many ?? `${one}s`)}`;
}

// What people do with the picture: pan, zoom, open, search, select, choose what colours say.

const $ = (id) => document.getElementById(id);
const canvas = $("graph"), panel = $("panel"), hits = $("hits"), search = $("search");
const data = JSON.parse($("data").textContent);
const METRICS = { time: "Time", bytes: "Bytes", flops: "FLOPs" };
const MARGIN = 28, LARGEST_SCALE = 3, IN_SIGHT = 96;

/** Groups around each node and group, from the inside out. */
const parentOf = (what, index) => (what === "node" ? data.nodes[index].group : data.groups[index].parent);
function* ancestorsOf(what, index) {
  for (let at = parentOf(what, index); at !== undefined; at = data.groups[at].parent) yield at;
}
const depthOf = data.groups.map(() => 0);
data.groups.forEach((group, at) => { if (group.parent !== undefined) depthOf[at] = depthOf[group.parent] + 1; });

const inputsOf = data.nodes.map(() => []), usersOf = data.nodes.map(() => []);
for (const [from, to] of data.edges) {
  inputsOf[to].push(from);
  usersOf[from].push(to);
}

/** How many nodes of each kind, and with each sort of change, a group holds. */
const kindsIn = data.groups.map((group) => new Map(group.kinds)), changesIn = data.groups.map(() => new Map());
data.nodes.forEach((node, at) => {
  for (const group of ancestorsOf("node", at)) {
    if (node.change) changesIn[group].set(node.change.state, (changesIn[group].get(node.change.state) ?? 0) + 1);
  }
});

const state = {
  fitted: true, open: new Set(), overlay: data.overlay ?? "kind", selected: null, found: null,
  view: { x: 0, y: 0, scale: 1 }, picture: null, largest: 0,
  // How wide wrapped columns are to be for their height, and 0 if they are not wrapped.
  aspect: 0, sizesHidden: false,
};
const hides = (node) => state.sizesHidden && Boolean(data.nodes[node].shape_arithmetic);
const pictureNow = () => pictureOf(data, state.open, state.aspect, hides);

// -- text -------------------------------------------------------------------------------------

const UNITS = {
  time: [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"]],
  bytes: [[1, "B"], [1024, "KiB"], [1048576, "MiB"], [1073741824, "GiB"]],
  flops: [[1, "FLOP"], [1e3, "kFLOP"], [1e6, "MFLOP"], [1e9, "GFLOP"], [1e12, "TFLOP"]],
};
function amountText(metric, amount) {
  const [size, unit] = UNITS[metric].findLast(([size]) => amount >= size) ?? UNITS[metric][0];
  const number = amount / size;
  return `${+number.toFixed(number >= 100 ? 0 : number >= 10 ? 1 : 2)} ${unit}`;
}

/** An element with text in it. All text of the graph gets on the page through here, as text. */
function element(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else made.setAttribute(key, value);
  }
  made.append(...content.map((part) => (part instanceof Node ? part : String(part))));
  return made;
}

const kindLabel = new Map(data.kinds);
/** How many nodes of each part a group holds, and the colour of a part. */
const partsIn = data.groups.map((group) => group.parts ?? []);
const partColour = (part) => `part-${part % data.part_colors}`;
const titleOf = (what, index) => (what === "node" ? data.nodes[index].name : data.groups[index].path);

// -- colours ----------------------------------------------------------------------------------

const isDark = matchMedia("(prefers-color-scheme: dark)");
let colour = coloursNow();

const quantitiesOf = (box) => (box.what === "node" ? data.nodes[box.index] : data.groups[box.index]);
function heatStep(amount) {
  const share = state.largest > 0 ? Math.sqrt(Math.min(Math.max(amount / state.largest, 0), 1)) : 0;
  return Math.round(share * (data.steps - 1));
}
/** The names of the colours of a box: inside, outline, text where it is not the usual. */
function colourOf(box) {
  const node = box.what === "node" ? data.nodes[box.index] : null;
  if (state.overlay === "part") {
    const parts = node ? (node.part === undefined ? [] : [node.part]) : partsIn[box.index].map(([part]) => part);
    if (parts.length !== 1) return { fill: "page", strong: parts.length ? "muted" : "outline" };
    return { fill: `tint-${partColour(parts[0])}`, strong: partColour(parts[0]) };
  }
  if (state.overlay !== "kind") {
    const amount = quantitiesOf(box)[state.overlay];
    if (amount === undefined) return { fill: "page", strong: "outline" };
    const step = heatStep(amount), heat = `heat-${step}`;
    return { fill: heat, strong: step < 2 ? "outline" : heat, onFill: step > 5 ? "page" : step > 2 ? "ink" : undefined };
  }
  if (data.summary !== null && data.summary !== undefined) {
    const change = node ? node.change?.state : strongestChange(box.index);
    if (!change) return { fill: "page", strong: "outline" };
    return { fill: `tint-${change}`, strong: change, dashed: change === "removed" };
  }
  if (!node) return { fill: "page", strong: "muted" };
  return { fill: `tint-${node.kind}`, strong: `kind-${node.kind}` };
}
/** The one sort of change in a module; several are shown as a change. */
function strongestChange(group) {
  const states = [...changesIn[group].keys()];
  return states.length > 1 ? "changed" : states[0];
}
function mixOf(group) {
  const size = data.groups[group].size;
  if (state.overlay === "part") return partsIn[group].map(([part, count]) => [partColour(part), count / size]);
  if (state.overlay !== "kind") return [];
  if (data.summary) return [...changesIn[group]].map(([change, count]) => [change, count / size]);

  return [...kindsIn[group]].map(([kind, count]) => [`kind-${kind}`, count / size]);
}

// -- what is visible --------------------------------------------------------------------------

// A frame that is not shown yet has no size.
const size = () => [Math.max(innerWidth, 1), Math.max(innerHeight, 1)];
/** How much of the window the header covers. */
const headRoom = () => $("title").parentElement.getBoundingClientRect().bottom + 10;
/** How much of it the legend covers, besides a margin. */
const footRoom = () => Math.max(0, $("legend").offsetHeight - 10);
const isPhone = matchMedia("(max-width: 640px)");

/** Lays out what is open now, keeping `anchor` (a box) where it is on the screen. */
function layout(anchor) {
  const find = () => anchor && state.picture?.boxes.find((b) => b.what === anchor.what && b.index === anchor.index);
  const before = find();
  state.picture = pictureNow();
  const after = find();
  if (before && after) {
    state.view.x += after.x + after.width / 2 - before.x - before.width / 2;
    state.view.y += after.y - before.y;
  }
  measureLargest();
  redraw();
}
function measureLargest() {
  state.largest = 0;
  if (!(state.overlay in METRICS)) return;
  for (const box of state.picture.boxes) {
    if (!box.open) state.largest = Math.max(state.largest, quantitiesOf(box)[state.overlay] ?? 0);
  }
}

/** The scale and corner at which all of it fits into the window. */
function fittingView(picture, largest = 1.15) {
  const [width, height] = size(), head = headRoom(), foot = footRoom();
  const scale = Math.max(1e-4, Math.min((width - 2 * MARGIN) / Math.max(picture.width, 1),
    (height - head - 2 * MARGIN - foot) / Math.max(picture.height, 1), largest));
  return {
    scale, x: picture.width / 2 - width / 2 / scale,
    y: picture.height / 2 - (height + head - foot) / 2 / scale,
  };
}
function fit() {
  state.fitted = true;
  moveTo(fittingView(state.picture));
}

/** Opens modules from the outside in, as long as the text of all that is visible can be read. */
function openAtFirst() {
  if (data.depth !== null && data.depth !== undefined) {
    data.groups.forEach((_, at) => { if (depthOf[at] < data.depth) state.open.add(at); });
    return;
  }
  if (data.summary && data.nodes.length < 20000) {
    data.nodes.forEach((node, at) => {
      if (node.change) for (const group of ancestorsOf("node", at)) state.open.add(group);
    });
    if (fittingView(pictureOf(data, state.open)).scale > 0.45) return;
    state.open.clear();
  }
  const deepest = Math.max(-1, ...new Set(depthOf));
  for (let depth = 0; depth <= deepest; depth++) {
    const tried = new Set(state.open);
    data.groups.forEach((_, at) => { if (depthOf[at] === depth) tried.add(at); });
    if (tried.size - state.open.size > 60) return;
    if (fittingView(pictureOf(data, tried)).scale < 0.7) return;
    state.open = tried;
  }
}

/** Below this scale, a column that fits into the window is wrapped from the beginning. */
const THIN = 0.12;
function windowAspect() {
  const [width, height] = size();
  return Math.max(0.2, width / Math.max(height - headRoom(), 1));
}
function setWrapped(wraps) {
  state.aspect = wraps ? windowAspect() : 0;
  $("wrap").setAttribute("aria-pressed", String(wraps));
}
function toggleWrapped() {
  setWrapped(!state.aspect);
  layout();
  fit();
  say(state.aspect ? "long columns are wrapped" : "columns are not wrapped");
}
function toggleSizes() {
  if ($("sizes").hidden) return;
  state.sizesHidden = !state.sizesHidden;
  $("sizes").setAttribute("aria-pressed", String(state.sizesHidden));
  const { selected, fitted } = state;
  if (selected?.what === "node" && hides(selected.index)) select(null);
  layout(state.selected);
  if (fitted) fit();
  say(state.sizesHidden ? "what computes sizes is hidden" : "what computes sizes is shown");
}

function toggle(group) {
  state.fitted = false;
  const opens = !state.open.has(group);
  if (opens) {
    state.open.add(group);
    // A module that holds one module and nothing else would only be another click.
    let level = data.levels[group + 1];
    for (;;) {
      const inside = level.items.filter(([what]) => what === "node" || what === "group");
      if (inside.length !== 1 || inside[0][0] !== "group") break;
      state.open.add(inside[0][1]);
      level = data.levels[inside[0][1] + 1];
    }
  } else state.open.delete(group);
  layout({ what: "group", index: group });
  say(`${data.groups[group].path} ${opens ? "opened" : "closed"}`);
  if (state.selected?.what === "group" && state.selected.index === group) showPanel();
}
function setAll(opens) {
  state.open = new Set(opens ? data.groups.keys() : []);
  layout();
  fit();
  say(opens ? "all modules opened" : "all modules closed");
}

// -- the view ---------------------------------------------------------------------------------

const still = matchMedia("(prefers-reduced-motion: reduce)");
let motion = 0;
/** Goes to a view, smoothly unless the reader wants no motion. */
function moveTo(target) {
  cancelAnimationFrame(motion);
  if (still.matches || state.picture.boxes.length > 3000) {
    state.view = target;
    return redraw();
  }
  const from = { ...state.view }, start = performance.now();
  const [width, height] = size();
  const centre = (v) => [v.x + width / 2 / v.scale, v.y + height / 2 / v.scale];
  const [a, b] = [centre(from), centre(target)];
  const frame = (now) => {
    const t = Math.min((now - start) / 180, 1), ease = t * (2 - t);
    const scale = from.scale * (target.scale / from.scale) ** ease;
    state.view = {
      scale, x: a[0] + (b[0] - a[0]) * ease - width / 2 / scale,
      y: a[1] + (b[1] - a[1]) * ease - height / 2 / scale,
    };
    redraw();
    if (t < 1) motion = requestAnimationFrame(frame);
    else state.view = target;
  };
  motion = requestAnimationFrame(frame);
}
/** `view`, or the closest one in which the picture is not out of sight. */
function inSight({ scale, x, y }) {
  const { picture } = state, [width, height] = size();
  // How much of the window or, if that is less, of the picture is to be seen at least.
  const apart = (window, whole) => Math.min(IN_SIGHT / scale, window / scale, whole);
  const across = apart(width, picture.width), down = apart(height - headRoom(), picture.height);
  return {
    scale, x: Math.min(Math.max(x, across - width / scale), picture.width - across),
    y: Math.min(Math.max(y, down - height / scale), picture.height - down - headRoom() / scale),
  };
}
function zoom(factor, x = innerWidth / 2, y = innerHeight / 2) {
  state.fitted = false;
  const { view } = state, smallest = Math.min(fittingView(state.picture).scale, 0.2) / 2;
  const scale = Math.min(Math.max(view.scale * factor, smallest), LARGEST_SCALE);
  state.view = inSight({ scale, x: view.x + x / view.scale - x / scale, y: view.y + y / view.scale - y / scale });
  redraw();
}
function pan(dx, dy) {
  state.fitted = false;
  const { view } = state;
  state.view = inSight({ scale: view.scale, x: view.x - dx / view.scale, y: view.y - dy / view.scale });
  redraw();
}

// -- painting ---------------------------------------------------------------------------------

const context = canvas.getContext("2d", { alpha: false });
// The last picture that took long to paint, and the view that it was painted for: while the view
// moves it is moved, and painted again when the view rests.
const stale = document.createElement("canvas");
let lastPaint = { view: null, took: 0 }, waiting = 0, settling = 0;

function redraw() {
  waiting ||= requestAnimationFrame(() => {
    waiting = 0;
    const { view } = lastPaint, zoomed = view && state.view.scale !== view.scale;
    const moved = view && (zoomed || view.x !== state.view.x || view.y !== state.view.y);
    if (lastPaint.took > 24 && moved && lastPaint.picture === state.picture) {
      shift();
      clearTimeout(settling);
      settling = setTimeout(paintNow, 90);
    } else paintNow();
  });
}
/** Shows the last picture where it would be now. */
function shift() {
  const { view, ratio } = lastPaint, [width, height] = size(), k = state.view.scale / view.scale;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colour("page");
  context.fillRect(0, 0, width, height);
  context.drawImage(stale, (view.x - state.view.x) * state.view.scale, (view.y - state.view.y) * state.view.scale,
    width * k, height * k);
  showMap();
}
function paintNow() {
  const [width, height] = size(), ratio = Math.min(devicePixelRatio || 1, 2);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const start = performance.now(), { selected, found } = state;
  paint(context, data, state.picture, state.view, width, height, {
    colour, colourOf, mixOf, ratio, faded: Boolean(selected),
    selected: (box) => selected && box.what === selected.what && box.index === selected.index,
    isFaint: (box) => Boolean(found) && !found.has(`${box.what} ${box.index}`),
    highlighted: selected && joins(selected),
  });
  const took = performance.now() - start;
  lastPaint = { view: { ...state.view }, took, ratio, picture: state.picture };
  showMap();
  if (took > 24) {
    stale.width = canvas.width;
    stale.height = canvas.height;
    stale.getContext("2d").drawImage(canvas, 0, 0);
  }
  // The frame after this one begins when this one is painted.
  if (!window.corsac.firstPaint) requestAnimationFrame(() => { window.corsac.firstPaint ||= performance.now(); });
}
/** Whether a line leads to or from what is selected. */
function joins({ what, index }) {
  const around = new Set(ancestorsOf(what, index));
  const inside = (node) => node === index && what === "node"
    || what === "group" && [...ancestorsOf("node", node)].includes(index);
  const made = new Set(), used = new Set();
  data.edges.forEach(([from, to]) => {
    const [a, b] = [inside(from), inside(to)];
    if (a && !b) made.add(from);
    if (b && !a) used.add(from);
  });
  return (wire) => made.has(wire.value) || used.has(wire.value)
    && (wire.to[0] === "outlet" || wire.to[0] === what && wire.to[1] === index
      || wire.to[0] === "group" && around.has(wire.to[1]));
}

// -- the map ----------------------------------------------------------------------------------

// All of the picture, small, with a frame around what is seen; where all of it is seen, there is none.
const map = { canvas: $("map"), whole: document.createElement("canvas"), picture: null, overlay: null, scale: 1 };
const MAP_WIDTH = 180, MAP_HEIGHT = 260;
function showMap() {
  const { picture, view } = state, [width, height] = size(), head = headRoom();
  const seesAll = view.x <= 1 && view.y + head / view.scale <= 1
    && view.x + width / view.scale >= picture.width - 1 && view.y + height / view.scale >= picture.height - 1;
  map.canvas.hidden = seesAll || width <= 640 || !picture.boxes.length;
  if (map.canvas.hidden) return;
  if (map.picture !== picture || map.overlay !== state.overlay) drawMap();
  const small = map.canvas.getContext("2d"), k = map.scale;
  small.setTransform(1, 0, 0, 1, 0, 0);
  small.drawImage(map.whole, 0, 0);
  small.scale(devicePixelRatio, devicePixelRatio);
  small.strokeStyle = colour("ink");
  small.lineWidth = 1.5;
  const within = (at, most) => Math.min(Math.max(at * k, 1), most - 1);
  const [right, bottom] = [map.canvas.width / devicePixelRatio, map.canvas.height / devicePixelRatio];
  const [x, y] = [within(view.x, right), within(view.y + head / view.scale, bottom)];
  small.strokeRect(x, y, within(view.x + width / view.scale, right) - x, within(view.y + height / view.scale, bottom) - y);
}
function drawMap() {
  const { picture } = state, ratio = devicePixelRatio;
  map.scale = Math.min(MAP_WIDTH / picture.width, MAP_HEIGHT / picture.height, 0.5);
  const width = Math.max(picture.width * map.scale, 24), height = Math.max(picture.height * map.scale, 24);
  for (const drawn of [map.whole, map.canvas]) {
    drawn.width = Math.round(width * ratio);
    drawn.height = Math.round(height * ratio);
  }
  map.canvas.style.width = `${width}px`;
  map.canvas.style.height = `${height}px`;
  paint(map.whole.getContext("2d"), data, picture, { x: 0, y: 0, scale: map.scale }, width, height, plainStyle(ratio));
  Object.assign(map, { picture, overlay: state.overlay });
}
function goOnMap(event) {
  if (!event.buttons) return;
  const at = map.canvas.getBoundingClientRect(), [width, height] = size(), { scale } = state.view;
  state.fitted = false;
  state.view = inSight({
    scale, x: (event.clientX - at.left) / map.scale - width / 2 / scale,
    y: (event.clientY - at.top) / map.scale - (height + headRoom()) / 2 / scale,
  });
  redraw();
}
map.canvas.addEventListener("pointerdown", (event) => {
  cancelAnimationFrame(motion);
  map.canvas.setPointerCapture(event.pointerId);
  goOnMap(event);
});
map.canvas.addEventListener("pointermove", goOnMap);

// -- pictures to keep -------------------------------------------------------------------------

/** How all of the picture is painted, with nothing selected and nothing looked for. */
const plainStyle = (ratio) => ({
  colour, colourOf, mixOf, ratio, faded: false, selected: () => false, isFaint: () => false, highlighted: null,
});
const EXPORT_MARGIN = 24, LONGEST_SIDE = 8192;
function paintedWhole(target, scale, ratio) {
  const { picture } = state;
  const [width, height] = [picture.width, picture.height].map((side) => (side + 2 * EXPORT_MARGIN) * scale);
  paint(target, data, picture, { x: -EXPORT_MARGIN, y: -EXPORT_MARGIN, scale }, width, height, plainStyle(ratio));
  return [width, height];
}
function svgText() {
  const target = new SvgContext(context), [width, height] = paintedWhole(target, 1, 1);
  return target.document(width, height, data.title);
}
function save(blob, suffix) {
  const url = URL.createObjectURL(blob), name = data.title.replace(/[^\w.-]+/g, "_") || "graph";
  element("a", { href: url, download: `${name}.${suffix}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  say(`saved as ${name}.${suffix}`);
}
function saveSvg() {
  save(new Blob([svgText()], { type: "image/svg+xml" }), "svg");
}
function savePng() {
  const { picture } = state, side = Math.max(picture.width, picture.height) + 2 * EXPORT_MARGIN;
  const ratio = Math.min(2, LONGEST_SIDE / side), target = document.createElement("canvas");
  target.width = Math.ceil((picture.width + 2 * EXPORT_MARGIN) * ratio);
  target.height = Math.ceil((picture.height + 2 * EXPORT_MARGIN) * ratio);
  paintedWhole(target.getContext("2d", { alpha: false }), ratio, 1);
  target.toBlob((blob) => save(blob, "png"));
}

// -- links ------------------------------------------------------------------------------------

/** The address names what is selected: `#conv1`, the name of a node or the path of a module. */
function showLink() {
  const { selected } = state;
  const hash = selected ? `#${encodeURIComponent(titleOf(selected.what, selected.index))}` : "";
  try {
    if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname + location.search);
  } catch {
    // A frame in a notebook has no address.
  }
}
function goToLink() {
  let name = location.hash.slice(1);
  try {
    name = decodeURIComponent(name);
  } catch {
    // It is taken as it is.
  }
  if (!name) return;
  const node = data.nodes.findIndex((node) => node.name === name);
  const group = data.groups.findIndex((group) => group.path === name);
  if (node >= 0) reveal("node", node);
  else if (group >= 0) reveal("group", group);
}

/** What all nodes cost together, as far as it is known. */
function totals() {
  return Object.keys(METRICS).flatMap((metric) => {
    const known = data.nodes.map((node) => node[metric]).filter((amount) => amount !== undefined);
    return known.length ? [amountText(metric, known.reduce((a, b) => a + b, 0))] : [];
  });
}

// -- selecting --------------------------------------------------------------------------------

function say(text) {
  $("status").textContent = text;
}
function select(chosen) {
  state.selected = chosen;
  showLink();
  showPanel();
  redraw();
  if (chosen) say(`${titleOf(chosen.what, chosen.index)} selected`);
}
/** Opens what is around a node or module, selects it and brings it into view. */
function reveal(what, index) {
  let opened = false;
  if (what === "node" && hides(index)) toggleSizes();
  for (const group of ancestorsOf(what, index)) {
    opened ||= !state.open.has(group);
    state.open.add(group);
  }
  if (opened) layout();
  select({ what, index });
  state.fitted = false;
  const box = state.picture.boxes.find((b) => b.what === what && b.index === index);
  if (!box) return;
  const scale = Math.max(state.view.scale, 0.8), [width, height] = size();
  // Beside the panel, or above it.
  const [aside, below] = panel.hidden ? [0, 0] : isPhone.matches ? [0, 0.45 * height - headRoom()] : [340, 0];
  moveTo({
    scale, x: box.x + box.width / 2 - (width - aside) / 2 / scale,
    y: box.y + box.height / 2 - (height - below) / 2 / scale,
  });
}

function showPanel() {
  const { selected } = state;
  panel.hidden = !selected;
  if (!selected) return;
  panel.replaceChildren(
    element("button", { class: "dismiss", "aria-label": "Close details", onclick: () => select(null) }, "×"),
    ...(selected.what === "node" ? nodeDetails(selected.index) : groupDetails(selected.index)));
  panel.scrollTop = 0;
}
function listOf(rows) {
  const list = element("dl");
  for (const [label, ...content] of rows) {
    const shown = content.filter((part) => part !== undefined && part !== "");
    if (shown.length) list.append(element("dt", {}, label), element("dd", {}, ...shown));
  }
  return list;
}
const amountRows = (thing) => Object.entries(METRICS).map(([metric, label]) =>
  [label, thing[metric] === undefined ? undefined : amountText(metric, thing[metric])]);
function links(nodes) {
  const shown = nodes.slice(0, 24).map((at) =>
    element("button", { class: "link", onclick: () => reveal("node", at) }, data.nodes[at].name));
  if (nodes.length > 24) shown.push(`and ${nodes.length - 24} more`);
  return shown;
}
function chip(kind) {
  const made = element("span", { class: "kind" }, kindLabel.get(kind));
  made.style.background = `var(--tint-${kind})`;
  made.style.borderColor = `var(--kind-${kind})`;
  return made;
}
function nodeDetails(index) {
  const node = data.nodes[index], { change } = node;
  const code = (text) => (text === undefined || text === "" ? undefined : element("code", {}, text));
  const written = (node.arguments ?? []).map(([key, value]) => (key ? `${key}=${value}` : value)).join(",\n");
  const [innermost] = ancestorsOf("node", index);
  const module = innermost === undefined ? undefined
    : element("button", { class: "link", onclick: () => reveal("group", innermost) }, data.groups[innermost].path);
  const parts = [element("h2", {}, node.title), chip(node.kind)];
  if (change?.state === "changed") {
    parts.push(element("pre", { class: "before" }, change.before), element("pre", { class: "after" }, change.after));
  } else if (change) {
    parts.push(element("p", {}, { added: "Added.", removed: "Removed.", moved: "Moved." }[change.state]));
  }
  parts.push(listOf([
    ["Name", code(node.name)], ["Opcode", code(node.op)], ["Target", code(node.target)],
    ["Class", code(node.class)], ["Settings", code(node.settings)], ["Arguments", code(written)],
    ["Shape", node.shape], ["Dtype", node.dtype], ["Source", code(node.source)], ["Module", module],
    ...amountRows(node), ["Part", node.part], ...(node.more ?? []),
    ["Uses", ...links(inputsOf[index])], ["Used by", ...links(usersOf[index])],
  ]));
  return parts;
}
function groupDetails(index) {
  const group = data.groups[index], opens = !state.open.has(index);
  const mix = element("div", { class: "mix" });
  for (const [name, share] of mixOf(index)) {
    const part = element("span");
    part.style.cssText = `flex:${share};background:var(--${name})`;
    mix.append(part);
  }
  const kinds = [...kindsIn[index]].sort((a, b) => b[1] - a[1]);
  return [
    element("h2", {}, group.label[0]),
    element("div", { class: "actions" },
      element("button", { onclick: () => toggle(index) }, opens ? "Open" : "Close")),
    mix,
    listOf([
      ["Path", element("code", {}, group.path)], ["Class", group.class], ["Nodes", group.size],
      ["Consists of", kinds.map(([kind, count]) => `${count} ${kindLabel.get(kind)}`).join(", ")],
      ...amountRows(group),
    ]),
  ];
}

// -- overlays and legend ----------------------------------------------------------------------

function setOverlay(name) {
  state.overlay = name;
  $("overlay").querySelectorAll("input").forEach((input) => { input.checked = input.value === name; });
  measureLargest();
  showLegend();
  redraw();
  say(`colours show ${METRICS[name] ?? (name === "part" ? "parts" : "kinds of operator")}`);
}
function showLegend() {
  const legend = $("legend"), swatch = (fill, outline) => {
    const made = element("span", { class: "swatch" });
    made.style.cssText = `background:var(--${fill});border-color:var(--${outline})`;
    return made;
  };
  if (state.overlay === "part") {
    const parts = [...new Set(data.nodes.map((node) => node.part).filter((part) => part !== undefined))].sort((a, b) => a - b);
    legend.replaceChildren(...parts.map((part) =>
      element("span", {}, swatch(`tint-${partColour(part)}`, partColour(part)), `part ${part}`)));
    return;
  }
  if (state.overlay !== "kind") {
    const scale = element("span", { class: "scale" });
    const stops = Array.from({ length: data.steps }, (_, i) => `var(--heat-${i})`);
    scale.style.background = `linear-gradient(90deg,${stops.join(",")})`;
    legend.replaceChildren(
      element("span", {}, element("b", {}, METRICS[state.overlay]), " 0", scale, amountText(state.overlay, state.largest)),
      element("span", {}, swatch("page", "outline"), "unknown"));
    return;
  }
  const entries = data.summary
    ? ["added", "removed", "changed", "moved"].map((name) => [`tint-${name}`, name, name])
    : data.kinds.filter(([kind]) => data.nodes.some((node) => node.kind === kind))
      .map(([kind, label]) => [`tint-${kind}`, `kind-${kind}`, label]);
  legend.replaceChildren(...entries.map(([fill, outline, label]) => element("span", {}, swatch(fill, outline), label)));
}
function makeOverlays() {
  const known = (metric) => data.nodes.some((node) => node[metric] !== undefined);
  const choices = [["kind", data.summary ? "Changes" : "Kind"], ...Object.entries(METRICS)];
  if (known("part")) choices.push(["part", "Part"]);
  for (const [name, label] of choices) {
    const input = element("input", { type: "radio", name: "overlay", value: name });
    const wrapped = element("label", {}, input, label);
    if (name !== "kind" && !known(name)) {
      input.disabled = true;
      wrapped.title = `no ${label} is known`;
    }
    input.addEventListener("change", () => setOverlay(name));
    $("overlay").append(wrapped);
  }
  if (state.overlay !== "kind" && !known(state.overlay)) state.overlay = "kind";
}

// -- searching --------------------------------------------------------------------------------

const MAX_HITS = 60;
// What names it, and what it is called besides.
const searchable = [
  ...data.groups.map((group, index) => ["group", index, [group.path], [group.class ?? ""]]),
  ...data.nodes.map((node, index) => ["node", index, [node.name, String(node.target)], [node.title, node.class ?? ""]]),
].map(([what, index, names, others]) => {
  const lower = names.map((name) => name.toLowerCase());
  return [what, index, [...lower, ...others].join(" ").toLowerCase(), lower];
});
/** How well a name fits: 0 for the whole name or its last part, 1 for a part of it, 2 for a class. */
function distance(names, words) {
  const isName = (name) => name === words[0] || name.endsWith(`.${words[0]}`);
  if (words.length === 1 && names.some(isName)) return 0;
  return words.every((word) => names.some((name) => name.includes(word))) ? 1 : 2;
}
let shownHits = [], chosenHit = 0;
function find() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = words.length ? searchable.filter(([, , text]) => words.every((word) => text.includes(word))) : [];
  const distances = new Map(all.map((entry) => [entry, distance(entry[3], words)]));
  all.sort((a, b) => distances.get(a) - distances.get(b));
  state.found = words.length ? new Set() : null;
  for (const [what, index] of all) {
    state.found.add(`${what} ${index}`);
    // What is inside a closed module is found there.
    for (const group of ancestorsOf(what, index)) state.found.add(`group ${group}`);
  }
  shownHits = all.slice(0, MAX_HITS);
  chosenHit = 0;
  hits.replaceChildren(...shownHits.map(([what, index], at) => {
    const thing = what === "node" ? data.nodes[index] : data.groups[index];
    return element("li", { role: "option", id: `hit-${at}`, onclick: () => choose(at) },
      titleOf(what, index), element("small", {}, what === "node" ? thing.title : `module, ${thing.size} nodes`));
  }));
  if (all.length > MAX_HITS) hits.append(element("li", {}, element("small", {}, `and ${all.length - MAX_HITS} more`)));
  if (words.length && !all.length) hits.append(element("li", {}, element("small", {}, "nothing found")));
  hits.hidden = !words.length;
  search.setAttribute("aria-expanded", String(Boolean(words.length)));
  markHit();
  if (words.length) say(`${all.length} found`);
  redraw();
}
function markHit() {
  [...hits.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === chosenHit && shownHits.length > 0)));
  if (shownHits.length) search.setAttribute("aria-activedescendant", `hit-${chosenHit}`);
  hits.children[chosenHit]?.scrollIntoView({ block: "nearest" });
}
function choose(at) {
  if (!shownHits[at]) return;
  chosenHit = at;
  markHit();
  // What was found is seen by now: the rest may be read again.
  state.found = null;
  reveal(shownHits[at][0], shownHits[at][1]);
}
search.addEventListener("input", find);
search.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const step = event.key === "ArrowDown" ? 1 : -1;
    chosenHit = Math.min(Math.max(chosenHit + step, 0), Math.max(shownHits.length - 1, 0));
    markHit();
  } else if (event.key === "Enter") {
    choose(chosenHit);
    hits.hidden = true;
  } else if (event.key === "Escape") {
    search.value = "";
    find();
    canvas.focus();
  } else return;
  event.preventDefault();
});
search.addEventListener("focus", () => { if (search.value) find(); });

// -- pointer ----------------------------------------------------------------------------------

/** What is at a place of the window: the innermost box. */
function boxAt(x, y) {
  const { view } = state, [px, py] = [view.x + x / view.scale, view.y + y / view.scale];
  let found = null;
  for (const box of state.picture.boxes) {
    if (px < box.x || px > box.x + box.width || py < box.y || py > box.y + box.height) continue;
    if (!box.open || py < box.y + HEADER) found = box;
  }
  return found;
}
/** Whether a place is on the sign that opens or closes a module. */
function onSign(box, x, y) {
  if (box.what !== "group") return false;
  const { view } = state, [px, py] = [view.x + x / view.scale, view.y + y / view.scale];
  const cx = box.x + box.width - (box.open ? 18 : 16), cy = box.open ? box.y + 16 : box.y + box.height / 2 - 4;
  return Math.hypot(px - cx, py - cy) < 13;
}

const pointers = new Map();
let dragged = false, pinch = 0;
canvas.addEventListener("pointerdown", (event) => {
  cancelAnimationFrame(motion);
  pointers.set(event.pointerId, [event.clientX, event.clientY]);
  canvas.setPointerCapture(event.pointerId);
  dragged = pointers.size > 1;
  pinch = 0;
  hits.hidden = true;
});
canvas.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) {
    canvas.classList.toggle("over", Boolean(boxAt(event.clientX, event.clientY)));
    return;
  }
  const [dx, dy] = [event.clientX - before[0], event.clientY - before[1]];
  if (!dragged && Math.hypot(dx, dy) < 4) return;
  dragged = true;
  canvas.classList.add("dragging");
  pointers.set(event.pointerId, [event.clientX, event.clientY]);
  pan(dx / pointers.size, dy / pointers.size);
  if (pointers.size === 2) {
    const [a, b] = [...pointers.values()], apart = Math.hypot(a[0] - b[0], a[1] - b[1]);
    if (pinch) zoom(apart / pinch, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
    pinch = apart;
  }
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, (event) => {
    if (pointers.delete(event.pointerId) && !dragged && name === "pointerup") click(event);
    if (!pointers.size) canvas.classList.remove("dragging");
  });
}
function click(event) {
  const box = boxAt(event.clientX, event.clientY);
  if (box && onSign(box, event.clientX, event.clientY)) return toggle(box.index);
  select(box && { what: box.what, index: box.index });
}
canvas.addEventListener("dblclick", (event) => {
  const box = boxAt(event.clientX, event.clientY);
  if (box?.what === "group" && !onSign(box, event.clientX, event.clientY)) toggle(box.index);
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  cancelAnimationFrame(motion);
  const unit = event.deltaMode === 1 ? 16 : 1;
  // A wheel zooms; two fingers on a touchpad, which move in both directions, pan.
  if (event.ctrlKey || (event.deltaX === 0 && Math.abs(event.deltaY) * unit >= 50)) {
    zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX, event.clientY);
  } else pan(-event.deltaX * unit, -event.deltaY * unit);
}, { passive: false });

// -- keyboard ---------------------------------------------------------------------------------

/** The visible box that shows a node: its own, or that of the outermost closed module around it. */
function shownAs(node) {
  let shown = { what: "node", index: node };
  for (const group of ancestorsOf("node", node)) if (!state.open.has(group)) shown = { what: "group", index: group };
  return shown;
}
/** The box next to the selected one: along lines up and down, by place to the sides. */
function neighbour(key) {
  const { boxes } = state.picture, { what, index } = state.selected;
  const here = boxes.find((b) => b.what === what && b.index === index);
  if (!here) return null;
  const middle = (b) => [b.x + b.width / 2, b.y + b.height / 2], [x, y] = middle(here);
  if (key === "ArrowUp" || key === "ArrowDown") {
    const up = key === "ArrowUp", inside = (node) => {
      const shown = shownAs(node);
      return shown.what === what && shown.index === index
        || what === "group" && [...ancestorsOf("node", node)].includes(index);
    };
    for (const [from, to] of data.edges) {
      const [near, far] = up ? [to, from] : [from, to];
      if (inside(near) && !inside(far) && !hides(far)) return shownAs(far);
    }
    return null;
  }
  const sign = key === "ArrowRight" ? 1 : -1;
  const aside = boxes.filter((b) => !b.open && (middle(b)[0] - x) * sign > 1 && Math.abs(middle(b)[1] - y) < 30);
  aside.sort((a, b) => (middle(a)[0] - middle(b)[0]) * sign);
  return aside[0] && { what: aside[0].what, index: aside[0].index };
}
const changed = data.nodes.flatMap((node, at) => (node.change ? [at] : []));
let atChange = -1;
function goToChange(step) {
  if (!changed.length) return;
  atChange = (atChange + step + changed.length) % changed.length;
  reveal("node", changed[atChange]);
}
const KEY_HELP = [
  [["/"], "search; Enter goes there"], [["arrows"], "along lines, and to the sides"], [["Enter"], "open or close a module"],
  [["f"], "fit the graph to the window"], [["+", "-"], "zoom"], [["e", "c"], "open, close all modules"],
  [["w"], "wrap long columns"], [["h"], "hide or show what computes sizes"], [["n", "p"], "next, previous change"], [["s"], "save as SVG"], [["Escape"], "let go of what is selected"], [["?"], "this list"],
];
function showKeys() {
  const help = $("help");
  if (help.open) return help.close();
  help.showModal();
}
const KEYS = {
  "?": showKeys, s: saveSvg,
  f: fit, "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8),
  e: () => setAll(true), c: () => setAll(false), n: () => goToChange(1), p: () => goToChange(-1),
  w: toggleWrapped, h: toggleSizes, Escape: () => select(null),
};
document.addEventListener("keydown", (event) => {
  if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (KEYS[event.key]) KEYS[event.key]();
});
canvas.addEventListener("keydown", (event) => {
  const { key } = event;
  if (key.startsWith("Arrow")) {
    if (state.selected) {
      const next = neighbour(key);
      if (next) reveal(next.what, next.index);
    } else pan(...{ ArrowUp: [0, 60], ArrowDown: [0, -60], ArrowLeft: [60, 0], ArrowRight: [-60, 0] }[key]);
  } else if (key === "Enter" || key === " ") {
    if (state.selected?.what === "group") toggle(state.selected.index);
    else if (!state.selected && state.picture.boxes.length) {
      reveal(state.picture.boxes[0].what, state.picture.boxes[0].index);
    }
  } else return;
  event.preventDefault();
});

// -- beginning --------------------------------------------------------------------------------

// What tests and notebooks may ask: when the graph was first seen (in milliseconds since the page was asked for),
// where a box is on the screen, and what is open.
window.corsac = {
  firstPaint: 0,
  boxOf(name) {
    const box = state.picture.boxes.find((b) => titleOf(b.what, b.index) === name);
    if (!box) return null;
    const { view } = state, at = (x, y) => [(x - view.x) * view.scale, (y - view.y) * view.scale];
    const [left, top] = at(box.x, box.y);
    return { left, top, width: box.width * view.scale, height: box.height * view.scale, open: box.open, x: box.x, y: box.y };
  },
  get boxes() { return state.picture.boxes.length; },
  svgText,
  get overlay() { return state.overlay; },
  get view() { return { ...state.view }; },
  get paintTook() { return lastPaint.took; },
  fillOf: (name) => {
    const box = state.picture.boxes.find((b) => titleOf(b.what, b.index) === name);
    return box && colourOf(box).fill;
  },
};
$("title").textContent = data.title;
$("summary").textContent = data.summary ?? [
  `${data.nodes.length} nodes${data.groups.length ? `, ${data.groups.length} modules` : ""}`, ...totals()].join(" · ");
$("summary").title = $("summary").textContent;
canvas.setAttribute("aria-label", `Graph ${data.title}, ${data.nodes.length} nodes`);
$("fit").addEventListener("click", fit);
$("open").addEventListener("click", () => setAll(true));
$("close").addEventListener("click", () => setAll(false));
$("open").disabled = $("close").disabled = !data.groups.length;
for (const [id, step] of [["previous", -1], ["next", 1]]) {
  $(id).hidden = !changed.length;
  $(id).addEventListener("click", () => goToChange(step));
}
makeOverlays();
showLegend();
$("sizes").hidden = !data.nodes.some((node) => node.shape_arithmetic);
$("sizes").addEventListener("click", toggleSizes);
$("wrap").addEventListener("click", toggleWrapped);
openAtFirst();
state.picture = pictureNow();
if (fittingView(state.picture).scale < THIN) {
  setWrapped(true);
  state.picture = pictureNow();
}
state.view = fittingView(state.picture);
setOverlay(state.overlay);
say("");
$("svg").addEventListener("click", saveSvg);
$("png").addEventListener("click", savePng);
for (const id of ["keys-open", "help-close"]) $(id).addEventListener("click", showKeys);
$("key-list").append(...KEY_HELP.flatMap(([keys, what]) => [
  element("dt", {}, ...keys.flatMap((key, at) => (at ? [" ", element("kbd", {}, key)] : [element("kbd", {}, key)]))),
  element("dd", {}, what)]));
addEventListener("hashchange", goToLink);
goToLink();
// Now, and not in the next frame: pictures of the page are taken before there is one.
paintNow();
addEventListener("resize", () => {
  // A picture that fits goes on to fit.
  if (state.fitted) state.view = fittingView(state.picture);
  paintNow();
});
isDark.addEventListener("change", () => {
  colour = coloursNow();
  map.picture = null;
  redraw();
});

// Coordinates. The same as src/layout/place.rs and src/layout/picture.rs, to the same result, as long as
// nothing is hidden or wrapped (columns.js): change both. Levels come with their layers, and with coordinates for when all modules in them are closed;
// which modules are open decides the sizes, and thereby the coordinates.

const GAP = 28, LINE_GAP = 14, LAYER_GAP = 34, LABEL_HEIGHT = 16, SWEEPS = 6;
const HEADER = 34, HEADER_OVER_PORTS = 24, SIDE = 16, FOOT = 16, PORT_WIDTH = 8;
const TITLE_START = 12, TITLE_GAP = 8, TITLE_END = 30, TITLE_LEFT = 60;

/** What does not depend on sizes: where items and bends are, found once for a level. */
function routesOf(level) {
  const itemAt = new Array(level.items.length), bends = level.nets.map(() => []);
  level.layers.forEach((layer, rank) => layer.forEach((slot, at) => {
    if (slot >= 0) itemAt[slot] = [rank, at];
    else bends[-1 - slot].push(at);
  }));
  return { itemAt, bends };
}

const portOf = (size, value) => size.ports?.get(value) ?? 0;

/** The lines between each layer and the next. */
function segmentsOf(level, sizes) {
  const all = level.layers.map(() => []), { itemAt, bends } = level.routes;
  level.nets.forEach((net, index) => {
    if (net.straight) return;
    const [from, source] = itemAt[net.source];
    let last = [source, portOf(sizes[net.source], net.value), 1];
    const ends = [last];
    bends[index].forEach((bend, step) => {
      all[from + step].push({ upper: last[0], lower: bend, out: last[1], in: 0, weight: step === 0 ? 2 : 8 });
      last = [bend, 0, 2];
      ends.push(last);
    });
    for (const sink of net.sinks) {
      const [rank, at] = itemAt[sink.item], end = ends[rank - from - 1];
      const port = portOf(sizes[sink.item], net.value);
      all[rank - 1].push({ upper: end[0], lower: at, out: end[1], in: port, weight: end[2] });
    }
  });
  return all;
}

/** The closest positions to the wanted ones at which neighbours are far enough apart. */
function settle(wanted, weights, distances) {
  const size = wanted.length, sums = new Float64Array(size), shares = new Float64Array(size), counts = new Uint32Array(size);
  let packed = 0, blocks = 0;
  for (let at = 0; at < size; at++) {
    if (at > 0) packed += distances[at - 1];
    let sum = weights[at] * (wanted[at] - packed), weight = weights[at], count = 1;
    for (; blocks > 0 && sums[blocks - 1] / shares[blocks - 1] > sum / weight; blocks--) {
      sum += sums[blocks - 1];
      weight += shares[blocks - 1];
      count += counts[blocks - 1];
    }
    sums[blocks] = sum;
    shares[blocks] = weight;
    counts[blocks++] = count;
  }
  const xs = new Float64Array(size);
  packed = 0;
  for (let block = 0, at = 0; block < blocks; block++) {
    for (let i = 0; i < counts[block]; i++, at++) {
      if (at > 0) packed += distances[at - 1];
      xs[at] = sums[block] / shares[block] + packed;
    }
  }
  return xs;
}

/** The one line above and below each slot, as an index into the segments there. */
function jointsOf(level, segments) {
  const table = () => level.layers.map((layer) => new Array(layer.length).fill(-1));
  const above = table(), below = table(), ins = table(), outs = table();
  const isBend = (rank, at) => level.layers[rank][at] < 0;
  segments.forEach((list, rank) => list.forEach((s, index) => {
    const fromBend = isBend(rank, s.upper), chain = fromBend && isBend(rank + 1, s.lower);
    if (!fromBend || chain || below[rank][s.upper] < 0) {
      if (!fromBend) outs[rank][s.upper]++;
      below[rank][s.upper] = index;
    }
    ins[rank + 1][s.lower]++;
    above[rank + 1][s.lower] = index;
  }));
  // Counts begin at -1: above 0, there are several.
  level.layers.forEach((layer, rank) => layer.forEach((_, at) => {
    if (ins[rank][at] > 0) above[rank][at] = -1;
    if (outs[rank][at] > 0) below[rank][at] = -1;
  }));
  return { above, below };
}

/** Slots below each other that are joined by nothing else: [layer, position, right of the first]. */
function runsOf(level, segments, { above, below }) {
  const runs = [], seen = level.layers.map((layer) => new Uint8Array(layer.length));
  level.layers.forEach((layer, top) => layer.forEach((_, first) => {
    if (seen[top][first]) return;
    const run = [[top, first, 0]];
    let rank = top, at = first, shift = 0;
    while (below[rank][at] >= 0) {
      const index = below[rank][at], s = segments[rank][index];
      if (above[rank + 1][s.lower] !== index) break;
      shift += s.out - s.in;
      rank++;
      at = s.lower;
      seen[rank][at] = 1;
      run.push([rank, at, shift]);
    }
    runs.push(run);
  }));
  return runs.sort((a, b) => b.length - a.length);
}

/** Puts runs upright where their neighbours leave room for that, the longest ones first. */
function straighten(level, xs, distances, segments) {
  const joints = jointsOf(level, segments);
  for (const run of runsOf(level, segments, joints)) {
    let low = -Infinity, high = Infinity, sum = 0;
    for (const [rank, at, shift] of run) {
      const row = xs[rank], apart = distances[rank];
      if (at > 0) low = Math.max(low, row[at - 1] + apart[at - 1] - shift);
      if (at + 1 < row.length) high = Math.min(high, row[at + 1] - apart[at] - shift);
      sum += row[at] - shift;
    }
    if (low > high) continue;
    const is = sum / run.length, [top, first] = run[0], [bottom, last, shift] = run[run.length - 1];
    const clamp = (x) => Math.min(Math.max(x, low), high), near = (x) => Math.abs(clamp(x) - is);
    const up = segments[top - 1]?.[joints.above[top][first]], down = segments[bottom][joints.below[bottom][last]];
    const upper = up && xs[top - 1][up.upper] + up.out - up.in;
    const lower = down && xs[bottom + 1][down.lower] + down.in - down.out - shift;
    const wanted = lower !== undefined && (upper === undefined || near(lower) < near(upper)) ? lower : upper ?? is;
    for (const [rank, at, shift] of run) xs[rank][at] = clamp(wanted) + shift;
  }
}

/** Puts the way out of a module below the way in: that which most lines begin at, if there are several. */
function alignPorts(level, xs, distances, segments) {
  const ports = (wanted) => level.items.flatMap(([what], item) => (what === wanted ? [level.routes.itemAt[item]] : []));
  const inlets = ports("inlet"), outlets = ports("outlet");
  if (outlets.length !== 1 || !inlets.length) return;
  const fans = level.layers.map((layer) => new Uint32Array(layer.length));
  segments.forEach((list, rank) => list.forEach((s) => fans[rank][s.upper]++));
  const fan = ([rank, at]) => fans[rank][at];
  const inlet = inlets.reduce((best, at) => (fan(at) > fan(best) ? at : best));
  const [moved, fixed] = fan(inlet) > 1 ? [inlet, outlets[0]] : [outlets[0], inlet];
  const [rank, at] = moved, row = xs[rank], apart = distances[rank];
  let x = xs[fixed[0]][fixed[1]];
  if (at > 0) x = Math.max(x, row[at - 1] + apart[at - 1]);
  if (at + 1 < row.length) x = Math.min(x, row[at + 1] - apart[at]);
  row[at] = x;
}

/** Heights above and below the inside of an open module. */
function besideInlets(title, inlets, least) {
  if (!inlets.length) return [least, [TITLE_START - least / 2, least - TITLE_START - TITLE_END], [0, 0]];
  const first = Math.min(...inlets), last = Math.max(...inlets);
  const before = 2 * (TITLE_START + title + TITLE_GAP - first);
  const behind = 2 * (TITLE_GAP + title + TITLE_END + last);
  const isLeft = before <= Math.max(least, behind) + TITLE_LEFT;
  const width = Math.max(least, isLeft ? before : behind), left = TITLE_START - width / 2;
  const right = [last + TITLE_GAP, width / 2 - TITLE_END - last - TITLE_GAP];
  return isLeft ? [width, [left, first - TITLE_GAP - left], right] : [width, right, [0, 0]];
}

function frameOf(level) {
  const has = (what) => level.items.some((item) => item[0] === what);
  return [has("inlet") ? HEADER_OVER_PORTS : HEADER, has("outlet") ? 0 : FOOT];
}

/** Places the items of a level with these sizes. What is hidden takes no room. */
function place(level, sizes) {
  const widthOf = (slot) => (slot >= 0 ? sizes[slot].width : 0);
  const heightOf = (slot) => (slot >= 0 ? sizes[slot].height : 0);
  const segments = segmentsOf(level, sizes), depth = level.layers.length;
  const labelOf = (slot) => (slot >= 0 ? sizes[slot].label ?? 0 : 0);
  // Text ends before the next line, and before a neighbour that reaches as far down.
  const isHidden = (slot) => (slot >= 0 ? sizes[slot].hidden : level.hiddenNets?.has(-1 - slot)) ?? false;
  const gapOf = (left, right) => {
    const hidden = Number(isHidden(left)) + Number(isHidden(right));
    return (left >= 0 && right >= 0 ? GAP : LINE_GAP) * (1 - hidden / 2);
  };
  const distances = level.layers.map((layer) => layer.slice(1).map((slot, at) => Math.max(
    (widthOf(layer[at]) + widthOf(slot)) / 2 + gapOf(layer[at], slot),
    labelOf(layer[at]) + (heightOf(slot) > heightOf(layer[at]) ? widthOf(slot) / 2 : 0))));
  const xs = level.layers.map((layer, rank) => {
    let x = -distances[rank].reduce((a, b) => a + b, 0) / 2;
    return layer.map((_, at) => (at > 0 ? (x += distances[rank][at - 1]) : x));
  });
  for (let sweep = 0; sweep <= SWEEPS; sweep++) {
    const down = sweep % 2 === 0, both = sweep === SWEEPS;
    for (let step = 0; step < depth; step++) {
      const rank = down ? step : depth - 1 - step, count = level.layers[rank].length;
      const wanted = new Float64Array(count), weights = new Float64Array(count);
      if (rank > 0 && (down || both)) {
        for (const s of segments[rank - 1]) {
          wanted[s.lower] += s.weight * (xs[rank - 1][s.upper] + s.out - s.in);
          weights[s.lower] += s.weight;
        }
      }
      if (rank + 1 < depth && (!down || both)) {
        for (const s of segments[rank]) {
          wanted[s.upper] += s.weight * (xs[rank + 1][s.lower] + s.in - s.out);
          weights[s.upper] += s.weight;
        }
      }
      for (let at = 0; at < count; at++) {
        if (weights[at] === 0) [wanted[at], weights[at]] = [xs[rank][at], 0.01];
        else wanted[at] /= weights[at];
      }
      xs[rank] = settle(wanted, weights, distances[rank]);
    }
  }
  straighten(level, xs, distances, segments);
  alignPorts(level, xs, distances, segments);
  let left = Infinity, right = -Infinity;
  level.layers.forEach((layer, rank) => layer.forEach((slot, at) => {
    left = Math.min(left, xs[rank][at] - widthOf(slot) / 2);
    right = Math.max(right, xs[rank][at] + Math.max(widthOf(slot) / 2, labelOf(slot)));
  }));
  if (left > right) left = right = 0;
  for (const row of xs) for (let at = 0; at < row.length; at++) row[at] -= left;
  const heights = level.layers.map((layer) => layer.reduce((most, slot) => Math.max(most, heightOf(slot)), 0));
  // Room for text, through which lines go upright, where the lines below bend.
  const feet = level.layers.map((layer, rank) => {
    const bends = (s) => Math.abs(xs[rank][s.upper] + s.out - xs[rank + 1][s.lower] - s.in) > 0.5;
    if (!segments[rank].some(bends)) return 0;
    const labelled = layer.filter((slot) => labelOf(slot) > 0);
    return labelled.reduce((most, slot) => Math.max(most, LABEL_HEIGHT - (heights[rank] - heightOf(slot)) / 2), 0);
  });
  const tops = [];
  let bottom = 0;
  heights.forEach((height, rank) => {
    const isEmpty = level.hiddenNets && level.layers[rank].every((slot) => slot < 0 || isHidden(slot));
    if (rank > 0 && !isEmpty) bottom += feet[rank - 1] + LAYER_GAP;
    tops.push(bottom);
    bottom += height;
  });
  return { xs, tops, heights, feet, width: right - left, height: bottom };
}

/** Boxes and lines of everything that is visible when the modules in `open` are open. Long columns are wrapped to
 * be `aspect` times as wide as high, unless that is 0; nodes for which `hides` holds are left out, and what
 * consists of these. */
function pictureOf(data, open, aspect = 0, hides = () => false) {
  const sizeOfGroup = [], hiddenGroups = new Set();
  const isHidden = ([what, index]) => (what === "group" ? hiddenGroups.has(index) : hides(index));
  const none = { width: 0, height: 0, hidden: true };
  // From the inside out: a module comes after the one it is in.
  for (let at = data.levels.length - 1; at >= 0; at--) {
    const level = data.levels[at], group = at - 1;
    const isEmpty = ([what, index]) => what === "inlet" || what === "outlet" || isHidden([what, index]);
    if (at > 0 && level.items.every(isEmpty)) hiddenGroups.add(group);
    if (hiddenGroups.has(group)) {
      sizeOfGroup[group] = none;
      continue;
    }
    if (at > 0 && !open.has(group)) {
      const [width, height] = data.groups[group].box_size;
      sizeOfGroup[group] = { width, height };
      continue;
    }
    level.routes ??= routesOf(level);
    const sizes = level.items.map(([what, index]) => {
      if (isHidden([what, index])) return none;
      if (what === "group") return sizeOfGroup[index];
      if (what !== "node") return { width: PORT_WIDTH, height: 0 };
      const [width, height] = data.nodes[index].box_size;
      return { width, height, label: 0 };
    });
    const hiddenNets = new Set(level.nets.flatMap((net, at) => (hides(net.value) ? [at] : [])));
    level.hiddenNets = hiddenNets.size || sizes.includes(none) ? hiddenNets : null;
    for (const net of level.nets) {
      const [what, index] = level.items[net.source], size = sizes[net.source];
      if (size === none) continue;
      const labelled = what === "node" || (what === "group" && !open.has(index));
      if (labelled) size.label = Math.max(size.label ?? 0, data.nodes[net.value].label_reach);
    }
    // What is in it has not changed size: it is as it was.
    const hasHidden = level.hiddenNets !== null;
    const known = level.aspect === aspect && level.hasHidden === hasHidden && level.sizes?.every((size, i) => size === sizes[i] || (!size.ports
      && !sizes[i].ports && size.hidden === sizes[i].hidden
      && size.width === sizes[i].width && size.height === sizes[i].height));
    if (!known) {
      level.sizes = sizes;
      Object.assign(level, { aspect, hasHidden });
      const closed = !level.hiddenNets && !level.items.some(([what, index]) => what === "group" && open.has(index));
      const column = closed ? level.closed : place(level, sizes);
      level.placement = aspect ? wrapped(level, sizes, column, aspect) : column;
      level.size = null;
    }
    if (at > 0) {
      if (!level.size) {
        const ports = new Map(), inlets = [];
        level.items.forEach(([what, value], item) => {
          const [rank, x] = level.routes.itemAt[item];
          if (what === "inlet" || what === "outlet") {
            ports.set(value, level.placement.xs[rank][x] - level.placement.width / 2);
            if (what === "inlet") inlets.push(ports.get(value));
          }
        });
        const least = Math.max(level.placement.width + 2 * SIDE, data.groups[group].box_size[0]);
        const [width, title, behind] = besideInlets(data.groups[group].title_width, inlets, least);
        const [header, foot] = frameOf(level);
        level.size = { width, height: level.placement.height + header + foot, ports, title, behind };
      }
      sizeOfGroup[group] = level.size;
    }
  }
  // From the outside in.
  const picture = { boxes: [], wires: [], labels: [], width: 0, height: 0 };
  const corners = [[0, 0]];
  data.levels.forEach((level, at) => {
    const corner = corners[at];
    if (!corner) return;
    const { placement, sizes, routes, items } = level, [left, up] = corner, [header, foot] = frameOf(level);
    if (at === 0) Object.assign(picture, { width: placement.width, height: placement.height });
    const isOpen = ([what, index]) => what === "group" && open.has(index);
    const span = (item) => {
      const [rank] = routes.itemAt[item], what = items[item][0];
      const top = up + placement.tops[rank], height = placement.heights[rank];
      if (what === "inlet") return [at > 0 ? up - header : top, top];
      if (what === "outlet" && placement.columns) return [top, up + placement.height + (at > 0 ? foot : 0)];
      if (what === "outlet") return [top, top + height + (at > 0 ? foot : 0)];
      const own = sizes[item].height;
      return [top + (height - own) / 2, top + (height - own) / 2 + own];
    };
    const middle = (item) => left + placement.xs[routes.itemAt[item][0]][routes.itemAt[item][1]];
    items.forEach((entry, item) => {
      const [what, index] = entry;
      if ((what !== "node" && what !== "group") || sizes[item].hidden) return;
      const [y, bottom] = span(item), { width } = sizes[item], x = middle(item) - width / 2;
      const opened = isOpen(entry), box = { what, index, open: opened, x, y, width, height: bottom - y };
      for (const place of opened ? ["title", "behind"] : []) {
        box[place] = [middle(item) + sizes[item][place][0], sizes[item][place][1]];
      }
      picture.boxes.push(box);
      if (opened) {
        const inside = data.levels[index + 1];
        corners[index + 1] = [x + (width - inside.placement.width) / 2, y + frameOf(inside)[0]];
      }
    });
    const layer = (rank) => [
      up + placement.tops[rank], up + placement.tops[rank] + placement.heights[rank] + placement.feet[rank]];
    level.nets.forEach((net, index) => {
      if (level.hiddenNets?.has(index) || sizes[net.source].hidden) return;
      const turns = (rank, x, toX) => turnsOf(placement, index, rank, x - left, toX - left)
        .map(([x, y]) => [left + x, up + y, true]);
      const endAt = (item) => middle(item) + portOf(sizes[item], net.value);
      const source = items[net.source], isPort = source[0] === "inlet" || source[0] === "outlet";
      const x = endAt(net.source), [top, bottom] = span(net.source), rank = routes.itemAt[net.source][0];
      if (!isPort && !isOpen(source)) picture.labels.push({ value: net.value, x, y: bottom });
      const trunk = [[x, isPort ? top : bottom]];
      if (!net.straight) trunk.push([x, layer(rank)[1]]);
      const reached = [trunk.length];
      routes.bends[index].forEach((bend, step) => {
        const bendX = left + placement.xs[rank + 1 + step][bend], [above, below] = layer(rank + 1 + step);
        trunk.push(...turns(rank + step, trunk[trunk.length - 1][0], bendX), [bendX, above], [bendX, below]);
        reached.push(trunk.length);
      });
      for (const sink of net.sinks) {
        if (sizes[sink.item].hidden) continue;
        const what = items[sink.item][0], sinkRank = routes.itemAt[sink.item][0];
        const step = net.straight ? 0 : sinkRank - rank - 1, endX = endAt(sink.item), [over, under] = span(sink.item);
        const points = trunk.slice(step === reached.length - 1 ? 0 : reached[step] - 1, reached[step]);
        if (!net.straight) {
          points.push(...turns(sinkRank - 1, points[points.length - 1][0], endX), [endX, layer(sinkRank)[0]]);
        }
        points.push([endX, what === "outlet" ? under : over]);
        picture.wires.push({
          value: net.value, to: items[sink.item], points, straight: net.straight, change: sink.change,
          arrow: what !== "outlet" && !isOpen(items[sink.item]),
          left: points.reduce((least, p) => Math.min(least, p[0]), Infinity),
          right: points.reduce((most, p) => Math.max(most, p[0]), -Infinity),
          top: points.reduce((least, p) => Math.min(least, p[1]), Infinity),
          bottom: points.reduce((most, p) => Math.max(most, p[1]), -Infinity),
        });
      }
    });
  });
  return picture;
}

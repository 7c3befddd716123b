// Long columns, wrapped: the layers of a level from left to right, as text is set in columns. A line goes on at the
// top of the next column: down to a lane below the columns, up between them, and over.

const COLUMN_GAP = 44, LANE = 6, BAND = 20, MOST_LANES = 12, TALL = 1400;

/** `column`, a placement of the level, wrapped to be about `aspect` times as wide as high; as it is where it is
 * neither tall nor narrow. */
function wrapped(level, sizes, column, aspect) {
  let count = Math.round(Math.sqrt((aspect * column.height) / (column.width + COLUMN_GAP))), best = column;
  if (column.height < TALL) return column;
  // Where one layer is wider than the others, more columns fit beside each other than its width says.
  const error = ({ width, height }) => Math.abs(Math.log(width / height / aspect));
  for (let tries = 0; tries < 5 && count > 1; tries++) {
    const tried = inColumns(level, sizes, column, count);
    if (error(tried) < error(best)) best = tried;
    const next = Math.round(count * Math.sqrt((aspect * tried.height) / tried.width));
    if (next <= count) break;
    count = next;
  }
  return best;
}

function inColumns(level, sizes, column, count) {
  const depth = level.layers.length;
  // The ways out of a module stay below the way in.
  const isFoot = level.layers[depth - 1].every((slot) => slot >= 0 && level.items[slot][0] === "outlet");
  const last = isFoot && depth > 1 ? depth - 2 : depth - 1;
  const lines = crossings(level), starts = startsOf(column, lines, last, count);
  const columnOf = new Array(depth).fill(0);
  for (let rank = 0, at = 0; rank <= last; rank++) {
    if (rank === starts[at + 1]) at++;
    columnOf[rank] = at;
  }
  const lanes = starts.map((_, at) => lanesBefore(level, starts[at + 1] ?? (last < depth - 1 ? depth - 1 : -1)));
  const room = (at) => Math.min(lanes[at].size, MOST_LANES) * LANE;
  const band = BAND + Math.max(...lanes.map((_, at) => room(at)));
  const extents = starts.map(() => [Infinity, -Infinity, 0]);
  for (let rank = 0; rank <= last; rank++) {
    const extent = extents[columnOf[rank]];
    level.layers[rank].forEach((slot, at) => {
      const { width = 0, label = 0 } = slot >= 0 ? sizes[slot] : {}, x = column.xs[rank][at];
      extent[0] = Math.min(extent[0], x - width / 2);
      extent[1] = Math.max(extent[1], x + Math.max(width / 2, label));
    });
    extent[2] = Math.max(extent[2], column.tops[rank] + column.heights[rank] + column.feet[rank]
      - column.tops[starts[columnOf[rank]]]);
  }
  const lowest = band + Math.max(...extents.map(([, , height]) => height)), gutters = [];
  let left = 0;
  const shifts = extents.map(([from, to], at) => {
    const shift = left - from;
    gutters.push(left + to - from + COLUMN_GAP / 2);
    left += to - from + COLUMN_GAP + room(at);
    return shift;
  });
  const width = gutters[gutters.length - 1] - COLUMN_GAP / 2, height = lowest + band;
  const xs = column.xs.map((row, rank) => row.map((x) => x + (rank <= last ? shifts[columnOf[rank]] : shifts[0])));
  const tops = column.tops.map((top, rank) =>
    (rank <= last ? band + top - column.tops[starts[columnOf[rank]]] : height));
  for (let rank = last + 1; rank < depth; rank++) columnOf[rank] = -1;
  return { ...column, xs, tops, width, height, columns: { columnOf, lanes, gutters, lowest, band } };
}

/** How many values cross from each layer to the next. */
function crossings(level) {
  const changes = new Int32Array(level.layers.length + 1);
  for (const net of level.nets) {
    const from = level.routes.itemAt[net.source][0];
    const to = net.sinks.reduce((most, sink) => Math.max(most, level.routes.itemAt[sink.item][0]), from);
    changes[from]++;
    changes[to]--;
  }
  let sum = 0;
  return Array.from(changes, (change) => (sum += change));
}

/** The first layer of each column: at equal heights, or near them where fewer lines are cut. */
function startsOf(column, lines, last, count) {
  const starts = [0], step = (column.tops[last] + column.heights[last]) / count;
  for (let at = 1; at < count; at++) {
    let best = -1, least = Infinity;
    for (let rank = starts[starts.length - 1] + 1; rank <= last; rank++) {
      const off = Math.abs(column.tops[rank] - at * step) / step, cost = lines[rank - 1] + off;
      if (off < 0.15 && cost < least) [best, least] = [rank, cost];
    }
    // A layer that is as high as a column has none near.
    if (best > 0) starts.push(best);
  }
  return starts;
}

/** The values that come into the layer `rank` from above, each with the number of its lane. */
function lanesBefore(level, rank) {
  const lanes = new Map();
  level.nets.forEach((net, index) => {
    if (net.straight || level.hiddenNets?.has(index)) return;
    const from = level.routes.itemAt[net.source][0];
    const reaches = net.sinks.some((sink) => level.routes.itemAt[sink.item][0] >= rank);
    if (from < rank && reaches) lanes.set(index, lanes.size % MOST_LANES);
  });
  return lanes;
}

/** Where a line turns on its way from the layer `rank` to the next, if that is in another column. */
function turnsOf({ columns }, net, rank, x, toX) {
  const at = columns?.columnOf[rank], next = columns?.columnOf[rank + 1];
  if (at === next) return [];
  const lane = ((columns.lanes[at].get(net) ?? 0) + 1) * LANE, low = columns.lowest + lane;
  if (next < 0) return [[x, low], [toX, low]];
  const gutter = columns.gutters[at] + lane - LANE, high = columns.band - BAND / 2 - lane;
  return [[x, low], [gutter, low], [gutter, high], [toX, high]];
}

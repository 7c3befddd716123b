// Painting on the canvas: only what is visible, and only as much of it as can be seen.

/** The colours that the style sheet has now. */
function coloursNow() {
  const style = getComputedStyle(document.documentElement), known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, style.getPropertyValue(`--${name}`).trim());
    return known.get(name);
  };
}

const FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif';
// Below these scales, in pixels of the screen for one of the picture, text is left out.
const SMALL_TEXT = 0.55, ANY_TEXT = 0.3;

/** `text`, or as much of it as fits, with an ellipsis. */
function fitted(context, text, width) {
  if (text.length * 4 < width || context.measureText(text).width <= width) return text;
  let low = 0, high = Math.min(text.length, 400);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low) + "…";
}

/** Adds a line to the path. Points closer than `least` are passed by: nobody sees the bends. */
function traceWire(context, points, least) {
  let [x, y] = points[0];
  context.moveTo(x, y);
  for (let i = 1; i < points.length; i++) {
    const [toX, toY, turns] = points[i], last = i === points.length - 1;
    if (!last && !turns && toY - y < least && toY >= y) continue;
    if (toX === x || turns || points[i - 1][2] || least > 8) context.lineTo(toX, toY);
    else context.bezierCurveTo(x, (y + toY) / 2, toX, (y + toY) / 2, toX, toY);
    [x, y] = [toX, toY];
  }
}

/** Paints `picture` as seen through `view` (corner x and y, scale) on a canvas of `width`×`height`. */
function paint(context, data, picture, view, width, height, style) {
  const { colour, colourOf, selected, isFaint, highlighted } = style, { scale } = view;
  const ratio = style.ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colour("page");
  context.fillRect(0, 0, width, height);
  context.setTransform(ratio * scale, 0, 0, ratio * scale, -view.x * scale * ratio, -view.y * scale * ratio);
  const [left, top, right, bottom] = [view.x, view.y, view.x + width / scale, view.y + height / scale];
  const sees = (x, y, w, h) => x < right && x + w > left && y < bottom && y + h > top;
  const pixel = 1 / scale;
  const boxes = picture.boxes.filter((box) => sees(box.x, box.y, box.width, box.height));
  const wires = picture.wires.filter((w) =>
    sees(w.left - 2, w.top, w.right - w.left + 4, w.bottom - w.top) && w.bottom - w.top + w.right - w.left > pixel);

  const stroke = (list, colourName, lineWidth, alpha, dash) => {
    if (!list.length) return;
    context.beginPath();
    for (const wire of list) traceWire(context, wire.points, 3 * pixel);
    context.strokeStyle = colour(colourName);
    context.globalAlpha = alpha;
    context.lineWidth = Math.max(lineWidth, 0.6 * pixel);
    context.setLineDash(dash ?? []);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  };
  const tips = (list, colourName) => {
    if (scale < ANY_TEXT) return;
    context.fillStyle = colour(colourName);
    context.beginPath();
    for (const { arrow, points } of list) {
      if (!arrow) continue;
      const [x, y] = points[points.length - 1];
      context.moveTo(x, y);
      context.lineTo(x - 3.5, y - 6);
      context.lineTo(x + 3.5, y - 6);
    }
    context.fill();
  };
  const rounded = (box, radius, grow = 0) => {
    context.beginPath();
    context.roundRect(box.x - grow, box.y - grow, box.width + 2 * grow, box.height + 2 * grow, radius);
  };

  // Lines so long that they go straight lie below everything; modules below other lines.
  stroke(wires.filter((w) => w.straight), "line", 1.2, 0.3);
  for (const box of boxes.filter((b) => b.open)) {
    rounded(box, 10);
    context.globalAlpha = 0.6;
    context.fillStyle = colour("module");
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = colour("outline");
    context.lineWidth = Math.max(1.2, pixel);
    context.stroke();
  }
  const plain = wires.filter((w) => !w.straight), kept = plain.filter((w) => w.change === "kept");
  stroke(kept, "line", 1.3, style.faded ? 0.35 : 1);
  tips(kept, "line");
  for (const [change, name, dash] of [["added", "added"], ["removed", "removed", [5, 4]]]) {
    const list = wires.filter((w) => w.change === change);
    stroke(list, name, 1.6, 1, dash);
    tips(list, name);
  }
  if (highlighted) {
    const list = wires.filter(highlighted);
    stroke(list, "ink", 2, 1);
    tips(list, "ink");
  }

  context.textBaseline = "alphabetic";
  if (scale >= SMALL_TEXT) {
    context.font = `10.5px ${FONT}`;
    context.textAlign = "left";
    context.lineJoin = "round";
    for (const { value, x, y } of picture.labels) {
      const { shape } = data.nodes[value];
      if (!shape || !sees(x, y, 170, 20)) continue;
      const text = fitted(context, shape, 160);
      context.strokeStyle = colour("page");
      context.lineWidth = 3;
      context.strokeText(text, x + 6, y + 14.5);
      context.fillStyle = colour("muted");
      context.fillText(text, x + 6, y + 14.5);
    }
  }
  context.textAlign = "center";
  const solid = boxes.filter((b) => !b.open);
  if (scale < ANY_TEXT * 0.6) {
    // Too small for corners and outlines: boxes of one colour are one shape.
    const byColour = new Map();
    for (const box of solid) {
      const name = (isFaint(box) ? "outline" : colourOf(box).strong);
      if (!byColour.has(name)) byColour.set(name, []);
      byColour.get(name).push(box);
    }
    for (const [name, list] of byColour) {
      context.fillStyle = colour(name);
      context.beginPath();
      for (const box of list) context.rect(box.x, box.y, Math.max(box.width, pixel), Math.max(box.height, pixel));
      context.fill();
    }
  } else {
    for (const box of solid) paintBox(box);
  }
  for (const box of boxes.filter((b) => b.open)) paintHeader(box);
  for (const box of boxes) {
    if (!selected(box)) continue;
    rounded(box, 9, 2.5);
    context.strokeStyle = colour("ink");
    context.lineWidth = Math.max(2, 2 * pixel);
    context.stroke();
  }

  function paintBox(box) {
    const node = box.what === "node" ? data.nodes[box.index] : null;
    const { fill, strong, onFill, dashed } = colourOf(box);
    context.globalAlpha = isFaint(box) ? 0.25 : 1;
    const isEnd = node && (node.op === "placeholder" || node.op === "output");
    const radius = isEnd ? box.height / 2 : node ? 7 : 9;
    if (!node) {
      // Another box behind it says that there is something inside.
      context.beginPath();
      context.roundRect(box.x + 4, box.y + 4, box.width, box.height, radius);
      context.fillStyle = colour("module");
      context.fill();
      context.strokeStyle = colour("outline");
      context.lineWidth = 1.2;
      context.stroke();
    }
    rounded(box, radius);
    context.fillStyle = colour(fill);
    context.fill();
    context.strokeStyle = colour(strong);
    context.lineWidth = Math.max(node ? 1.2 : 1.5, 0.7 * pixel);
    context.setLineDash(dashed ? [5, 4] : []);
    context.stroke();
    context.setLineDash([]);
    if (!node) paintMix(box);
    if (scale >= ANY_TEXT) {
      const [title, subtitle] = node ? [node.title, node.subtitle] : data.groups[box.index].label;
      const small = subtitle && box.height > 34 && (scale >= SMALL_TEXT || !node);
      const x = box.x + box.width / 2 - (node ? 0 : 8);
      const base = box.y + box.height / 2 + (small ? (node ? -2.5 : -4) : 4.5);
      const room = box.width - (node ? 12 : 34);
      context.fillStyle = colour(onFill ?? "ink");
      context.font = `600 ${node ? 13 : 14}px ${FONT}`;
      context.fillText(fitted(context, title, room), x, base);
      if (small) {
        if (!onFill) context.fillStyle = colour("muted");
        context.font = `11px ${FONT}`;
        context.fillText(fitted(context, subtitle, room), x, base + 15);
      }
      if (!node) paintSign(box.x + box.width - 16, box.y + box.height / 2 - 4, true, onFill);
    }
    context.globalAlpha = 1;
  }

  /** What a closed module consists of: a bar, by kind. */
  function paintMix(box) {
    const mix = style.mixOf(box.index), room = box.width - 20;
    let x = box.x + 10;
    for (const [name, share] of mix) {
      context.fillStyle = colour(name);
      context.fillRect(x, box.y + box.height - 9, share * room, 3.5);
      x += share * room;
    }
  }

  /** The sign for opening or closing a module. */
  function paintSign(x, y, plus, onFill = "muted") {
    context.strokeStyle = colour(onFill);
    context.lineWidth = 1.3;
    context.beginPath();
    context.arc(x, y, 7, 0, 7);
    context.moveTo(x - 3.5, y);
    context.lineTo(x + 3.5, y);
    if (plus) {
      context.moveTo(x, y - 3.5);
      context.lineTo(x, y + 3.5);
    }
    context.stroke();
  }

  function paintHeader(box) {
    const small = box.width * scale < 60;
    if (scale < ANY_TEXT && (small || scale < 0.08)) return;
    const group = data.groups[box.index];
    // The name of a module stays readable while its nodes are not, if there is room.
    const size = Math.min(Math.max(13, 10 * pixel), 26);
    context.textAlign = "left";
    context.fillStyle = colour("ink");
    context.font = `600 ${size}px ${FONT}`;
    // Beside the lines that come in, unless it is enlarged and does not fit there.
    const fits = size === 13 || context.measureText(group.label[0]).width <= box.title[1];
    const [left, space] = fits ? box.title : [box.x + 12, box.width - 40];
    const title = fitted(context, group.label[0], space);
    context.lineJoin = "round";
    context.lineWidth = 4;
    context.strokeStyle = colour("module");
    context.strokeText(title, left, box.y + 8 + size);
    context.fillText(title, left, box.y + 8 + size);
    if (scale >= SMALL_TEXT && group.class) {
      const used = context.measureText(title).width + 8, name = group.class.split(".").pop();
      context.font = `11px ${FONT}`;
      const width = context.measureText(name).width;
      const place = [[left + used, space - used], box.behind].find(([, room]) => room > width);
      if (place) {
        context.fillStyle = colour("muted");
        context.strokeText(name, place[0], box.y + 21);
        context.fillText(name, place[0], box.y + 21);
      }
    }
    if (scale >= ANY_TEXT) paintSign(box.x + box.width - 18, box.y + 16, false);
    context.textAlign = "center";
  }
}

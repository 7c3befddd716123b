// A canvas that writes SVG: as much of one as `paint` uses, without scaling.

const SVG_NAMESPACE = new DOMParser().parseFromString("<svg>", "text/html").querySelector("svg").namespaceURI;

class SvgContext {
  /** `measuring` is the context of a canvas, which knows how wide text is. */
  constructor(measuring) {
    Object.assign(this, {
      measuring, parts: [], path: "", dash: [], move: [0, 0], globalAlpha: 1, lineWidth: 1,
      fillStyle: "", strokeStyle: "", font: "", textAlign: "left",
    });
  }
  setTransform(a, b, c, d, x, y) { this.move = [x, y]; }
  setLineDash(dash) { this.dash = dash; }
  measureText(text) {
    this.measuring.font = this.font;
    return this.measuring.measureText(text);
  }
  at(x, y) { return `${+(x + this.move[0]).toFixed(1)} ${+(y + this.move[1]).toFixed(1)}`; }
  beginPath() { this.path = ""; }
  moveTo(x, y) { this.path += `M${this.at(x, y)}`; }
  lineTo(x, y) { this.path += `L${this.at(x, y)}`; }
  bezierCurveTo(ax, ay, bx, by, x, y) { this.path += `C${this.at(ax, ay)} ${this.at(bx, by)} ${this.at(x, y)}`; }
  rect(x, y, width, height) { this.path += `M${this.at(x, y)}h${width}v${height}h${-width}z`; }
  roundRect(x, y, width, height, radius) {
    const r = Math.min(radius, width / 2, height / 2), [w, h] = [width - 2 * r, height - 2 * r];
    const corner = (dx, dy) => `a${r} ${r} 0 0 1 ${dx} ${dy}`;
    this.path += `M${this.at(x + r, y)}h${w}${corner(r, r)}v${h}${corner(-r, r)}h${-w}${corner(-r, -r)}v${-h}${corner(r, -r)}z`;
  }
  /** A whole circle. */
  arc(x, y, r) { this.path += `M${this.at(x - r, y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`; }
  filled() { return ` fill="${this.fillStyle}"${this.globalAlpha < 1 ? ` fill-opacity="${this.globalAlpha}"` : ""}`; }
  stroked() {
    const alpha = this.globalAlpha < 1 ? ` stroke-opacity="${this.globalAlpha}"` : "";
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    return ` fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}" stroke-linejoin="round"${alpha}${dash}`;
  }
  put(look) { if (this.path) this.parts.push(`<path d="${this.path}"${look}/>`); }
  fill() { this.put(this.filled()); }
  stroke() { this.put(this.stroked()); }
  fillRect(x, y, width, height) {
    const path = this.path;
    this.path = "";
    this.rect(x, y, width, height);
    this.fill();
    this.path = path;
  }
  text(text, x, y, look) {
    const [left, base] = this.at(x, y).split(" "), anchor = this.textAlign === "center" ? ' text-anchor="middle"' : "";
    this.parts.push(`<text x="${left}" y="${base}" style="font:${inXml(this.font)}"${anchor}${look}>${inXml(text)}</text>`);
  }
  fillText(text, x, y) { this.text(text, x, y, this.filled()); }
  strokeText(text, x, y) { this.text(text, x, y, this.stroked()); }
  document(width, height, title) {
    const size = `width="${Math.ceil(width)}" height="${Math.ceil(height)}"`;
    return `<svg xmlns="${SVG_NAMESPACE}" ${size} role="img" aria-label="${inXml(title)}">\n${this.parts.join("\n")}\n</svg>\n`;
  }
}

const XML = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
/** Text for XML, without the characters that it cannot hold. */
function inXml(text) {
  const legal = String(text).toWellFormed().replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
  return legal.replace(/[&<>"']/g, (sign) => XML[sign]);
}


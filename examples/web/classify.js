// Classifies images with a model file that is dropped on the page.

import { Model } from "../../npm/index.js";

// Means and standard deviations of the channels over ImageNet.
const MEAN = [0.485, 0.456, 0.406];
const DEVIATION = [0.229, 0.224, 0.225];
// The shorter side of the image, for images of 224 pixels that are cut out of its middle.
const SHORT_SIDE = 256 / 224;
const SHOWN = 5;

const drop = document.getElementById("drop");
const message = document.getElementById("message");
const canvas = document.getElementById("image");
const table = document.getElementById("classes");

let model;
let picture;

function say(text, state = "busy") {
  message.textContent = text;
  message.dataset.state = state;
}

/** Loads a model that takes one image of three channels. */
async function openModel(file) {
  say(`Loading ${file.name} …`);
  const loaded = await Model.load(file);
  const [input, ...others] = loaded.inputs;
  const [batch, channels, height, width] = input?.shape ?? [];
  if (others.length > 0 || batch !== 1 || channels !== 3 || !height || height !== width) {
    loaded.free();
    throw new Error(`${file.name} does not take one square image of three channels`);
  }
  model?.free();
  model = loaded;
}

/** The pixels of the middle of `image`, as large as the model takes them, one channel after the other. */
function pixels(image, side) {
  const scale = Math.round(side * SHORT_SIDE) / Math.min(image.width, image.height);
  const [width, height] = [Math.round(image.width * scale), Math.round(image.height * scale)];
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  const [left, top] = [Math.round((width - side) / 2), Math.round((height - side) / 2)];
  context.drawImage(image, -left, -top, width, height);
  const bytes = context.getImageData(0, 0, side, side).data;
  const area = side * side;
  return Float32Array.from({ length: 3 * area }, (_, at) => {
    const channel = Math.floor(at / area);
    const byte = bytes[4 * (at % area) + channel];
    return (byte / 255 - MEAN[channel]) / DEVIATION[channel];
  });
}

/** Probabilities of the classes, the largest first. */
function mostProbable(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b));
  const powers = Array.from(logits, (x) => Math.exp(x - largest));
  const sum = powers.reduce((a, b) => a + b);
  const classes = powers.map((power, number) => ({ number, probability: power / sum }));
  return classes.sort((a, b) => b.probability - a.probability).slice(0, SHOWN);
}

async function classify() {
  const input = pixels(picture, model.inputs[0].shape[3]);
  say("Running …");
  // The text is painted before the run, which keeps the page busy.
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const start = performance.now();
  const [{ data }] = model.run([input]);
  const time = performance.now() - start;
  const rows = mostProbable(data).map(({ number, probability }) => {
    const row = document.createElement("tr");
    row.insertCell().textContent = number;
    row.insertCell().textContent = probability.toFixed(6);
    return row;
  });
  table.tBodies[0].replaceChildren(...rows);
  table.hidden = false;
  say(`${time.toFixed(0)} ms`, "done");
}

async function open(files) {
  try {
    for (const file of files) {
      if (file.type.startsWith("image/")) picture = await createImageBitmap(file);
      else await openModel(file);
    }
    if (model && picture) await classify();
    else say(model ? "Now an image." : "Now a model.", "ready");
  } catch (error) {
    say(error.message, "error");
  }
}

document.getElementById("files").addEventListener("change", (event) => open(event.target.files));
for (const [name, isOver] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", isOver);
  });
}
drop.addEventListener("drop", (event) => open(event.dataTransfer.files));

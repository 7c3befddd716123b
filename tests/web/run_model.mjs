// Runs a model of the npm package: `node run_model.mjs PACKAGE FILE` with inputs as JSON on standard input.
// Elements are base64; prints `{ inputs, outputs, results }`, or `{ error, status }`.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const { Model } = await import(pathToFileURL(`${folder}/index.js`));

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int64: BigInt64Array,
  int32: Int32Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

const given = JSON.parse(readFileSync(0, "utf8")).map(({ dtype, shape, data }) => {
  const bytes = Uint8Array.from(Buffer.from(data, "base64"));
  return { shape, data: new ARRAYS[dtype](bytes.buffer) };
});

try {
  const model = await Model.load(readFileSync(file));
  const results = model.run(given).map(({ dtype, shape, data }) => {
    return { dtype, shape, data: Buffer.from(data.buffer).toString("base64") };
  });
  console.log(JSON.stringify({ inputs: model.inputs, outputs: model.outputs, results }));
} catch (error) {
  console.log(JSON.stringify({ error: `${error.name}: ${error.message}`, status: error.status }));
}

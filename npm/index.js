// Model files of corsac in WebAssembly.

import { Memory, arrayOf, dtypeNumber } from "./memory.js";

/** The message is that of the library; `status` is the kind of the error, such as "DAMAGED". */
export class CorsacError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "CorsacError";
    this.status = status;
  }
}

let started;

/** Compiles the module; later calls return the first one's result. */
export function init(source = new URL("./corsac.wasm", import.meta.url)) {
  started ??= instantiate(source).catch((error) => {
    started = undefined;
    throw error;
  });
  return started;
}

async function instantiate(source) {
  const result = await compile(await source);
  return new Library((result.instance ?? result).exports);
}

async function compile(source) {
  if (source instanceof URL && source.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return WebAssembly.instantiate(await readFile(source));
  }
  const isAddress = source instanceof URL || typeof source === "string";
  const response = isAddress ? await fetch(source) : source;
  if (!(typeof Response === "function" && response instanceof Response)) return WebAssembly.instantiate(response);
  if (!response.ok) throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
  // Not every server names the type that compiling while loading needs.
  return WebAssembly.instantiate(await response.arrayBuffer());
}

class Library {
  constructor(exports) {
    this.exports = exports;
    this.memory = new Memory(exports);
  }

  /** Calls a function of the C interface, whose last argument is the place of an error. */
  call(name, allocate, ...given) {
    const place = allocate(4);
    const status = this.exports[name](...given, place);
    if (status === 0) return;
    const error = this.memory.pointer(place);
    const message = this.memory.text(this.exports.corsac_error_message(error));
    this.exports.corsac_error_free(error);
    const kind = this.memory.text(this.exports.corsac_status_name(status));
    throw new CorsacError(message, kind.replace("CORSAC_STATUS_", ""));
  }

  specs(model, kind) {
    const count = this.exports[`corsac_model_${kind}_count`](model);
    const spec = (_, number) => this.memory.spec(this.exports[`corsac_model_${kind}`](model, number));
    return Object.freeze(Array.from({ length: count }, spec));
  }
}

/** The version of the library, such as "0.1.0". */
export async function version() {
  const library = await init();
  return library.memory.text(library.exports.corsac_version());
}

/** A model ready to run. */
export class Model {
  #library;
  #handle;

  /** Loads a model file from its bytes: an ArrayBuffer, a typed array, a Blob or a Response. */
  static async load(source) {
    const library = await init();
    const file = await source;
    const given = typeof file.arrayBuffer === "function" ? await file.arrayBuffer() : file;
    const bytes = ArrayBuffer.isView(given) ? given : new Uint8Array(given);
    const handle = library.memory.borrow((allocate) => {
      const start = library.memory.copy(bytes, allocate);
      const place = allocate(4);
      library.call("corsac_model_load_memory", allocate, start, bytes.byteLength, 0, place);
      return library.memory.pointer(place);
    });
    return new Model(library, handle);
  }

  constructor(library, handle) {
    if (!(library instanceof Library)) throw new TypeError("models are made by Model.load");
    this.#library = library;
    this.#handle = handle;
    this.inputs = library.specs(handle, "input");
    this.outputs = library.specs(handle, "output");
  }

  /** Runs the model on tensors in the order of `inputs`: `{ shape, data }`, or elements alone where sizes are fixed. */
  run(given) {
    if (this.#handle === 0) throw new TypeError("the model has been freed");
    if (given.length !== this.inputs.length) {
      throw new TypeError(`the model takes ${this.inputs.length} inputs, not ${given.length}`);
    }
    const tensors = this.inputs.map((spec, at) => tensorFor(spec, given[at]));
    const { exports, memory } = this.#library;
    return memory.borrow((allocate) => {
      const views = memory.views(tensors, allocate);
      const count = this.outputs.length;
      const places = allocate(4 * count);
      this.#library.call("corsac_model_run", allocate, this.#handle, views, tensors.length, places, count);
      const handles = Array.from({ length: count }, (_, at) => memory.pointer(places + 4 * at));
      const results = handles.map((handle) => memory.tensor(exports.corsac_tensor_view(handle)));
      handles.forEach((handle) => exports.corsac_tensor_free(handle));
      return results;
    });
  }

  /** Gives its memory back. */
  free() {
    this.#library.exports.corsac_model_free(this.#handle);
    this.#handle = 0;
  }
}

/** The tensor that an input was given, with elements of its type. */
function tensorFor(spec, given) {
  const dtype = dtypeNumber(spec.dtype);
  const Elements = arrayOf(dtype);
  const { shape = spec.shape, data } = ArrayBuffer.isView(given) ? { data: given } : given;
  if (!(data instanceof Elements)) {
    throw new TypeError(`input ${spec.name} is a ${Elements.name} for ${spec.dtype}, not a ${data?.constructor.name}`);
  }
  if (shape.some((size) => !Number.isSafeInteger(size) || size < 0)) {
    throw new TypeError(`input ${spec.name} has the shape [${spec.shape}]: give it { shape, data }, not [${shape}]`);
  }
  return { dtype, shape, data };
}

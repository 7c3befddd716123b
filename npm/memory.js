// The memory of the module: what its C interface reads and writes, as corsac.h lays it out for 32-bit addresses.

/** Names of the types in the order of `corsac_dtype`, and the arrays that hold their elements. */
const DTYPES = [
  null,
  ["float32", Float32Array],
  ["float64", Float64Array],
  ["bfloat16", Uint16Array],
  ["float16", Uint16Array],
  ["int64", BigInt64Array],
  ["int32", Int32Array],
  ["int16", Int16Array],
  ["int8", Int8Array],
  ["uint8", Uint8Array],
  ["bool", Uint8Array],
];

export const dtypeNumber = (name) => DTYPES.findIndex((known) => known?.[0] === name);
export const arrayOf = (dtype) => DTYPES[dtype][1];

/** Bytes of a `corsac_view`: data, size_bytes, dtype, rank, shape, strides, flags. */
const VIEW_BYTES = 32;

export class Memory {
  #exports;

  constructor(exports) {
    this.#exports = exports;
  }

  // A new one each time: memory that grows leaves old buffers without their bytes.
  get #view() {
    return new DataView(this.#exports.memory.buffer);
  }

  pointer(place) {
    return this.#view.getUint32(place, true);
  }

  text(place) {
    const bytes = new Uint8Array(this.#exports.memory.buffer);
    return new TextDecoder().decode(bytes.slice(place, bytes.indexOf(0, place)));
  }

  /** `{ name, dtype, shape }` of a `corsac_spec`; a size that differs between calls is null. */
  spec(place) {
    const view = this.#view;
    const rank = view.getInt32(place + 8, true);
    const sizes = this.#sizes(view.getUint32(place + 12, true), rank);
    return Object.freeze({
      name: this.text(view.getUint32(place, true)),
      dtype: DTYPES[view.getInt32(place + 4, true)][0],
      shape: Object.freeze(sizes.map((size) => (size < 0 ? null : size))),
    });
  }

  /** `{ dtype, shape, data }` of a `corsac_view` of a contiguous tensor, copied. */
  tensor(place) {
    const view = this.#view;
    const [name, Elements] = DTYPES[view.getInt32(place + 8, true)];
    const start = view.getUint32(place, true);
    const shape = this.#sizes(view.getUint32(place + 16, true), view.getInt32(place + 12, true));
    const bytes = this.#exports.memory.buffer.slice(start, start + view.getUint32(place + 4, true));
    return { dtype: name, shape, data: new Elements(bytes) };
  }

  #sizes(place, rank) {
    return Array.from({ length: rank }, (_, at) => Number(this.#view.getBigInt64(place + 8 * at, true)));
  }

  /** Calls `work` with a function that allocates bytes, all of which are freed afterwards. */
  borrow(work) {
    const taken = [];
    const allocate = (size) => {
      const place = this.#exports.corsac_memory_allocate(size) >>> 0;
      if (place === 0) throw new RangeError(`no memory for ${size} bytes`);
      taken.push([place, size]);
      return place;
    };
    try {
      return work(allocate);
    } finally {
      for (const [place, size] of taken) this.#exports.corsac_memory_free(place, size);
    }
  }

  /** Copies the bytes of `array` into memory of the module. */
  copy(array, allocate) {
    const place = allocate(array.byteLength);
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    new Uint8Array(this.#exports.memory.buffer).set(bytes, place);
    return place;
  }

  /** Writes tensors `{ dtype, shape, data }`, of which dtypes are numbers, as an array of `corsac_view`. */
  views(tensors, allocate) {
    const start = allocate(VIEW_BYTES * tensors.length);
    tensors.forEach(({ dtype, shape, data }, at) => {
      const elements = this.copy(data, allocate);
      const sizes = this.copy(BigInt64Array.from(shape, BigInt), allocate);
      const place = start + VIEW_BYTES * at;
      const words = [elements, data.byteLength, dtype, shape.length, sizes, 0, 0, 0];
      words.forEach((word, field) => this.#view.setUint32(place + 4 * field, word, true));
    });
    return start;
  }
}

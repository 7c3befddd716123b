/** The type of the elements of a tensor. */
export type Dtype =
  | "float32"
  | "float64"
  | "bfloat16"
  | "float16"
  | "int64"
  | "int32"
  | "int16"
  | "int8"
  | "uint8"
  | "bool";

/**
 * Elements, row by row: the array for the type. Numbers of type float16 and bfloat16 are bits, in a
 * Uint16Array; a bool is a byte, of which every value but 0 is true.
 */
export type Elements =
  | Float32Array
  | Float64Array
  | Uint16Array
  | BigInt64Array
  | Int32Array
  | Int16Array
  | Int8Array
  | Uint8Array;

/** Name, type and shape of an input or output; a size that differs between calls is null. */
export interface Spec {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly (number | null)[];
}

/** A result of a run. */
export interface Tensor {
  dtype: Dtype;
  shape: number[];
  data: Elements;
}

/** An input: its elements, with the shape if it is not that of the spec. */
export type Input = Elements | { shape?: readonly number[]; data: Elements };

/** The kind of an error, as in corsac.h. */
export type Status =
  | "IO"
  | "DAMAGED"
  | "VERSION"
  | "UNSUPPORTED"
  | "TOO_LARGE"
  | "CALL"
  | "INTERNAL"
  | "ARGUMENT";

/** An error of the library. */
export class CorsacError extends Error {
  readonly status: Status;
  constructor(message: string, status: Status);
}

/**
 * Compiles corsac.wasm, once: from beside this file, or from another address, a response, its bytes or a
 * compiled module. `Model.load` calls it.
 */
export function init(
  source?: URL | string | Response | BufferSource | WebAssembly.Module | Promise<Response>,
): Promise<unknown>;

/** The version of the library, such as "0.1.0". */
export function version(): Promise<string>;

/** A model ready to run. */
export class Model {
  private constructor();

  /**
   * Loads a model file. All of it is checked, and nothing in it is executed.
   *
   * Throws a {@link CorsacError} if it is damaged, or has operators that are not supported.
   */
  static load(source: BufferSource | Blob | Response | Promise<Blob | Response>): Promise<Model>;

  /** The inputs, in order. */
  readonly inputs: readonly Spec[];

  /** The outputs, in order. */
  readonly outputs: readonly Spec[];

  /**
   * Runs the model on its inputs, in order, and returns its outputs. It returns when they are computed:
   * pages with large models call it in a worker.
   *
   * Throws a TypeError for inputs of other types, and a {@link CorsacError} for other shapes, or values with
   * which the model cannot compute.
   */
  run(inputs: readonly Input[]): Tensor[];

  /** Gives its memory back. The model cannot be used any more. */
  free(): void;
}

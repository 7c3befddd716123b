/*
 * corsac: models in files, run on the CPU.
 *
 * Written by cbindgen from crates/corsac-capi; docs/c.md shows how it is used.
 *
 * Errors. A function that can fail returns a corsac_status. If its last argument `error` is not
 * null, *error becomes null on success, and otherwise an error with a text, which the caller frees
 * with corsac_error_free. Nothing is kept per thread. After an error all handles can still be used
 * and freed.
 *
 * Ownership. A function that makes a handle says who frees it, with the corsac_*_free function of its
 * type; those ignore null. Pointers that are returned otherwise belong to the handle and live as long
 * as it does. The library keeps no pointer to an argument after a call, tensors of DLPack apart.
 *
 * Threads. Any number of threads may use the same model or tensor at once, and hand handles to each
 * other; calls of one session wait for each other. A handle is freed when no thread uses it any more.
 * Memory of inputs is not written to, and memory of outputs is not used, by others during a run.
 */

#ifndef CORSAC_H
#define CORSAC_H

#include <stddef.h>
#include <stdint.h>

/* Of dlpack.h, which is needed only by those who make or read such tensors themselves. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

/**
 * The major version of this header.
 */
#define CORSAC_VERSION_MAJOR 0

/**
 * The minor version of this header.
 */
#define CORSAC_VERSION_MINOR 1

/**
 * The patch version of this header.
 */
#define CORSAC_VERSION_PATCH 0

/**
 * A flag of a view: its memory is not written to.
 */
#define CORSAC_VIEW_READ_ONLY 1

/**
 * The outcome of a call: success, or the kind of the error. Numbers do not change between
 * versions; later versions may add some.
 */
enum corsac_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Success.
   */
  CORSAC_STATUS_OK = 0,
  /**
   * The file cannot be read.
   */
  CORSAC_STATUS_IO = 1,
  /**
   * The file is damaged, cut off, or no model file.
   */
  CORSAC_STATUS_DAMAGED = 2,
  /**
   * The file is in a version of the format that this library does not read.
   */
  CORSAC_STATUS_VERSION = 3,
  /**
   * The model has operators, or names, that this library does not support.
   */
  CORSAC_STATUS_UNSUPPORTED = 4,
  /**
   * The file exceeds the limits: raise them if it can be trusted.
   */
  CORSAC_STATUS_TOO_LARGE = 5,
  /**
   * The model does not take these inputs or outputs, or cannot compute with their values: an
   * index is out of range, or there is no memory.
   */
  CORSAC_STATUS_CALL = 6,
  /**
   * A bug of the library. The handles of the call can still be used and freed.
   */
  CORSAC_STATUS_INTERNAL = 7,
  /**
   * An argument that no model would take: a null pointer, an unknown dtype, strides that leave
   * the memory, memory of another device, a setting of generation out of its range.
   */
  CORSAC_STATUS_ARGUMENT = 8,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum corsac_status corsac_status;
#else
typedef int32_t corsac_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Why a text ended.
 */
enum corsac_text_end
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * It goes on.
   */
  CORSAC_TEXT_END_NONE = 0,
  /**
   * With a token that ends texts.
   */
  CORSAC_TEXT_END_STOP = 1,
  /**
   * It has as many new tokens as were asked for.
   */
  CORSAC_TEXT_END_LENGTH = 2,
  /**
   * The model takes no longer texts.
   */
  CORSAC_TEXT_END_FULL = 3,
  /**
   * The model gave logits that are not finite numbers; the token is the last one before.
   */
  CORSAC_TEXT_END_INVALID = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum corsac_text_end corsac_text_end;
#else
typedef int32_t corsac_text_end;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The type of the elements of a tensor. Floating-point numbers and integers are in the byte order
 * of the machine; a bool is a byte, of which every value but 0 is true.
 */
enum corsac_dtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * No type: that of a structure which was not filled in.
   */
  CORSAC_DTYPE_NONE = 0,
  /**
   * 32-bit floating point.
   */
  CORSAC_DTYPE_FLOAT32 = 1,
  /**
   * 64-bit floating point.
   */
  CORSAC_DTYPE_FLOAT64 = 2,
  /**
   * 16-bit floating point with 8 bits of exponent.
   */
  CORSAC_DTYPE_BFLOAT16 = 3,
  /**
   * 16-bit floating point with 5 bits of exponent.
   */
  CORSAC_DTYPE_FLOAT16 = 4,
  /**
   * Signed 64-bit integer.
   */
  CORSAC_DTYPE_INT64 = 5,
  /**
   * Signed 32-bit integer.
   */
  CORSAC_DTYPE_INT32 = 6,
  /**
   * Signed 16-bit integer.
   */
  CORSAC_DTYPE_INT16 = 7,
  /**
   * Signed 8-bit integer.
   */
  CORSAC_DTYPE_INT8 = 8,
  /**
   * Unsigned 8-bit integer.
   */
  CORSAC_DTYPE_UINT8 = 9,
  /**
   * Truth value, of one byte.
   */
  CORSAC_DTYPE_BOOL = 10,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum corsac_dtype corsac_dtype;
#else
typedef int32_t corsac_dtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * An error: a status and a text.
 */
typedef struct corsac_error corsac_error;

/**
 * A model ready to run. It does not change: any number of threads may use it at once.
 */
typedef struct corsac_model corsac_model;

/**
 * State between calls of the programs of a model. Calls of several threads wait for each other.
 */
typedef struct corsac_session corsac_session;

/**
 * A tensor: a result of a run, or one that was imported by DLPack.
 */
typedef struct corsac_tensor corsac_tensor;

/**
 * A language model ready to continue texts. It does not change: any number of threads may use it at once.
 */
typedef struct corsac_text_model corsac_text_model;

/**
 * Options of loading a model. Set `size` to `sizeof(corsac_options)`; all else may be 0, which
 * stands for the default: `corsac_options options = {.size = sizeof options, .threads = 2};`
 */
typedef struct corsac_options {
  /**
   * `sizeof(corsac_options)`: later versions may add members to the end.
   */
  size_t size;
  /**
   * Threads of a run. By default the value of the environment variable CORSAC_NUM_THREADS, or
   * the number of cores.
   */
  size_t threads;
  /**
   * Limit of the bytes of the header. By default 32 MiB.
   */
  uint64_t limit_header_bytes;
  /**
   * Limit of the nodes of the graph. By default 100,000.
   */
  uint64_t limit_nodes;
  /**
   * Limit of the bytes of all weights. By default 64 GiB.
   */
  uint64_t limit_weight_bytes;
  /**
   * Limit of the bytes of any value, and of all that are held at once. By default 8 GiB.
   */
  uint64_t limit_value_bytes;
  /**
   * Limit of the iterations of the loops of a call. By default 10,000,000.
   */
  uint64_t limit_iterations;
} corsac_options;

/**
 * Name, dtype and shape of an input, an output or a weight of a model.
 */
typedef struct corsac_spec {
  /**
   * The name, in UTF-8.
   */
  const char *name;
  /**
   * The type of the elements: a `corsac_dtype`.
   */
  int32_t dtype;
  /**
   * Number of dimensions.
   */
  int32_t rank;
  /**
   * The sizes, outermost dimension first; -1 for a size that differs between calls.
   */
  const int64_t *shape;
} corsac_spec;

/**
 * A tensor in memory: the caller's, or a library's. All of the memory that it points to belongs to
 * others.
 */
typedef struct corsac_view {
  /**
   * The first element, at index [0, ..., 0]. It may be null if there are no elements, and need not
   * be aligned. The data of an input is not written to.
   */
  void *data;
  /**
   * Bytes of the memory from `data` on, in which all elements must lie.
   */
  size_t size_bytes;
  /**
   * The type of the elements: a `corsac_dtype`.
   */
  int32_t dtype;
  /**
   * Number of dimensions: 0 to 64.
   */
  int32_t rank;
  /**
   * The sizes, outermost dimension first. It may be null if the rank is 0.
   */
  const int64_t *shape;
  /**
   * The distance in elements, not in bytes, between neighbours in each dimension. Null if the
   * elements lie row by row without gaps. Strides are not negative.
   */
  const int64_t *strides;
  /**
   * CORSAC_VIEW_READ_ONLY or 0.
   */
  uint64_t flags;
} corsac_view;

/**
 * A size of the state of a session.
 */
typedef struct corsac_size {
  /**
   * The name, in UTF-8.
   */
  const char *name;
  /**
   * The size.
   */
  size_t value;
} corsac_size;

/**
 * A text to continue.
 */
typedef struct corsac_prompt {
  /**
   * The tokens: at least one.
   */
  const uint32_t *tokens;
  /**
   * Number of tokens.
   */
  size_t token_count;
} corsac_prompt;

/**
 * How texts are continued. Set `size` to `sizeof(corsac_generate_options)`; all else may be 0, which stands for the
 * default. Settings are applied in the order repetition_penalty, temperature, top_k, top_p.
 */
typedef struct corsac_generate_options {
  /**
   * `sizeof(corsac_generate_options)`: later versions may add members to the end.
   */
  size_t size;
  /**
   * Most tokens that are added to a text. By default 256.
   */
  size_t max_new_tokens;
  /**
   * Divides the logits. By default 0: the most probable token is taken.
   */
  double temperature;
  /**
   * Most tokens to choose from. By default all of them.
   */
  size_t top_k;
  /**
   * Only the fewest tokens whose probabilities add up to this may be chosen. By default 1: all of them.
   */
  double top_p;
  /**
   * Above 1, tokens of the text are less probable. By default 1.
   */
  double repetition_penalty;
  /**
   * Equal seeds give equal texts: text `n` has the seed `seed + n`.
   */
  uint64_t seed;
  /**
   * Tokens that end a text. By default, which is null, those of the model.
   */
  const uint32_t *stop;
  /**
   * Number of tokens that end a text: 0 for none, if `stop` is not null.
   */
  size_t stop_count;
} corsac_generate_options;

/**
 * A new token of a text.
 */
typedef struct corsac_new_token {
  /**
   * The number of the text among the prompts.
   */
  size_t text;
  /**
   * The token.
   */
  uint32_t token;
  /**
   * Whether, and why, it is the last one of the text.
   */
  corsac_text_end end;
} corsac_new_token;

/**
 * Takes a token of a text, which lives until it returns. Returns 0 to go on, and any other number to end this text.
 */
typedef int32_t (*corsac_on_token)(const struct corsac_new_token *token,
                                   void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library that is linked, such as "0.1.0". It lives as long as the program.
 */
const char *corsac_version(void);

/**
 * The name of a status, such as "CORSAC_STATUS_OK"; null if the number is no status. It lives as
 * long as the program.
 */
const char *corsac_status_name(int32_t status);

/**
 * The status of an error; CORSAC_STATUS_OK for null.
 */
corsac_status corsac_error_status(const struct corsac_error *error);

/**
 * The text of an error in UTF-8: one line, without a full stop. It lives as long as the error.
 * Empty for null.
 */
const char *corsac_error_message(const struct corsac_error *error);

/**
 * Frees an error. Null is ignored.
 */
void corsac_error_free(struct corsac_error *error);

/**
 * The name of a dtype, such as "float32"; null if the number is no dtype. It lives as long as the
 * program.
 */
const char *corsac_dtype_name(int32_t dtype);

/**
 * Bytes of an element of a dtype; 0 if the number is no dtype.
 */
size_t corsac_dtype_size_bytes(int32_t dtype);

/**
 * Loads the model file at `path`, within the limits of `options`, which may be null for defaults.
 *
 * All of the file is checked, and nothing in it is executed: it may come from anywhere. On success
 * `*model` is the caller's to free with corsac_model_free; on failure it is null. The file is not used after the
 * call, unless sizes of inputs differ between calls: then it is kept open.
 */
corsac_status corsac_model_load(const char *path,
                                const struct corsac_options *options,
                                struct corsac_model **model,
                                struct corsac_error **error);

/**
 * Loads a model file of `size_bytes` bytes from memory, which may be freed after the call;
 * otherwise as corsac_model_load.
 */
corsac_status corsac_model_load_memory(const void *bytes,
                                       size_t size_bytes,
                                       const struct corsac_options *options,
                                       struct corsac_model **model,
                                       struct corsac_error **error);

/**
 * Frees a model. Its specs go with it; its results stay. Null is ignored.
 */
void corsac_model_free(struct corsac_model *model);

/**
 * Number of threads of a run; 0 for null.
 */
size_t corsac_model_threads(const struct corsac_model *model);

/**
 * Number of inputs; 0 for null.
 */
size_t corsac_model_input_count(const struct corsac_model *model);

/**
 * Number of outputs; 0 for null.
 */
size_t corsac_model_output_count(const struct corsac_model *model);

/**
 * Number of weights; 0 for null.
 */
size_t corsac_model_weight_count(const struct corsac_model *model);

/**
 * Number of tensors of state, which sessions keep between calls; 0 for null.
 */
size_t corsac_model_state_count(const struct corsac_model *model);

/**
 * Number of programs, of which the first is the default one; 0 for null.
 */
size_t corsac_model_program_count(const struct corsac_model *model);

/**
 * The name of a program; an only one may have an empty name. It lives as long as the model. Null if there is no such
 * program.
 */
const char *corsac_model_program_name(const struct corsac_model *model,
                                      size_t number);

/**
 * Name, dtype and shape of an input of the default program. They live as long as the model. Null if there is no such
 * input.
 */
const struct corsac_spec *corsac_model_input(const struct corsac_model *model,
                                             size_t number);

/**
 * Name, dtype and shape of an output of the default program, which is named after its place in the
 * result: "1.0", "logits", or "output" if it is the only one. They live as long as the model. Null if there is no such
 * output.
 */
const struct corsac_spec *corsac_model_output(const struct corsac_model *model,
                                              size_t number);

/**
 * Name, dtype and shape of a weight, in the order of the file. They live as long as the model. Null
 * if there is no such weight.
 */
const struct corsac_spec *corsac_model_weight(const struct corsac_model *model,
                                              size_t number);

/**
 * Name, dtype and shape of a tensor of state; a size of -1 is chosen by each session. They live as long as the model.
 * Null if there is no such tensor.
 */
const struct corsac_spec *corsac_model_state(const struct corsac_model *model,
                                             size_t number);

/**
 * Finds the number of the input called `name`. The error of another name lists those that there are.
 */
corsac_status corsac_model_find_input(const struct corsac_model *model,
                                      const char *name,
                                      size_t *number,
                                      struct corsac_error **error);

/**
 * Finds the number of the output called `name`. The error of another name lists those that there
 * are.
 */
corsac_status corsac_model_find_output(const struct corsac_model *model,
                                       const char *name,
                                       size_t *number,
                                       struct corsac_error **error);

/**
 * Runs a model, and allocates its outputs.
 *
 * `inputs` are as many views as the model has inputs, in its order, each of the dtype and shape of
 * that input. They are only read; the memory may be freed after the call. Inputs that are not
 * contiguous, or are not aligned, are copied, and so are those of the dtypes of 8 to 32 bits other
 * than float32 and bool.
 *
 * `outputs` has a place for each output of the model. On success each holds a new tensor, which is
 * the caller's to free with corsac_tensor_free; on failure they are not written to.
 *
 * Any number of threads may run a model at once.
 */
corsac_status corsac_model_run(const struct corsac_model *model,
                               const struct corsac_view *inputs,
                               size_t input_count,
                               struct corsac_tensor **outputs,
                               size_t output_count,
                               struct corsac_error **error);

/**
 * Runs a model into memory of the caller.
 *
 * `inputs` are as in corsac_model_run. `outputs` are as many views as the model has outputs, each of
 * the dtype and shape of that output, with any strides by which its elements do not overlap. Two
 * outputs may not reach over the same memory. An output may share memory with inputs: all inputs
 * are read before it is written to. After an error from the run itself (an index out of range, no
 * memory), outputs have unspecified elements; other errors leave them as they were.
 *
 * Any number of threads may run a model at once, into different memory.
 */
corsac_status corsac_model_run_into(const struct corsac_model *model,
                                    const struct corsac_view *inputs,
                                    size_t input_count,
                                    const struct corsac_view *outputs,
                                    size_t output_count,
                                    struct corsac_error **error);

/**
 * Makes a session of a model, whose state has these sizes and its initial values.
 *
 * `sizes` are all sizes of the state that are names, in any order; null if there are none. The session shares the
 * weights of the model, which may be freed before it. On success `*session` is the caller's to free with
 * corsac_session_free; on failure it is null.
 */
corsac_status corsac_session_new(const struct corsac_model *model,
                                 const struct corsac_size *sizes,
                                 size_t size_count,
                                 struct corsac_session **session,
                                 struct corsac_error **error);

/**
 * Frees a session. Null is ignored.
 */
void corsac_session_free(struct corsac_session *session);

/**
 * Runs a program of a model, which reads and writes the state of the session, and allocates its outputs.
 *
 * `program` is the name of the program, or null for the default one. `inputs` and `outputs` are as in
 * corsac_model_run, for the inputs and outputs of that program. After an error the state is as before; if an index was
 * out of range after the program had written to the state, further calls are errors until corsac_session_reset.
 */
corsac_status corsac_session_run(const struct corsac_session *session,
                                 const char *program,
                                 const struct corsac_view *inputs,
                                 size_t input_count,
                                 struct corsac_tensor **outputs,
                                 size_t output_count,
                                 struct corsac_error **error);

/**
 * Runs a program of a model as corsac_session_run, into memory of the caller: `outputs` are as in
 * corsac_model_run_into, for the outputs of that program.
 */
corsac_status corsac_session_run_into(const struct corsac_session *session,
                                      const char *program,
                                      const struct corsac_view *inputs,
                                      size_t input_count,
                                      const struct corsac_view *outputs,
                                      size_t output_count,
                                      struct corsac_error **error);

/**
 * Copies the state called `name` to a new tensor. On success `*tensor` is the caller's to free with
 * corsac_tensor_free; on failure it is null.
 */
corsac_status corsac_session_state(const struct corsac_session *session,
                                   const char *name,
                                   struct corsac_tensor **tensor,
                                   struct corsac_error **error);

/**
 * Replaces the state called `name` by a copy of `tensor`, of its dtype and shape, with any strides.
 */
corsac_status corsac_session_set_state(const struct corsac_session *session,
                                       const char *name,
                                       const struct corsac_view *tensor,
                                       struct corsac_error **error);

/**
 * Sets the state to its initial values, for the same sizes.
 */
corsac_status corsac_session_reset(const struct corsac_session *session,
                                   struct corsac_error **error);

/**
 * Enlarges the state to these sizes; others stay. Elements keep their places, and new ones have their initial values.
 * A size cannot become smaller.
 */
corsac_status corsac_session_resize(const struct corsac_session *session,
                                    const struct corsac_size *sizes,
                                    size_t size_count,
                                    struct corsac_error **error);

/**
 * Makes another session of the model, with a copy of the state. On success `*fork` is the caller's to free with
 * corsac_session_free; on failure it is null.
 */
corsac_status corsac_session_fork(const struct corsac_session *session,
                                  struct corsac_session **fork,
                                  struct corsac_error **error);

/**
 * Loads the language model in the file at `path`, which `corsac save --generate` has written; otherwise as
 * corsac_model_load. On success `*model` is the caller's to free with corsac_text_model_free; on failure it is null.
 */
corsac_status corsac_text_model_load(const char *path,
                                     const struct corsac_options *options,
                                     struct corsac_text_model **model,
                                     struct corsac_error **error);

/**
 * Loads a language model of `size_bytes` bytes from memory, which may be freed after the call; otherwise as
 * corsac_text_model_load.
 */
corsac_status corsac_text_model_load_memory(const void *bytes,
                                            size_t size_bytes,
                                            const struct corsac_options *options,
                                            struct corsac_text_model **model,
                                            struct corsac_error **error);

/**
 * Frees a language model. Null is ignored.
 */
void corsac_text_model_free(struct corsac_text_model *model);

/**
 * Number of tokens that there are: all tokens are below it. 0 for null.
 */
size_t corsac_text_model_vocabulary(const struct corsac_text_model *model);

/**
 * Most tokens of a prompt, and of a text but for its last one; 0 for null.
 */
size_t corsac_text_model_longest_text(const struct corsac_text_model *model);

/**
 * Most texts that are continued at once, while others wait; 0 for null.
 */
size_t corsac_text_model_most_texts(const struct corsac_text_model *model);

/**
 * The tokens that end a text, and in `*count` their number. They live as long as the model. Null, and 0, for a null
 * model; null if `count` is null.
 */
const uint32_t *corsac_text_model_stop(const struct corsac_text_model *model,
                                       size_t *count);

/**
 * Continues texts, and calls `on_token` with `context` for each new token, in the thread of the call.
 *
 * Texts are continued together, in steps of a token for each: as many as the model takes at once, while others wait.
 * The tokens of each are those that it would have alone. `options` may be null for defaults. All prompts and options
 * are checked before the first token. After an error, tokens that `on_token` has got are right.
 *
 * Any number of threads may continue texts with a model at once, and `on_token` may call any function.
 */
corsac_status corsac_text_model_generate(const struct corsac_text_model *model,
                                         const struct corsac_prompt *prompts,
                                         size_t prompt_count,
                                         const struct corsac_generate_options *options,
                                         corsac_on_token on_token,
                                         void *context,
                                         struct corsac_error **error);

/**
 * The elements of a tensor, with strides: they and the view live as long as the tensor. Null for
 * null. A copy of the view can be passed to a run.
 */
const struct corsac_view *corsac_tensor_view(const struct corsac_tensor *tensor);

/**
 * Frees a tensor. Memory that was exported by DLPack stays until it is released there, too. Null is
 * ignored.
 */
void corsac_tensor_free(struct corsac_tensor *tensor);

/**
 * Takes over a tensor of DLPack on the CPU, without a copy.
 *
 * On success `*tensor` is the caller's to free with corsac_tensor_free, and `managed` belongs to it: its
 * deleter is called once, by the thread that frees the last user of the memory. On failure `*tensor` is
 * null, and `managed` stays the caller's.
 */
corsac_status corsac_tensor_from_dlpack(struct DLManagedTensor *managed,
                                        struct corsac_tensor **tensor,
                                        struct corsac_error **error);

/**
 * As corsac_tensor_from_dlpack, for the versioned form. A tensor that is flagged as read-only is
 * not taken as an output.
 */
corsac_status corsac_tensor_from_dlpack_versioned(struct DLManagedTensorVersioned *managed,
                                                  struct corsac_tensor **tensor,
                                                  struct corsac_error **error);

/**
 * Exports a tensor by DLPack, without a copy.
 *
 * On success `*managed` is the caller's to give back by its deleter, on any thread; it shares the memory
 * of `tensor`, which may be freed before. On failure `*managed` is null. A read-only tensor is
 * refused, since this form cannot say so.
 */
corsac_status corsac_tensor_to_dlpack(const struct corsac_tensor *tensor,
                                      struct DLManagedTensor **managed,
                                      struct corsac_error **error);

/**
 * As corsac_tensor_to_dlpack, in the versioned form, which flags tensors that are read-only.
 */
corsac_status corsac_tensor_to_dlpack_versioned(const struct corsac_tensor *tensor,
                                                struct DLManagedTensorVersioned **managed,
                                                struct corsac_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CORSAC_H */

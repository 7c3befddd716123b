/* All element types, compared with results of the Rust interface. */

#include "check.h"

#define MOST 16

/* The elements of a view, row by row, at every second place of new memory. */
static unsigned char *spread(const corsac_view *view, int64_t *stride, corsac_view *wide)
{
    size_t each = corsac_dtype_size_bytes(view->dtype), count = (size_t)view->shape[0];
    unsigned char *memory = malloc(2 * count * each);
    CHECK(memory != NULL);
    memset(memory, 0x5a, 2 * count * each);
    for (size_t at = 0; at < count; at++)
        memcpy(memory + 2 * at * each, (unsigned char *)view->data + at * each, each);
    *stride = 2;
    *wide = *view;
    wide->data = memory;
    wide->size_bytes = (2 * count - 1) * each;
    wide->strides = stride;
    return memory;
}

static int same_elements(const corsac_view *view, const unsigned char *expected)
{
    size_t each = corsac_dtype_size_bytes(view->dtype);
    for (int64_t at = 0; at < view->shape[0]; at++) {
        int64_t place = view->strides ? at * view->strides[0] : at;
        if (memcmp((unsigned char *)view->data + place * each, expected + at * each, each) != 0)
            return 0;
    }
    return 1;
}

void test_types(void)
{
    corsac_model *model = load("types.safetensors");
    size_t count = corsac_model_input_count(model), size;
    CHECK(count == 10 && corsac_model_output_count(model) == count);
    corsac_view inputs[MOST], wide_inputs[MOST], outputs[MOST];
    int64_t strides[2 * MOST];
    unsigned char *expected[MOST], *memory[3 * MOST];
    for (size_t at = 0; at < count; at++) {
        const corsac_spec *spec = corsac_model_input(model, at), *out = corsac_model_output(model, at);
        CHECK(spec->dtype == (int32_t)at + 1 && out->dtype == spec->dtype && spec->rank == 1);
        CHECK(strcmp(spec->name, corsac_dtype_name(spec->dtype)) == 0);
        char name[32];
        snprintf(name, sizeof name, "types.in%zu", at);
        memory[3 * at] = read_file(name, &size);
        CHECK(size == (size_t)spec->shape[0] * corsac_dtype_size_bytes(spec->dtype));
        inputs[at] = (corsac_view){.data = memory[3 * at], .size_bytes = size, .dtype = spec->dtype,
                                   .rank = 1, .shape = spec->shape};
        memory[3 * at + 1] = spread(&inputs[at], &strides[2 * at], &wide_inputs[at]);
        memory[3 * at + 2] = spread(&inputs[at], &strides[2 * at + 1], &outputs[at]);
        snprintf(name, sizeof name, "types.out%zu", at);
        expected[at] = read_file(name, &size);
        CHECK(size == inputs[at].size_bytes);
    }
    corsac_tensor *tensors[MOST];
    for (int pass = 0; pass < 2; pass++) {
        SUCCEEDS(corsac_model_run, model, pass ? wide_inputs : inputs, count, tensors, count);
        SUCCEEDS(corsac_model_run_into, model, pass ? wide_inputs : inputs, count, outputs, count);
        for (size_t at = 0; at < count; at++) {
            CHECK(same_elements(corsac_tensor_view(tensors[at]), expected[at]));
            CHECK(same_elements(&outputs[at], expected[at]));
            corsac_tensor_free(tensors[at]);
        }
    }
    /* Truth values of C programs may be any byte. */
    unsigned char *bools = inputs[9].data;
    for (int64_t at = 0; at < inputs[9].shape[0]; at++)
        bools[at] = bools[at] ? 0x80 : 0;
    SUCCEEDS(corsac_model_run_into, model, inputs, count, outputs, count);
    CHECK(same_elements(&outputs[9], expected[9]));
    for (size_t at = 0; at < count; at++) {
        free(expected[at]);
        for (int part = 0; part < 3; part++)
            free(memory[3 * at + part]);
    }
    corsac_model_free(model);
}

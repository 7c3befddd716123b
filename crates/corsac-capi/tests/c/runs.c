/* Runs: outputs of the library and of the caller, strides, memory that is shared. */

#include "check.h"

static const float SCALED[6] = {0, 10, 200, 3, 40, 500};
static const float PICKED[6] = {3, 4, 5, 0, 1, 2};

static void outputs_are_allocated(const corsac_model *model)
{
    corsac_view inputs[2];
    rows_inputs(inputs);
    corsac_tensor *outputs[2];
    SUCCEEDS(corsac_model_run, model, inputs, 2, outputs, 2);
    const corsac_view *scaled = corsac_tensor_view(outputs[0]);
    CHECK(has_floats(scaled, SCALED, 6) && has_floats(corsac_tensor_view(outputs[1]), PICKED, 6));
    CHECK(scaled->size_bytes == 24 && scaled->flags == 0);
    CHECK(scaled->strides[0] == 3 && scaled->strides[1] == 1);
    /* A result is an input of the next run. */
    inputs[0] = *scaled;
    corsac_tensor *again[2];
    SUCCEEDS(corsac_model_run, model, inputs, 2, again, 2);
    corsac_tensor_free(outputs[0]);
    const float twice[6] = {0, 100, 20000, 3, 400, 50000};
    CHECK(has_floats(corsac_tensor_view(again[0]), twice, 6));
    corsac_tensor_free(outputs[1]);
    corsac_tensor_free(again[0]);
    corsac_tensor_free(again[1]);
}

static void outputs_are_written_to_strided_memory(const corsac_model *model)
{
    corsac_view inputs[2];
    rows_inputs(inputs);
    /* x by columns with gaps; scaled by columns; picked at an odd address. */
    float columns[12] = {0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1};
    const int64_t by_columns[2] = {2, 4}, shape[2] = {2, 3};
    inputs[0].data = columns;
    inputs[0].size_bytes = sizeof columns - sizeof(float);
    inputs[0].strides = by_columns;
    float scaled[12];
    for (int at = 0; at < 12; at++)
        scaled[at] = -7;
    unsigned char odd[25];
    corsac_view outputs[2] = {
        {.data = scaled, .size_bytes = sizeof scaled, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = shape,
         .strides = by_columns},
        {.data = odd + 1, .size_bytes = 24, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = shape},
    };
    SUCCEEDS(corsac_model_run_into, model, inputs, 2, outputs, 2);
    CHECK(has_floats(&outputs[0], SCALED, 6));
    for (int at = 1; at < 12; at += 2)
        CHECK(scaled[at] == -7 && columns[at] == -1);
    CHECK(memcmp(odd + 1, PICKED, 24) == 0);

    /* A row that is read for both, by a stride of 0. */
    const int64_t repeated[2] = {0, 1};
    inputs[0].size_bytes = 12;
    inputs[0].strides = repeated;
    outputs[0].strides = NULL;
    float row[3] = {1, 2, 3};
    inputs[0].data = row;
    SUCCEEDS(corsac_model_run_into, model, inputs, 2, outputs, 2);
    const float expected[6] = {1, 20, 300, 1, 20, 300};
    CHECK(has_floats(&outputs[0], expected, 6));
}

static void outputs_may_take_the_place_of_inputs(const corsac_model *model)
{
    const int64_t shape[2] = {2, 3};
    float x[6] = {0, 1, 2, 3, 4, 5}, picked[6];
    corsac_view inputs[2];
    rows_inputs(inputs);
    inputs[0].data = x;
    corsac_view outputs[2] = {
        {.data = x, .size_bytes = 24, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = shape},
        {.data = picked, .size_bytes = 24, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = shape},
    };
    SUCCEEDS(corsac_model_run_into, model, inputs, 2, outputs, 2);
    CHECK(memcmp(x, SCALED, 24) == 0 && memcmp(picked, PICKED, 24) == 0);
}

static void tensors_may_have_no_elements(void)
{
    corsac_model *model = load("empty.safetensors");
    const int64_t shape[2] = {0, 3};
    const corsac_view nothing = {.dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = shape};
    SUCCEEDS(corsac_model_run_into, model, &nothing, 1, &nothing, 1);
    corsac_tensor *output;
    SUCCEEDS(corsac_model_run, model, &nothing, 1, &output, 1);
    const corsac_view *view = corsac_tensor_view(output);
    CHECK(view->rank == 2 && view->shape[0] == 0 && view->shape[1] == 3 && view->size_bytes == 0);
    corsac_tensor_free(output);
    corsac_model_free(model);
}

static void sizes_may_differ_between_calls(void)
{
    corsac_model *model = load("sized.safetensors");
    const corsac_spec *input = corsac_model_input(model, 0), *output = corsac_model_output(model, 0);
    CHECK(input->rank == 2 && input->shape[0] == -1 && input->shape[1] == 3);
    CHECK(output->rank == 2 && output->shape[0] == -1 && output->shape[1] == 3);
    float x[27], twice[27];
    for (int at = 0; at < 27; at++) {
        x[at] = (float)at;
        twice[at] = 2 * x[at];
    }
    int64_t shape[2] = {0, 3};
    corsac_view view = {.data = x, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = shape};
    for (shape[0] = 8; shape[0] >= 1; shape[0] -= 3) {
        view.size_bytes = (size_t)shape[0] * 12;
        corsac_tensor *result;
        SUCCEEDS(corsac_model_run, model, &view, 1, &result, 1);
        CHECK(has_floats(corsac_tensor_view(result), twice, (size_t)shape[0] * 3));
        corsac_tensor_free(result);
        float own[27];
        corsac_view place = view;
        place.data = own;
        SUCCEEDS(corsac_model_run_into, model, &view, 1, &place, 1);
        CHECK(has_floats(&place, twice, (size_t)shape[0] * 3));
    }
    shape[0] = 9;
    view.size_bytes = sizeof x;
    corsac_tensor *result = NULL;
    FAILS(CORSAC_STATUS_CALL, "input x, dimension 0", corsac_model_run, model, &view, 1, &result, 1);
    CHECK(result == NULL);
    shape[0] = 2;
    view.size_bytes = 24;
    int64_t other[2] = {3, 3};
    corsac_view place = {.data = twice, .size_bytes = 36, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = other};
    FAILS(CORSAC_STATUS_CALL, "float32[2, 3]", corsac_model_run_into, model, &view, 1, &place, 1);
    corsac_model_free(model);
}

void test_runs(void)
{
    corsac_model *model = load("rows.safetensors");
    outputs_are_allocated(model);
    outputs_are_written_to_strided_memory(model);
    outputs_may_take_the_place_of_inputs(model);
    corsac_model_free(model);
    tensors_may_have_no_elements();
    sizes_may_differ_between_calls();
}

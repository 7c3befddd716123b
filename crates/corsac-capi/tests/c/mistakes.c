/* Wrong calls: each is an error that says where, and the model can be used as before. */

#include "check.h"

#define ARGUMENT CORSAC_STATUS_ARGUMENT
#define CALL CORSAC_STATUS_CALL

/* The model runs, as it does without any mistake before. */
static void still_runs(const corsac_model *model)
{
    corsac_view inputs[2];
    rows_inputs(inputs);
    corsac_tensor *outputs[2];
    SUCCEEDS(corsac_model_run, model, inputs, 2, outputs, 2);
    const float scaled[6] = {0, 10, 200, 3, 40, 500};
    CHECK(has_floats(corsac_tensor_view(outputs[0]), scaled, 6));
    corsac_tensor_free(outputs[0]);
    corsac_tensor_free(outputs[1]);
}

static void inputs_are_checked(const corsac_model *model)
{
    corsac_tensor *outputs[2] = {(corsac_tensor *)"not", (corsac_tensor *)"written"};
    corsac_view inputs[2];
#define WRONG(status, text) \
    FAILS(status, text, corsac_model_run, model, inputs, 2, outputs, 2)
#define CHANGED(change)  \
    rows_inputs(inputs); \
    inputs[0].change
    const int64_t turned[2] = {3, 2}, negative[2] = {2, -3}, huge[2] = {INT64_MAX, INT64_MAX};
    const int64_t far[2] = {4, 1}, back[2] = {-3, 1}, beyond[2] = {INT64_MAX, INT64_MAX};
    CHANGED(shape = turned);
    WRONG(CALL, "the input is x: float32[2, 3], not float32[3, 2]");
    CHANGED(rank = 1);
    WRONG(CALL, "the input is x: float32[2, 3], not float32[2]");
    CHANGED(dtype = CORSAC_DTYPE_INT32);
    WRONG(CALL, "the input is x: float32[2, 3], not int32[2, 3]");
    CHANGED(dtype = CORSAC_DTYPE_NONE);
    WRONG(ARGUMENT, "input 0: 0 is no dtype");
    CHANGED(dtype = -1000);
    WRONG(ARGUMENT, "input 0: -1000 is no dtype");
    CHANGED(rank = 65);
    WRONG(ARGUMENT, "input 0: its rank is 65, and 0 to 64 is supported");
    CHANGED(rank = -1);
    WRONG(ARGUMENT, "input 0: its rank is -1");
    CHANGED(shape = NULL);
    WRONG(ARGUMENT, "input 0: shape is a null pointer");
    CHANGED(shape = negative);
    WRONG(ARGUMENT, "input 0: dimension 1 has size -3");
    CHANGED(shape = huge);
    WRONG(ARGUMENT, "input 0: its sizes and strides exceed the address space");
    CHANGED(strides = far);
    WRONG(ARGUMENT, "input 0: its elements reach over 28 bytes, and the memory has 24");
    CHANGED(strides = back);
    WRONG(ARGUMENT, "input 0: dimension 0 has stride -3, and strides are not negative");
    CHANGED(strides = beyond);
    WRONG(ARGUMENT, "input 0: its sizes and strides exceed the address space");
    CHANGED(size_bytes = 23);
    WRONG(ARGUMENT, "input 0: its elements reach over 24 bytes, and the memory has 23");
    CHANGED(data = NULL);
    WRONG(ARGUMENT, "input 0: data is a null pointer");
    CHANGED(flags = 6);
    WRONG(ARGUMENT, "input 0: flags 0x6 are not known");
    rows_inputs(inputs);
    inputs[1].data = NULL;
    WRONG(ARGUMENT, "input 1: data is a null pointer");
    int64_t rows[2] = {1, 2};
    inputs[1].data = rows;
    WRONG(CALL, "index 2 is out of range for a dimension of size 2");
    rows_inputs(inputs);
    FAILS(CALL, "the program takes 2 inputs, not 1", corsac_model_run, model, inputs, 1, outputs, 2);
    FAILS(CALL, "the program takes 2 inputs, not 1844", corsac_model_run, model, inputs, (size_t)-1, outputs,
          2);
    FAILS(CALL, "the program makes 2 results, not 3", corsac_model_run, model, inputs, 2, outputs, 3);
    FAILS(ARGUMENT, "inputs is a null pointer", corsac_model_run, model, NULL, 2, outputs, 2);
    FAILS(ARGUMENT, "outputs is a null pointer", corsac_model_run, model, inputs, 2, NULL, 2);
    FAILS(ARGUMENT, "model is a null pointer", corsac_model_run, NULL, inputs, 2, outputs, 2);
    CHECK(strcmp((char *)outputs[0], "not") == 0 && strcmp((char *)outputs[1], "written") == 0);
}

static void outputs_are_checked(const corsac_model *model)
{
    const int64_t shape[2] = {2, 3}, turned[2] = {3, 2};
    float memory[12] = {0};
    const corsac_view right[2] = {
        {.data = memory, .size_bytes = 24, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = shape},
        {.data = memory + 6, .size_bytes = 24, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = shape},
    };
    corsac_view inputs[2], outputs[2];
    rows_inputs(inputs);
#undef WRONG
#undef CHANGED
#define WRONG(status, text) \
    FAILS(status, text, corsac_model_run_into, model, inputs, 2, outputs, 2)
#define CHANGED(change)                   \
    memcpy(outputs, right, sizeof right); \
    outputs[1].change
    const int64_t same[2] = {0, 1}, woven[2] = {1, 1};
    CHANGED(shape = turned);
    WRONG(CALL, "the output is picked: float32[2, 3], not float32[3, 2]");
    CHANGED(dtype = CORSAC_DTYPE_INT32);
    WRONG(CALL, "the output is picked: float32[2, 3], not int32[2, 3]");
    CHANGED(strides = same);
    WRONG(ARGUMENT, "output 1: its elements overlap each other in memory");
    CHANGED(strides = woven);
    WRONG(ARGUMENT, "output 1: its elements overlap each other in memory");
    CHANGED(data = memory + 5);
    WRONG(ARGUMENT, "outputs 0 and 1 overlap in memory");
    CHANGED(flags = CORSAC_VIEW_READ_ONLY);
    WRONG(ARGUMENT, "output 1: its memory is read-only");
    CHANGED(size_bytes = 0);
    WRONG(ARGUMENT, "output 1: its elements reach over 24 bytes, and the memory has 0");
    CHANGED(data = NULL);
    WRONG(ARGUMENT, "output 1: data is a null pointer");
    FAILS(ARGUMENT, "outputs is a null pointer", corsac_model_run_into, model, inputs, 2, NULL, 2);
    FAILS(CALL, "the program makes 2 results, not 1", corsac_model_run_into, model, inputs, 2, outputs, 1);
    for (int at = 0; at < 12; at++)
        CHECK(memory[at] == 0);
}

void test_mistakes(void)
{
    corsac_model *model = load("rows.safetensors");
    inputs_are_checked(model);
    still_runs(model);
    outputs_are_checked(model);
    still_runs(model);
    corsac_model_free(model);
}

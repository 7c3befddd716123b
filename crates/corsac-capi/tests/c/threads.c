/* One model in several threads. */

#include <pthread.h>

#include "check.h"

#define THREADS 4
#define CALLS 50

static const corsac_model *model;
static corsac_tensor *shared[2];

static void *work(void *argument)
{
    const float factor = *(const float *)argument;
    const int64_t shape[2] = {2, 3};
    for (int call = 0; call < CALLS; call++) {
        float x[6], scaled[6], picked[6];
        for (int at = 0; at < 6; at++)
            x[at] = factor * (float)(at + call);
        corsac_view inputs[2];
        rows_inputs(inputs);
        inputs[0].data = x;
        corsac_view outputs[2] = {
            {.data = scaled, .size_bytes = 24, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = shape},
            {.data = picked, .size_bytes = 24, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = shape},
        };
        SUCCEEDS(corsac_model_run_into, model, inputs, 2, outputs, 2);
        const float weights[3] = {1, 10, 100};
        for (int at = 0; at < 6; at++)
            CHECK(scaled[at] == x[at] * weights[at % 3] && picked[at] == x[(at + 3) % 6]);
        /* A wrong call beside right ones, and an input that all threads share. */
        FAILS(CORSAC_STATUS_CALL, "the program takes 2 inputs, not 1", corsac_model_run_into, model, inputs,
              1, outputs, 2);
        inputs[0] = *corsac_tensor_view(shared[0]);
        SUCCEEDS(corsac_model_run_into, model, inputs, 2, outputs, 2);
        CHECK(scaled[5] == 50000);
    }
    return NULL;
}

void test_threads(void)
{
    corsac_options options = {.size = sizeof options, .threads = 2};
    corsac_model *own = NULL;
    SUCCEEDS(corsac_model_load, path_of("rows.safetensors"), &options, &own);
    model = own;
    corsac_view inputs[2];
    rows_inputs(inputs);
    SUCCEEDS(corsac_model_run, model, inputs, 2, shared, 2);
    pthread_t threads[THREADS];
    float factors[THREADS];
    for (int at = 0; at < THREADS; at++) {
        factors[at] = (float)(at + 1);
        CHECK(pthread_create(&threads[at], NULL, work, &factors[at]) == 0);
    }
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    corsac_tensor_free(shared[0]);
    corsac_tensor_free(shared[1]);
    corsac_model_free(own);
}

/* Loading models, and what they say of themselves. */

#include "check.h"

static void versions_and_names_are_there(void)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", CORSAC_VERSION_MAJOR, CORSAC_VERSION_MINOR,
             CORSAC_VERSION_PATCH);
    CHECK(strcmp(corsac_version(), version) == 0);
    CHECK(strcmp(corsac_status_name(CORSAC_STATUS_TOO_LARGE), "CORSAC_STATUS_TOO_LARGE") == 0);
    CHECK(corsac_status_name(99) == NULL);
    CHECK(strcmp(corsac_dtype_name(CORSAC_DTYPE_BFLOAT16), "bfloat16") == 0);
    CHECK(corsac_dtype_size_bytes(CORSAC_DTYPE_BFLOAT16) == 2);
    CHECK(corsac_dtype_name(0) == NULL && corsac_dtype_size_bytes(-1) == 0);
}

static void models_are_inspected(void)
{
    corsac_model *model = load("rows.safetensors");
    CHECK(corsac_model_input_count(model) == 2);
    CHECK(corsac_model_output_count(model) == 2);
    CHECK(corsac_model_weight_count(model) == 1);
    CHECK(corsac_model_threads(model) >= 1);
    const corsac_spec *x = corsac_model_input(model, 0), *rows = corsac_model_input(model, 1);
    CHECK(strcmp(x->name, "x") == 0 && x->dtype == CORSAC_DTYPE_FLOAT32);
    CHECK(x->rank == 2 && x->shape[0] == 2 && x->shape[1] == 3);
    CHECK(strcmp(rows->name, "rows") == 0 && rows->dtype == CORSAC_DTYPE_INT64);
    CHECK(rows->rank == 1 && rows->shape[0] == 2);
    CHECK(strcmp(corsac_model_output(model, 0)->name, "scaled") == 0);
    CHECK(strcmp(corsac_model_output(model, 1)->name, "picked") == 0);
    const corsac_spec *weight = corsac_model_weight(model, 0);
    CHECK(strcmp(weight->name, "scale.weight") == 0 && weight->rank == 1 && weight->shape[0] == 3);
    CHECK(corsac_model_input(model, 2) == NULL);
    CHECK(corsac_model_output(model, (size_t)-1) == NULL);
    CHECK(corsac_model_weight(model, 1) == NULL);

    size_t number = 7;
    SUCCEEDS(corsac_model_find_input, model, "rows", &number);
    CHECK(number == 1);
    SUCCEEDS(corsac_model_find_output, model, "scaled", &number);
    CHECK(number == 0);
    FAILS(CORSAC_STATUS_CALL, "the model has no input \"y\": it has x, rows",
          corsac_model_find_input, model, "y", &number);
    FAILS(CORSAC_STATUS_CALL, "the model has no output \"x\": it has scaled, picked",
          corsac_model_find_output, model, "x", &number);
    FAILS(CORSAC_STATUS_ARGUMENT, "name is a null pointer", corsac_model_find_input, model, NULL,
          &number);
    FAILS(CORSAC_STATUS_ARGUMENT, "number is a null pointer", corsac_model_find_input, model, "x",
          NULL);
    CHECK(number == 0);
    corsac_model_free(model);
}

static void nothing_is_a_model_of_nothing(void)
{
    CHECK(corsac_model_input_count(NULL) == 0 && corsac_model_output_count(NULL) == 0);
    CHECK(corsac_model_weight_count(NULL) == 0 && corsac_model_threads(NULL) == 0);
    CHECK(corsac_model_input(NULL, 0) == NULL && corsac_model_output(NULL, 0) == NULL);
    CHECK(corsac_model_weight(NULL, 0) == NULL && corsac_tensor_view(NULL) == NULL);
    CHECK(corsac_error_status(NULL) == CORSAC_STATUS_OK);
    CHECK(strcmp(corsac_error_message(NULL), "") == 0);
    corsac_model_free(NULL);
    corsac_tensor_free(NULL);
    corsac_error_free(NULL);
}

static void models_are_loaded_from_memory(void)
{
    size_t size;
    unsigned char *bytes = read_file("rows.safetensors", &size);
    corsac_options options = {.size = sizeof options, .threads = 3};
    corsac_model *model = NULL;
    SUCCEEDS(corsac_model_load_memory, bytes, size, &options, &model);
    memset(bytes, 0xee, size);
    free(bytes);
    CHECK(corsac_model_threads(model) == 3);
    CHECK(strcmp(corsac_model_input(model, 0)->name, "x") == 0);
    corsac_model_free(model);
}

static void damaged_files_are_refused(void)
{
    corsac_model *model = (corsac_model *)"not written";
    FAILS(CORSAC_STATUS_IO, "missing.safetensors: No such file", corsac_model_load,
          path_of("missing.safetensors"), NULL, &model);
    CHECK(model == NULL);
    FAILS(CORSAC_STATUS_IO, "this is no regular file", corsac_model_load, path_of("."), NULL, &model);
    FAILS(CORSAC_STATUS_ARGUMENT, "path is a null pointer", corsac_model_load, NULL, NULL, &model);
    FAILS(CORSAC_STATUS_ARGUMENT, "model is a null pointer", corsac_model_load,
          path_of("rows.safetensors"), NULL, NULL);
    FAILS(CORSAC_STATUS_ARGUMENT, "bytes is a null pointer", corsac_model_load_memory, NULL, 5, NULL,
          &model);
    FAILS(CORSAC_STATUS_CALL, "there is no memory for 18446744073709551615 bytes", corsac_model_load_memory,
          "", SIZE_MAX, NULL, &model);
    FAILS(CORSAC_STATUS_DAMAGED, "it has 0 bytes", corsac_model_load_memory, NULL, 0, NULL, &model);
    FAILS(CORSAC_STATUS_DAMAGED, "a header of", corsac_model_load_memory, "\xff\xff\xff\xff\xff\xff\xff\xff??", 10,
          NULL, &model);
    FAILS(CORSAC_STATUS_VERSION, "version 999", corsac_model_load, path_of("version.safetensors"), NULL,
          &model);
    FAILS(CORSAC_STATUS_UNSUPPORTED, "torch.linalg.svd", corsac_model_load,
          path_of("operator.safetensors"), NULL, &model);
    FAILS(CORSAC_STATUS_UNSUPPORTED, "has a character of value 0", corsac_model_load,
          path_of("zero.safetensors"), NULL, &model);
    size_t size;
    unsigned char *bytes = read_file("rows.safetensors", &size);
    for (size_t len = 0; len < size; len += 13) {
        CHECK(corsac_model_load_memory(bytes, len, NULL, &model, NULL) == CORSAC_STATUS_DAMAGED);
        CHECK(model == NULL);
    }
    free(bytes);
}

static void options_are_checked(void)
{
    corsac_model *model = NULL;
    const char *path = path_of("rows.safetensors");
    corsac_options options = {.size = sizeof options, .limit_weight_bytes = 11};
    FAILS(CORSAC_STATUS_TOO_LARGE, "bytes of weights: 12 is more than the limit of 11", corsac_model_load,
          path, &options, &model);
    options = (corsac_options){.size = sizeof options, .limit_nodes = 3};
    FAILS(CORSAC_STATUS_TOO_LARGE, "nodes of the graph", corsac_model_load, path, &options, &model);
    options = (corsac_options){.size = sizeof options, .threads = 1000000};
    FAILS(CORSAC_STATUS_ARGUMENT, "options: 1000000 threads, and 65536 are most", corsac_model_load, path,
          &options, &model);
    options = (corsac_options){.threads = 1};
    FAILS(CORSAC_STATUS_ARGUMENT, "options: size is 0", corsac_model_load, path, &options, &model);
    /* Of an older program, and of a newer one. */
    options = (corsac_options){.size = 2 * sizeof(size_t), .threads = 2, .limit_nodes = 1};
    SUCCEEDS(corsac_model_load, path, &options, &model);
    CHECK(corsac_model_threads(model) == 2);
    corsac_model_free(model);
    struct {
        corsac_options known;
        uint64_t more;
    } newer = {.known = {.size = sizeof newer, .threads = 1}};
    SUCCEEDS(corsac_model_load, path, &newer.known, &model);
    corsac_model_free(model);
    newer.more = 1;
    FAILS(CORSAC_STATUS_ARGUMENT, "of which this version knows", corsac_model_load, path, &newer.known,
          &model);
}

void test_loading(void)
{
    versions_and_names_are_there();
    models_are_inspected();
    nothing_is_a_model_of_nothing();
    models_are_loaded_from_memory();
    damaged_files_are_refused();
    options_are_checked();
}

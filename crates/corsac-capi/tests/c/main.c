/* Tests of the C interface. The folder with models and results of the Rust interface is the argument. */

#include "check.h"

static const char *folder;

const char *path_of(const char *name)
{
    static char path[4096];
    CHECK(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path);
    return path;
}

unsigned char *read_file(const char *name, size_t *size_bytes)
{
    FILE *file = fopen(path_of(name), "rb");
    CHECK(file != NULL);
    CHECK(fseek(file, 0, SEEK_END) == 0);
    long size = ftell(file);
    CHECK(size >= 0 && fseek(file, 0, SEEK_SET) == 0);
    unsigned char *bytes = malloc((size_t)size + 1);
    CHECK(bytes != NULL && fread(bytes, 1, (size_t)size, file) == (size_t)size);
    bytes[size] = 0;
    fclose(file);
    *size_bytes = (size_t)size;
    return bytes;
}

corsac_model *load(const char *name)
{
    corsac_model *model = NULL;
    SUCCEEDS(corsac_model_load, path_of(name), NULL, &model);
    CHECK(model != NULL);
    return model;
}

void rows_inputs(corsac_view inputs[2])
{
    static float x[6] = {0, 1, 2, 3, 4, 5};
    static int64_t rows[2] = {1, 0};
    static const int64_t x_shape[2] = {2, 3}, rows_shape[1] = {2};
    inputs[0] = (corsac_view){
        .data = x, .size_bytes = sizeof x, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 2, .shape = x_shape};
    inputs[1] = (corsac_view){
        .data = rows, .size_bytes = sizeof rows, .dtype = CORSAC_DTYPE_INT64, .rank = 1, .shape = rows_shape};
}

int has_floats(const corsac_view *view, const float *expected, size_t count)
{
    CHECK(view->dtype == CORSAC_DTYPE_FLOAT32 && view->rank == 2);
    CHECK((size_t)(view->shape[0] * view->shape[1]) == count);
    const int64_t columns = view->shape[1];
    for (int64_t at = 0; at < (int64_t)count; at++) {
        int64_t row = at / columns, column = at % columns;
        int64_t place = view->strides ? row * view->strides[0] + column * view->strides[1] : at;
        if (((const float *)view->data)[place] != expected[at])
            return 0;
    }
    return 1;
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    folder = arguments[1];
    test_loading();
    test_runs();
    test_types();
    test_mistakes();
    test_dlpack();
    test_threads();
    test_sessions();
    test_texts();
    puts("all good");
    return 0;
}

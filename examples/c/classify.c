/* Runs a model on an array of float32 and prints the largest elements of its first output.
 *
 *   classify MODEL.safetensors INPUT [COUNT]
 *
 * INPUT is a *.npy file as numpy.save writes it, or the elements alone as array.tofile does, row by
 * row. With pkg-config it is built by
 *
 *   cc classify.c $(pkg-config --cflags --libs corsac) -o classify
 */

#include <corsac.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints the text of an error, frees it, and fails. */
static int failed(corsac_error *error)
{
    fprintf(stderr, "classify: error: %s\n", corsac_error_message(error));
    corsac_error_free(error);
    return 2;
}

static int failed_with(const char *reason)
{
    fprintf(stderr, "classify: error: %s\n", reason);
    return 2;
}

/* The bytes of a file; null if it cannot be read. */
static unsigned char *read_file(const char *path, size_t *size_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    unsigned char *bytes = NULL;
    long size;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        bytes = malloc((size_t)size + 1);
        if (bytes != NULL && fread(bytes, 1, (size_t)size, file) != (size_t)size) {
            free(bytes);
            bytes = NULL;
        }
        *size_bytes = (size_t)size;
    }
    fclose(file);
    return bytes;
}

/* Where the elements of a *.npy file begin; 0 for other files, and (size_t)-1 for arrays of other elements than
 * float32, or by columns. */
static size_t data_start(const unsigned char *bytes, size_t size_bytes)
{
    if (size_bytes < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return 0;
    size_t start = bytes[6] == 1 ? 10 : 12;
    size_t length = bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] != 1)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > size_bytes - start || length > 65536)
        return (size_t)-1;
    char header[65537];
    memcpy(header, bytes + start, length);
    header[length] = 0;
    int known = strstr(header, "'<f4'") != NULL && strstr(header, "'fortran_order': False") != NULL;
    return known ? start + length : (size_t)-1;
}

static size_t element_count(const corsac_view *view)
{
    size_t count = 1;
    for (int32_t dim = 0; dim < view->rank; dim++)
        count *= (size_t)view->shape[dim];
    return count;
}

/* Prints the `count` largest elements, and removes them. */
static void print_largest(float *scores, size_t len, size_t count)
{
    for (; count > 0 && len > 0; count--) {
        size_t best = 0;
        for (size_t at = 1; at < len; at++)
            if (scores[at] > scores[best] || isnan(scores[best]))
                best = at;
        if (isnan(scores[best]) || scores[best] == -INFINITY)
            return;
        printf("class %zu: %.6g\n", best, scores[best]);
        scores[best] = -INFINITY;
    }
}

static int run(const corsac_model *model, const char *path, size_t count)
{
    const corsac_spec *spec = corsac_model_input(model, 0), *result = corsac_model_output(model, 0);
    if (corsac_model_input_count(model) != 1 || spec->dtype != CORSAC_DTYPE_FLOAT32)
        return failed_with("the model does not take one array of float32");
    if (result == NULL || result->dtype != CORSAC_DTYPE_FLOAT32)
        return failed_with("the model has no scores of float32");
    size_t size_bytes = 0, outputs = corsac_model_output_count(model);
    unsigned char *bytes = read_file(path, &size_bytes);
    if (bytes == NULL)
        return failed_with("the input cannot be read");
    corsac_tensor **tensors = calloc(outputs, sizeof *tensors);
    size_t start = data_start(bytes, size_bytes);
    if (tensors == NULL || start == (size_t)-1) {
        free(tensors);
        free(bytes);
        return failed_with("the array is not of float32, row by row");
    }
    /* The library checks that the array is large enough, at any address. */
    corsac_view input = {
        .data = bytes + start,
        .size_bytes = size_bytes - start,
        .dtype = CORSAC_DTYPE_FLOAT32,
        .rank = spec->rank,
        .shape = spec->shape,
    };
    corsac_error *error = NULL;
    int code = 0;
    if (corsac_model_run(model, &input, 1, tensors, outputs, &error) == CORSAC_STATUS_OK) {
        const corsac_view *scores = corsac_tensor_view(tensors[0]);
        print_largest(scores->data, element_count(scores), count);
    } else {
        code = failed(error);
    }
    for (size_t at = 0; at < outputs; at++)
        corsac_tensor_free(tensors[at]);
    free(tensors);
    free(bytes);
    return code;
}

int main(int argument_count, char **arguments)
{
    if (argument_count < 3) {
        fprintf(stderr, "usage: classify MODEL.safetensors INPUT [COUNT]\n");
        return 2;
    }
    corsac_model *model = NULL;
    corsac_error *error = NULL;
    if (corsac_model_load(arguments[1], NULL, &model, &error) != CORSAC_STATUS_OK)
        return failed(error);
    int code = run(model, arguments[2], argument_count > 3 ? strtoul(arguments[3], NULL, 10) : 5);
    corsac_model_free(model);
    return code;
}

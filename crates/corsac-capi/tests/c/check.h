/* Checks that end the program with the line that failed. */

#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "corsac.h"

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

/* A call that succeeds, with its last argument, the error, added. */
#define SUCCEEDS(function, ...)                                                \
    do {                                                                       \
        corsac_error *error_ = (corsac_error *)"not written";                  \
        corsac_status status_ = function(__VA_ARGS__, &error_);                \
        if (status_ != CORSAC_STATUS_OK) {                                     \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #function,  \
                    corsac_error_message(error_));                             \
            exit(1);                                                           \
        }                                                                      \
        CHECK(error_ == NULL);                                                 \
    } while (0)

/* A call that fails with this status, and an error whose text has `text_` in it. */
#define FAILS(expected_, text_, function, ...)                                 \
    do {                                                                       \
        corsac_error *error_ = NULL;                                           \
        corsac_status status_ = function(__VA_ARGS__, &error_);                \
        CHECK(error_ != NULL);                                                 \
        const char *message_ = corsac_error_message(error_);                   \
        if (status_ != (expected_) || strstr(message_, text_) == NULL) {       \
            fprintf(stderr, "%s:%d: %s: %s, not %s: %s\n", __FILE__, __LINE__, \
                    corsac_status_name(status_), message_,                     \
                    corsac_status_name(expected_), text_);                     \
            exit(1);                                                           \
        }                                                                      \
        CHECK(corsac_error_status(error_) == status_);                         \
        CHECK(strchr(message_, '\n') == NULL);                                 \
        corsac_error_free(error_);                                             \
        CHECK(function(__VA_ARGS__, NULL) == status_);                         \
    } while (0)

/* The bytes of a file in the folder of the test, with a zero after them. */
unsigned char *read_file(const char *name, size_t *size_bytes);

/* The path of a file in the folder of the test, in memory of its own. */
const char *path_of(const char *name);

/* A model in the folder of the test. */
corsac_model *load(const char *name);

/* The views of the model `rows`: x of float32[2, 3] = 0 to 5, and rows of int64[2] = 1, 0. */
void rows_inputs(corsac_view inputs[2]);

/* Whether the elements of a view of float32 are `expected`, row by row, in the order of its strides. */
int has_floats(const corsac_view *view, const float *expected, size_t count);

void test_loading(void);
void test_runs(void);
void test_types(void);
void test_mistakes(void);
void test_dlpack(void);
void test_threads(void);
void test_sessions(void);
void test_texts(void);

#endif

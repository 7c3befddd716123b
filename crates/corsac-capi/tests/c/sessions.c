/* Sessions: state between calls. */

#include "check.h"

static float x[2] = {1, 2};
static const int64_t two[1] = {2}, rows_of_two[2] = {1, 2};
static corsac_view x_view = {
    .data = x, .size_bytes = sizeof x, .dtype = CORSAC_DTYPE_FLOAT32, .rank = 1, .shape = two};

/* The only result of a program, whose elements are `expected`, row by row. */
static void gives(const corsac_session *session, const char *program, size_t input_count, const float *expected,
                  size_t count)
{
    corsac_tensor *result = NULL;
    SUCCEEDS(corsac_session_run, session, program, &x_view, input_count, &result, 1);
    CHECK(has_floats(corsac_tensor_view(result), expected, count));
    corsac_tensor_free(result);
}

static int32_t count_of(const corsac_session *session)
{
    corsac_tensor *count = NULL;
    SUCCEEDS(corsac_session_state, session, "count", &count);
    const corsac_view *view = corsac_tensor_view(count);
    CHECK(view->dtype == CORSAC_DTYPE_INT32 && view->rank == 0);
    int32_t own = *(const int32_t *)view->data;
    corsac_tensor_free(count);
    return own;
}

static corsac_session *session_of(corsac_model *model, size_t rows)
{
    corsac_size size = {"rows", rows};
    corsac_session *session = NULL;
    SUCCEEDS(corsac_session_new, model, &size, 1, &session);
    CHECK(session != NULL);
    return session;
}

static void test_listing(const corsac_model *model)
{
    CHECK(corsac_model_program_count(model) == 2 && corsac_model_program_count(NULL) == 0);
    CHECK(strcmp(corsac_model_program_name(model, 0), "add") == 0);
    CHECK(strcmp(corsac_model_program_name(model, 1), "first") == 0);
    CHECK(corsac_model_program_name(model, 2) == NULL && corsac_model_program_name(NULL, 0) == NULL);
    CHECK(corsac_model_state_count(model) == 2 && corsac_model_state_count(NULL) == 0);
    const corsac_spec *sum = corsac_model_state(model, 0);
    CHECK(strcmp(sum->name, "stats.sum") == 0 && sum->rank == 2);
    CHECK(sum->shape[0] == -1 && sum->shape[1] == 2);
    CHECK(corsac_model_state(model, 2) == NULL && corsac_model_state(NULL, 0) == NULL);
}

static void test_faults(corsac_model *model, corsac_session *session)
{
    const corsac_status call = CORSAC_STATUS_CALL, argument = CORSAC_STATUS_ARGUMENT;
    corsac_tensor *result = NULL;
    corsac_session *other = (corsac_session *)"not written";
    corsac_size size = {"rows", 9}, unnamed = {NULL, 1}, broken = {"\xff", 1};
    FAILS(call, "size rows: 9 is more than 8", corsac_session_new, model, &size, 1, &other);
    CHECK(other == NULL);
    FAILS(call, "size rows: a value is missing", corsac_session_new, model, NULL, 0, &other);
    FAILS(argument, "the name of a size", corsac_session_new, model, &unnamed, 1, &other);
    FAILS(argument, "no text in UTF-8", corsac_session_new, model, &broken, 1, &other);
    FAILS(argument, "sizes is a null pointer", corsac_session_new, model, NULL, 1, &other);
    FAILS(argument, "model is a null pointer", corsac_session_new, NULL, NULL, 0, &other);
    FAILS(argument, "session is a null pointer", corsac_session_new, model, NULL, 0, NULL);
    FAILS(call, "no program \"token\"", corsac_session_run, session, "token", &x_view, 1, &result, 1);
    FAILS(call, "takes 1 inputs, not 0", corsac_session_run, session, NULL, NULL, 0, &result, 1);
    FAILS(call, "makes 1 results, not 2", corsac_session_run, session, NULL, &x_view, 1, &result, 2);
    FAILS(argument, "outputs is a null pointer", corsac_session_run, session, NULL, &x_view, 1, NULL, 1);
    FAILS(argument, "session is a null pointer", corsac_session_run, NULL, NULL, &x_view, 1, &result, 1);
    corsac_view wrong = x_view;
    wrong.dtype = CORSAC_DTYPE_INT32;
    FAILS(call, "x: float32[2], not int32[2]", corsac_session_run, session, NULL, &wrong, 1, &result, 1);
    FAILS(call, "state sum: the state of the model is", corsac_session_state, session, "sum", &result);
    FAILS(call, "stats.sum: float32[1, 2] is needed", corsac_session_set_state, session, "stats.sum", &x_view);
    FAILS(argument, "tensor is a null pointer", corsac_session_set_state, session, "stats.sum", NULL);
    FAILS(argument, "name is a null pointer", corsac_session_state, session, NULL, &result);
    FAILS(argument, "session is a null pointer", corsac_session_reset, NULL);
    FAILS(argument, "session is a null pointer", corsac_session_fork, NULL, &other);
    CHECK(result == NULL);
    FAILS(argument, "outputs is a null pointer", corsac_session_run_into, session, NULL, &x_view, 1, NULL, 1);
    FAILS(call, "makes 1 results, not 2", corsac_session_run_into, session, NULL, &x_view, 1, &x_view, 2);
    FAILS(call, "float32[1, 2], not float32[2]", corsac_session_run_into, session, NULL, &x_view, 1, &x_view, 1);
    corsac_tensor *outside = (corsac_tensor *)1;
    FAILS(call, "it runs in a session", corsac_model_run, model, &x_view, 1, &outside, 1);
}

void test_sessions(void)
{
    corsac_model *model = load("sessions.safetensors");
    test_listing(model);
    corsac_session *session = session_of(model, 1);
    gives(session, NULL, 1, (const float[]){1.5, 2}, 2);
    gives(session, "add", 1, (const float[]){2.5, 4}, 2);
    gives(session, "first", 0, (const float[]){2.5, 4}, 2);
    CHECK(count_of(session) == 2);
    test_faults(model, session);
    CHECK(count_of(session) == 2);

    corsac_session *fork = NULL;
    SUCCEEDS(corsac_session_fork, session, &fork);
    gives(fork, NULL, 1, (const float[]){3.5, 6}, 2);
    gives(session, "first", 0, (const float[]){2.5, 4}, 2);
    CHECK(count_of(fork) == 3 && count_of(session) == 2);

    /* The session keeps what it needs of the model. */
    corsac_model_free(model);
    corsac_size three = {"rows", 3};
    SUCCEEDS(corsac_session_resize, session, &three, 1);
    gives(session, NULL, 1, (const float[]){3.5, 6, 1.5, 2, 1.5, 2}, 6);
    corsac_size one = {"rows", 1};
    FAILS(CORSAC_STATUS_CALL, "1 is less than 3: state can grow only", corsac_session_resize, session, &one, 1);
    SUCCEEDS(corsac_session_reset, session);
    CHECK(count_of(session) == 0);
    gives(session, NULL, 1, (const float[]){1.5, 2, 1.5, 2, 1.5, 2}, 6);

    float sum[2] = {10, 20};
    corsac_view view = x_view;
    view.data = sum;
    view.rank = 2;
    view.shape = rows_of_two;
    SUCCEEDS(corsac_session_set_state, fork, "stats.sum", &view);
    gives(fork, NULL, 1, (const float[]){11, 22}, 2);
    /* Into memory of the caller: that of the input. */
    float own[2] = {1, 2};
    corsac_view input = x_view, output = view;
    input.data = output.data = own;
    SUCCEEDS(corsac_session_run_into, fork, "add", &input, 1, &output, 1);
    CHECK(own[0] == 12 && own[1] == 24);
    SUCCEEDS(corsac_session_run_into, fork, "add", &input, 1, &output, 1);
    CHECK(own[0] == 24 && own[1] == 48);
    corsac_session_free(fork);
    corsac_session_free(session);
    corsac_session_free(NULL);
}

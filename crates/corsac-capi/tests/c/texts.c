/* Language models: the next token is the number of even ones in the text, up to 4. 3 ends texts. */

#include "check.h"

/* The new tokens of texts, and what they end with. */
struct found {
    uint32_t tokens[5][8];
    size_t counts[5];
    corsac_text_end ends[5];
    size_t most;
};

static int32_t keep(const corsac_new_token *token, void *context)
{
    struct found *found = context;
    CHECK(token->text < 5 && found->counts[token->text] < 8);
    CHECK(found->ends[token->text] == CORSAC_TEXT_END_NONE);
    found->tokens[token->text][found->counts[token->text]++] = token->token;
    found->ends[token->text] = token->end;
    return found->counts[token->text] == found->most;
}

static const uint32_t odd[4] = {1, 1, 1, 1}, one_even[2] = {0, 1}, two_even[3] = {2, 1, 4};

static corsac_text_model *load_text_model(const char *name)
{
    corsac_text_model *model = NULL;
    SUCCEEDS(corsac_text_model_load, path_of(name), NULL, &model);
    CHECK(model != NULL);
    return model;
}

static void test_facts(const corsac_text_model *model)
{
    size_t count = 9;
    const uint32_t *stop = corsac_text_model_stop(model, &count);
    CHECK(count == 1 && stop[0] == 3);
    CHECK(corsac_text_model_stop(NULL, &count) == NULL && count == 0);
    CHECK(corsac_text_model_stop(model, NULL) == NULL);
    CHECK(corsac_text_model_vocabulary(model) == 5 && corsac_text_model_vocabulary(NULL) == 0);
    CHECK(corsac_text_model_longest_text(model) == 40 && corsac_text_model_longest_text(NULL) == 0);
    CHECK(corsac_text_model_most_texts(model) == 3 && corsac_text_model_most_texts(NULL) == 0);
}

static void test_tokens(const corsac_text_model *model)
{
    /* Five texts, of which the model takes three at once. */
    const corsac_prompt prompts[5] = {{odd, 4}, {one_even, 2}, {two_even, 3}, {odd, 1}, {one_even, 1}};
    corsac_generate_options options = {.size = sizeof options, .max_new_tokens = 6};
    struct found found = {.most = 9};
    SUCCEEDS(corsac_text_model_generate, model, prompts, 5, &options, keep, &found);
    /* No even token: 0; then 1, 1, 1. */
    CHECK(found.counts[0] == 6 && found.ends[0] == CORSAC_TEXT_END_LENGTH);
    CHECK(memcmp(found.tokens[0], (const uint32_t[]){0, 1, 1, 1, 1, 1}, 24) == 0);
    CHECK(found.counts[1] == 6 && found.tokens[1][5] == 1);
    CHECK(found.counts[2] == 2 && found.ends[2] == CORSAC_TEXT_END_STOP);
    CHECK(found.tokens[2][0] == 2 && found.tokens[2][1] == 3);
    CHECK(memcmp(found.tokens[3], found.tokens[0], 24) == 0);
    CHECK(memcmp(found.tokens[4], found.tokens[1], 24) == 0);

    /* Other tokens end texts, and so does the function. */
    const uint32_t four[1] = {4};
    options.stop = four;
    options.stop_count = 1;
    struct found other = {.most = 3};
    SUCCEEDS(corsac_text_model_generate, model, &prompts[1], 2, &options, keep, &other);
    CHECK(other.counts[0] == 3 && other.ends[0] == CORSAC_TEXT_END_NONE);
    CHECK(memcmp(other.tokens[1], (const uint32_t[]){2, 3, 3}, 12) == 0);
    options.stop_count = 0;
    struct found endless = {.most = 7};
    SUCCEEDS(corsac_text_model_generate, model, &prompts[2], 1, &options, keep, &endless);
    CHECK(endless.counts[0] == 6 && endless.ends[0] == CORSAC_TEXT_END_LENGTH);
    SUCCEEDS(corsac_text_model_generate, model, NULL, 0, NULL, keep, NULL);
}

static void test_sampling(const corsac_text_model *model)
{
    const corsac_prompt prompts[2] = {{odd, 4}, {odd, 4}};
    corsac_generate_options options = {
        .size = sizeof options, .max_new_tokens = 8, .temperature = 50, .seed = 7, .stop = odd};
    struct found both = {.most = 9}, again = {.most = 9}, second = {.most = 9};
    SUCCEEDS(corsac_text_model_generate, model, prompts, 2, &options, keep, &both);
    SUCCEEDS(corsac_text_model_generate, model, prompts, 2, &options, keep, &again);
    CHECK(memcmp(&both, &again, sizeof both) == 0);
    CHECK(memcmp(both.tokens[0], both.tokens[1], 32) != 0);
    options.seed = 8;
    SUCCEEDS(corsac_text_model_generate, model, prompts, 1, &options, keep, &second);
    CHECK(memcmp(both.tokens[1], second.tokens[0], 32) == 0);
}

static void test_faults(const corsac_text_model *model)
{
    const corsac_status call = CORSAC_STATUS_CALL, argument = CORSAC_STATUS_ARGUMENT;
    const uint32_t unknown[1] = {5};
    const corsac_prompt good = {odd, 4}, empty = {NULL, 0}, null = {NULL, 1};
    const corsac_prompt prompts[2] = {good, {unknown, 1}};
    corsac_generate_options options = {.size = sizeof options, .top_p = 1.5};
    struct found found = {.most = 9};
    FAILS(argument, "top_p is 1.5", corsac_text_model_generate, model, &good, 1, &options, keep, &found);
    options.top_p = 0;
    options.temperature = -1;
    FAILS(argument, "temperature is -1", corsac_text_model_generate, model, &good, 1, &options, keep, &found);
    options.size = 3;
    FAILS(argument, "size is 3", corsac_text_model_generate, model, &good, 1, &options, keep, &found);
    options = (corsac_generate_options){.size = sizeof options, .stop_count = 1};
    FAILS(argument, "stop is a null", corsac_text_model_generate, model, &good, 1, &options, keep, &found);
    FAILS(call, "the token 5, and those of the model are below 5", corsac_text_model_generate, model, prompts, 2,
          NULL, keep, &found);
    FAILS(call, "has no tokens", corsac_text_model_generate, model, &empty, 1, NULL, keep, &found);
    FAILS(argument, "tokens is a null", corsac_text_model_generate, model, &null, 1, NULL, keep, &found);
    FAILS(argument, "prompts is a null", corsac_text_model_generate, model, NULL, 1, NULL, keep, &found);
    FAILS(argument, "model is a null", corsac_text_model_generate, NULL, &good, 1, NULL, keep, &found);
    FAILS(argument, "on_token is a null", corsac_text_model_generate, model, &good, 1, NULL, NULL, &found);
    CHECK(found.counts[0] == 0);

    corsac_text_model *other = (corsac_text_model *)"not written";
    FAILS(CORSAC_STATUS_UNSUPPORTED, "the file has no program \"prompt\"", corsac_text_model_load,
          path_of("rows.safetensors"), NULL, &other);
    CHECK(other == NULL);
    FAILS(CORSAC_STATUS_IO, "none.safetensors", corsac_text_model_load, path_of("none.safetensors"), NULL, &other);
    FAILS(argument, "path is a null", corsac_text_model_load, NULL, NULL, &other);
    FAILS(CORSAC_STATUS_DAMAGED, "", corsac_text_model_load_memory, odd, sizeof odd, NULL, &other);
    FAILS(argument, "bytes is a null", corsac_text_model_load_memory, NULL, 1, NULL, &other);
    FAILS(argument, "model is a null", corsac_text_model_load, path_of("text.safetensors"), NULL, NULL);
}

void test_texts(void)
{
    corsac_text_model *model = load_text_model("text.safetensors");
    test_facts(model);
    test_tokens(model);
    test_sampling(model);
    test_faults(model);
    corsac_text_model_free(model);
    corsac_text_model_free(NULL);

    size_t size_bytes = 0;
    unsigned char *bytes = read_file("text.safetensors", &size_bytes);
    SUCCEEDS(corsac_text_model_load_memory, bytes, size_bytes, NULL, &model);
    free(bytes);
    const corsac_prompt prompt = {two_even, 3};
    struct found found = {.most = 9};
    SUCCEEDS(corsac_text_model_generate, model, &prompt, 1, NULL, keep, &found);
    CHECK(found.counts[0] == 2 && found.ends[0] == CORSAC_TEXT_END_STOP);
    corsac_text_model_free(model);
}

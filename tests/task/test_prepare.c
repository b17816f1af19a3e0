/* test_prepare.c - raw rows of published data sets and what they become; those that cannot be used, and why. */
#include "task/prepare.h"
#include "test.h"

#define ASK "Let's think step by step and output the final answer "

/* clang-format off */
static const struct { const char *format, *raw, *want; } good[] = {
    { "gsm8k", "{\"question\":\"Q?\",\"answer\":\"so 1,2<<1+1>>\\n#### 1,234\"}",
      "{\"data_source\":\"openai/gsm8k\",\"prompt\":[{\"role\":\"user\",\"content\":\"Q? "
      ASK "after \\\"####\\\".\"}],\"ability\":\"math\","
      "\"reward_model\":{\"style\":\"rule\",\"ground_truth\":\"1234\"},"
      "\"extra_info\":{\"split\":\"train\",\"index\":3,\"answer\":\"so 1,2<<1+1>>\\n#### 1,234\","
      "\"question\":\"Q?\"}}" },
    { "gsm8k", "{\"question\":\"Q\",\"answer\":\"#### -5.50\"}", "\"ground_truth\":\"-5.50\"" },
    { "math", "{\"problem\":\"P\",\"solution\":\"\\\\boxed{1} or \\\\boxed{\\\\frac{1}{2}}.\",\"level\":\"Level 1\","
      "\"type\":\"Algebra\"}",
      "{\"data_source\":\"DigitalLearningGmbH/MATH-lighteval\",\"prompt\":[{\"role\":\"user\",\"content\":\"P "
      ASK "within \\\\boxed{}.\"}],"
      "\"ability\":\"math\",\"reward_model\":{\"style\":\"rule\",\"ground_truth\":\"\\\\frac{1}{2}\"},"
      "\"extra_info\":{\"split\":\"train\",\"index\":3,\"level\":\"Level 1\",\"type\":\"Algebra\"}}" },
    { "math", "{\"problem\":\"P\",\"solution\":\"$\\\\boxed 7$ and text\"}", "\"ground_truth\":\"7\"" },
    { "math", "{\"problem\":\"P\",\"solution\":\"\\\\fbox{x}\"}", "\"ground_truth\":\"x\"" },
    { "math500", "{\"problem\":\"P\",\"answer\":\" \\\\sqrt{2} \",\"subject\":\"Algebra\"}",
      "\"ground_truth\":\"\\\\sqrt{2}\"" },
    { "dapo", "{\"prompt\":\"P\",\"answer\":34}", "is the answer to the problem.\\n\\nP\\n\\nRemember to put" },
    { "dapo", "{\"prompt\":\"P\",\"answer\":34}", "\"data_source\":\"math_dapo\"" },
    { "dapo", "{\"prompt\":[{\"role\":\"user\",\"content\":\"as it is\"}],\"answer\":\"34\"}",
      "\"prompt\":[{\"role\":\"user\",\"content\":\"as it is\"}]" },
    { "aime", "{\"Problem\":1,\"problem\":\"P\",\"answer\":\"204\",\"id\":60}",
      "\"ground_truth\":\"204\"},\"extra_info\":{\"split\":\"train\",\"index\":3,\"id\":60}" },
    { "geo3k", "{\"images\":[{\"bytes\":\"B\",\"path\":null}],\"problem\":\"<image>Find x.\",\"answer\":\"2 \\\\sqrt { "
      "221 }\"}",
      "{\"data_source\":\"hiyouga/geometry3k\",\"prompt\":[{\"role\":\"user\",\"content\":\"<image>Find x. Think "
      "first, between <think> and </think>, "
      "then put the final answer within \\\\boxed{}.\"}],\"images\":[{\"bytes\":\"B\",\"path\":null}],"
      "\"ability\":\"math\",\"reward_model\":{\"style\":\"rule\","
      "\"ground_truth\":\"2 \\\\sqrt { 221 }\"},\"extra_info\":{\"split\":\"train\",\"index\":3,\"answer\":\"2 "
      "\\\\sqrt { 221 }\",\"question\":\"<image>Find x.\"}}" },
    { "sft", "{\"prompt\":\"P\",\"response\":\"R\"}",
      "{\"data_source\":\"sft\",\"prompt\":[{\"role\":\"user\",\"content\":\"P\"}],\"ability\":\"\",\"response\":\"R\","
      "\"extra_info\":{\"split\":\"train\",\"index\":3}}" },
    { "sft", "{\"messages\":[{\"role\":\"user\",\"content\":\"P\"},{\"role\":\"assistant\",\"content\":\"R\"}]}",
      "\"prompt\":[{\"role\":\"user\",\"content\":\"P\"}],\"ability\":\"\",\"response\":\"R\"" },
};
static const struct { const char *format, *raw, *says; } bad[] = {
    { "gsm8k", "{\"question\":\"Q\",\"answer\":\"no mark\"}", "no \"#### NUMBER\"" },
    { "gsm8k", "{\"question\":\"Q\",\"answer\":\"#### \"}", "no \"#### NUMBER\"" },
    { "gsm8k", "{\"question\":\"Q\",\"answer\":\"#### -\"}", "no \"#### NUMBER\"" },
    { "gsm8k", "{\"answer\":\"#### 1\"}", "no column question" },
    { "gsm8k", "{\"question\":\"Q\"}", "no column answer" },
    { "gsm8k", "{\"question\":7,\"answer\":\"#### 1\"}", "question must be text or messages" },
    { "math", "{\"problem\":\"P\",\"solution\":\"\\\\boxed{open\"}", "no \\boxed" },
    { "math500", "{\"problem\":\"P\",\"answer\":\" \"}", "answer is empty" },
    { "dapo", "{\"prompt\":\"P\",\"answer\":[1]}", "answer must be text or a number" },
    { "geo3k", "{\"images\":[],\"problem\":\"<image>x\",\"answer\":\"1\"}", "0 pictures for 1 times <image>" },
    { "geo3k", "{\"images\":[\"a\",\"b\"],\"problem\":\"<image><image><image>\",\"answer\":\"1\"}",
      "2 pictures for 3 times <image>" },
    { "geo3k", "{\"problem\":\"<image>x\",\"answer\":\"1\"}", "no list of pictures in column images" },
    { "sft", "{\"messages\":[{\"role\":\"user\",\"content\":\"P\"}]}", "do not end with the assistant's" },
};
/* clang-format on */

int main(void) {
    Mem mem = { 0 };
    Buf b = { 0 };
    PrepareWith w = { .split = "train" };
    Json raw, row;
    for (size_t i = 0; i < COUNT(good); i++) {
        Err err = { { 0 } };
        CHECK(json_parse(&raw, good[i].raw, strlen(good[i].raw), &mem, &err), "%s: %s", good[i].raw, err.msg);
        bool ok = prepare_row(prepare_find(good[i].format), &w, &raw, 3, &mem, &row, &err);
        EXPECT(ok, "%s: %s", good[i].raw, err.msg);
        if (!ok) continue;
        buf_clear(&b);
        json_put_value(&b, &row);
        if (good[i].want[0] == '{') EXPECT_STR(b.data, good[i].want);
        else EXPECT(strstr(b.data, good[i].want), "%s in %s", good[i].want, b.data);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        Err err = { { 0 } };
        CHECK(json_parse(&raw, bad[i].raw, strlen(bad[i].raw), &mem, &err), "%s: %s", bad[i].raw, err.msg);
        EXPECT(!prepare_row(prepare_find(bad[i].format), &w, &raw, 3, &mem, &row, &err) && strstr(err.msg, bad[i].says),
               "%s: %s", bad[i].raw, err.msg);
    }
    /* in the place of the table's */
    Err err = { { 0 } };
    const char *text = "{\"ask\":\"Q\",\"reply\":{\"n\":2.5}}";
    CHECK(json_parse(&raw, text, strlen(text), &mem, &err), "%s", err.msg);
    w = (PrepareWith){ "mine", "Say {question}!", "Be brief.", "ask", "reply.n", "test" };
    EXPECT(prepare_row(prepare_find("qa"), &w, &raw, 0, &mem, &row, &err), "%s", err.msg);
    buf_clear(&b);
    json_put_value(&b, &row);
    EXPECT_STR(b.data, "{\"data_source\":\"mine\",\"prompt\":[{\"role\":\"system\",\"content\":\"Be "
                       "brief.\"},{\"role\":\"user\",\"content\":\"Say Q!\"}],"
                       "\"ability\":\"\",\"reward_model\":{\"style\":\"rule\",\"ground_truth\":\"2.5\"},\"extra_info\":"
                       "{\"split\":\"test\",\"index\":0}}");
    EXPECT(!prepare_find("gsm9k") && !prepare_at(-1), "unknown formats");
    buf_free(&b);
    mem_free(&mem);
    return test_end();
}

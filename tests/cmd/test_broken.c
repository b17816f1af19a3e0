/* test_broken.c - a model whose numbers leave float32 for some texts: that is the error of the lines concerned and of
 * no other, in score, generate, chat and eval; in train and sft it is trainer.on_nan's business.  Nothing aborts. */
#include "base/file.h"
#include "cmd/verbs.h"
#include "file/safetensors.h"
#include "test.h"

#include <math.h>

/* In the broken model a text is fine until it holds a 'Z': coordinate 0 of the embedding is 0 but for Z, and layer 0
 * multiplies it with nearly the largest float there is. */
enum { VOCAB = 262, HIDDEN = 128, KV = 64 };

static void break_model(const char *dir) {
    Mem mem = { 0 };
    Err err;
    Buf file = { 0 };
    StFiles st;
    char *path = mem_printf(&mem, "%s/model.safetensors", dir);
    CHECK(file_read(&file, path, &err) && st_parse(&st, file.data, file.n, path, &mem, &err), "%s", err.msg);
    const StTensor *embed = st_find(&st, "model.embed_tokens.weight"),
                   *v = st_find(&st, "model.layers.0.self_attn.v_proj.weight");
    CHECK(embed && embed->count == VOCAB * HIDDEN && v && v->count == KV * HIDDEN, "another model than was expected");
    float zero = 0, one = 1, huge = 3e38f;
    for (int i = 0; i < VOCAB; i++) memcpy((char *)(uintptr_t)embed->data + i * HIDDEN * 4, i == 'Z' ? &one : &zero, 4);
    for (int i = 0; i < KV; i++) memcpy((char *)(uintptr_t)v->data + i * HIDDEN * 4, &huge, 4);
    CHECK(file_write(path, file.data, file.n, &err), "%s", err.msg);
    buf_free(&file);
    mem_free(&mem);
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p++) n++;
    return n;
}

/* The lines that have nothing to do with it, with and without the others between them. */
static void lines(void) {
    static const char *const verbs[] = { "score", "generate" };
    static const char *const options[] = { "", "--top-p 0.9", "--temperature 0.5 --top-k 20", "--greedy" };
    Buf out = { 0 }, said = { 0 }, alone = { 0 };
    for (size_t i = 0; i < COUNT(verbs) * COUNT(options); i++) {
        const char *verb = verbs[i % 2];
        Mem mem = { 0 };
        char *args = mem_printf(&mem, "broken --device cpu %s%s", options[i / 2], i % 2 ? " --max-tokens 4 --n 2" : "");
        verb_put("in", "{\"tokens\":[65,66,67]}\n{\"tokens\":[65,90,67]}\n{\"tokens\":[70,71,72,73]}\n{\"tokens\":[90]}"
                       "\n{\"tokens\":[66,66,90]}\n");
        int rc = verb_run(verb, args, &out, &said);
        verb_put("in", "{\"tokens\":[65,66,67]}\n{\"tokens\":[70,71,72,73]}\n");
        int rc_alone = verb_run(verb, args, &alone, &said),
            drew = count(alone.data, "\"error\""); /* some answers say a Z */
        int bad = i % 2 ? 6 + drew
                        : 1; /* what follows a Z is broken: of what would follow the last token score says nothing */
        EXPECT(rc == 1 && !said.n && count(out.data, "\"error\"") == bad && count(out.data, "not finite") == bad,
               "%s: exit code %d, %s%s", args, rc, said.data, out.data);
        EXPECT(rc_alone == (drew > 0) && (i % 2 || !drew), "%s: exit code %d, %s", args, rc_alone, said.data);
        for (char *line = alone.data, *end; (end = strchr(line, '\n')); line = end + 1) {
            *end = 0;
            EXPECT(strstr(out.data, line), "%s: a line beside broken ones is other than without them: %s", args, line);
        }
        mem_free(&mem);
    }
    buf_free(&out);
    buf_free(&said);
    buf_free(&alone);
}

static void talk(void) {
    Buf out = { 0 }, said = { 0 };
    verb_put("in", "AB\nAZ\nAC\n");
    int rc = verb_run("chat", "broken --single --max-tokens 3", &out, &said);
    EXPECT(rc == 1 && count(said.data, "not finite") == 1 && count(said.data, "hone chat:") == 1, "chat: %d, %s", rc,
           said.data);
    buf_free(&out);
    buf_free(&said);
}

static const char *question(Mem *mem, const char *text) {
    return mem_printf(mem,
                      "{\"data_source\":\"openai/gsm8k\",\"prompt\":[{\"role\":\"user\",\"content\":\"%s\"}],"
                      "\"reward_model\":{\"style\":\"rule\",\"ground_truth\":\"1\"}}\n",
                      text);
}

static void runs(void) {
    Mem mem = { 0 };
    Buf out = { 0 }, said = { 0 };
    verb_put("q.jsonl", mem_printf(&mem, "%s%s%s%s", question(&mem, "A"), question(&mem, "AZ"), question(&mem, "BB"),
                                   question(&mem, "C")));
    int rc = verb_run("eval", "broken q.jsonl --n 2 --max-tokens 4 --out out.jsonl", &out, &said);
    EXPECT(rc == 1 && count(said.data, "not finite") == 1 && strstr(said.data, "2 of 8 answers"), "eval: %d, %s", rc,
           said.data);
    EXPECT(strstr(out.data, "4 questions, 2 answers each"), "eval goes to its end: %s", out.data);
    verb_get("out.jsonl", &out);
    EXPECT(count(out.data, "\"finish\":\"broken\"") == 2 && count(out.data, "\"failed\":true") == 2
               && count(out.data, "\n") == 8,
           "eval's answers: %s", out.data);

    static const char *const train =
        "model.path=broken data.train_files=[q.jsonl] data.train_batch_size=4 rollout.n=2 "
        "data.max_prompt_length=32 data.max_response_length=4 train.micro_tokens=128 trainer.threads=2 "
        "trainer.steps=2 trainer.peak_tflops=0.1";
    rc = verb_run("train", mem_printf(&mem, "%s trainer.run_dir=stop", train), &out, &said);
    EXPECT(rc == 1 && strstr(said.data, "step 1: stopped") && strstr(said.data, "not finite"), "train, stop: %d, %s",
           rc, said.data);
    rc = verb_run("train", mem_printf(&mem, "%s trainer.run_dir=skip trainer.on_nan=skip", train), &out, &said);
    EXPECT(rc == 0, "train, skip: %d, %s", rc, said.data);
    verb_get("skip/metrics.jsonl", &out);
    EXPECT(count(out.data, "\"rollout/broken\":2") == 2, "train, skip: %s", out.data);
    rc = verb_run(
        "train",
        mem_printf(&mem, "%s trainer.run_dir=val data.val_files=[q.jsonl] trainer.val_before_train=true", train), &out,
        &said);
    EXPECT(rc == 1 && strstr(said.data, "not finite"), "validation: %d, %s", rc, said.data);

    verb_put("pairs.jsonl", "{\"prompt\":\"A\",\"response\":\"B\"}\n{\"prompt\":\"AZ\",\"response\":\"BC\"}\n");
    static const char *const sft =
        "model.path=broken data.train_files=pairs.jsonl sft.batch_size=2 sft.max_length=32 train.micro_tokens=64 "
        "trainer.threads=2 trainer.steps=2";
    rc = verb_run("sft", mem_printf(&mem, "%s trainer.run_dir=sft_stop", sft), &out, &said);
    EXPECT(rc == 1 && strstr(said.data, "the loss is nan"), "sft, stop: %d, %s", rc, said.data);
    rc = verb_run("sft",
                  mem_printf(&mem, "%s trainer.run_dir=sft_skip trainer.on_nan=skip data.val_files=pairs.jsonl", sft),
                  &out, &said);
    EXPECT(rc == 0, "sft, skip: %d, %s", rc, said.data);
    buf_free(&out);
    buf_free(&said);
    mem_free(&mem);
}

int main(void) {
    Buf out = { 0 }, said = { 0 };
    verbs_open();
    EXPECT(verb_run("random", "ROOT/recipes/quickstart/model broken --seed 3", &out, &said) == 0, "%s", said.data);
    break_model(verb_path("broken"));
    lines();
    talk();
    runs();
    verbs_close();
    buf_free(&out);
    buf_free(&said);
    return test_end();
}

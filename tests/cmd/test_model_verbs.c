/* test_model_verbs.c - inspect, convert and random as a user meets them: published sizes, scores that stay the same
 * through a conversion, and one line with exit code 1 for whatever is wrong. */
#include "base/file.h"
#include "base/json.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

static char tmp[] = "/tmp/hone-test-XXXXXX";
static char hone[4096];

/* Runs "hone ARGS", its output (and errors, if asked for) into out; returns the exit code. */
static int run(Buf *out, bool errors, Mem *mem, const char *args) {
    FILE *f = popen(mem_printf(mem, "'%s' %s %s", hone, args, errors ? "2>&1" : "2>/dev/null"), "r");
    CHECK(f, "popen");
    buf_clear(out);
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, f));) buf_put(out, part, n);
    buf_putc(out, 0);
    out->n--;
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const struct {
    const char *config;
    int64_t parameters, active;
} published[] = {
    { "DeepSeek-V3", 671026419200, 37552297472 },
    { "Qwen3-30B-A3B", 30532122624, 3353032704 },
    { "Qwen2.5-0.5B", 494032768, 494032768 },
    { "Qwen2.5-VL-7B", 8292166656, 8292166656 },
};

static void inspect(void) {
    for (size_t i = 0; i < COUNT(published); i++) {
        Mem mem = { 0 };
        Buf out = { 0 };
        Err err;
        Json j;
        int rc =
            run(&out, false, &mem, mem_printf(&mem, "inspect --json tests/data/configs/%s.json", published[i].config));
        bool ok = rc == 0 && json_parse(&j, out.data, out.n, &mem, &err);
        EXPECT(ok, "%s: exit code %d", published[i].config, rc);
        int64_t n = 0, a = 0, sum = 0;
        ok = ok && json_int(&j, "parameters", &n, &err) && json_int(&j, "active_parameters", &a, &err);
        const Json *parts = ok ? json_get(&j, "components") : NULL;
        for (size_t k = 0; parts && k < parts->n; k++) sum += json_get(&parts->members[k].value, "parameters")->integer;
        EXPECT(n == published[i].parameters && a == published[i].active && sum == n, "%s: %ld, %ld active",
               published[i].config, (long)n, (long)a);
        rc = run(&out, true, &mem, mem_printf(&mem, "inspect tests/data/configs/%s.json", published[i].config));
        EXPECT(rc == 0 && strstr(out.data, "parameters"), "%s: as text", published[i].config);
        buf_free(&out);
        mem_free(&mem);
    }
    Mem mem = { 0 };
    Buf out = { 0 };
    EXPECT(run(&out, true, &mem, "inspect --tensors tests/data/models/deepseek_v3_fp8") == 0
               && strstr(out.data, "F8_E4M3") && strstr(out.data, "model.layers.1.mlp.experts.7.down_proj.weight"),
           "the list of tensors");
    buf_free(&out);
    mem_free(&mem);
}

/* The scores of a few fixed sequences under a model, as text. */
static char *scores(Mem *mem, const char *model) {
    Buf out = { 0 };
    int rc = run(&out, true, mem, mem_printf(mem, "score '%s' --in '%s/in.jsonl' --threads 1", model, tmp));
    EXPECT(rc == 0, "score %s: %s", model, out.data);
    char *text = mem_str(mem, out.data, out.n);
    buf_free(&out);
    return text;
}

static bool convert(Mem *mem, const char *from, const char *to, const char *options) {
    Buf out = { 0 };
    int rc = run(&out, true, mem, mem_printf(mem, "convert '%s' '%s' %s --threads 2", from, to, options));
    EXPECT(rc == 0 && out.n == 0, "convert %s: %s", from, out.data);
    buf_free(&out);
    return rc == 0;
}

static void conversions(void) {
    Mem mem = { 0 };
    Err err;
    const char *lines =
        "{\"tokens\":[5,6,7,100,3,9,11]}\n{\"tokens\":[1,2]}\n{\"tokens\":[90,91,92,93,94,95,96,97,98,99,12,13]}\n";
    CHECK(file_write(mem_printf(&mem, "%s/in.jsonl", tmp), lines, strlen(lines), &err), "%s", err.msg);
    const char *fp8 = "tests/data/models/deepseek_v3_fp8";
    char *f32 = mem_printf(&mem, "%s/f32", tmp), *bf16 = mem_printf(&mem, "%s/bf16", tmp),
         *wide = mem_printf(&mem, "%s/wide", tmp);
    convert(&mem, fp8, f32, "--dtype f32 --shard-size 1MB");
    convert(&mem, fp8, bf16, "--dtype bf16");
    convert(&mem, bf16, wide, "--dtype f32");
    char *want = scores(&mem, fp8);
    EXPECT_STR(scores(&mem, f32), want);
    EXPECT_STR(scores(&mem, bf16), scores(&mem, wide)); /* the rounded weights, kept short or wide */
    EXPECT(strcmp(scores(&mem, bf16), want), "rounding shows");
    Buf b = { 0 };
    CHECK(file_read(&b, mem_printf(&mem, "%s/config.json", f32), &err), "%s", err.msg);
    EXPECT(!strstr(b.data, "quantization_config") && strstr(b.data, "\"torch_dtype\": \"float32\""), "%s", b.data);
    EXPECT(file_exists(mem_printf(&mem, "%s/model.safetensors.index.json", f32)), "1 MB a shard");
    buf_free(&b);
    mem_free(&mem);
}

/* A disk that fills up half way (here: a limit on the size of files): one line, and the old model is still there. */
static void full_disk(void) {
    Mem mem = { 0 };
    Buf out = { 0 };
    char *f32 = mem_printf(&mem, "%s/f32", tmp), *before = scores(&mem, f32);
    FILE *f = popen("ulimit -f 200 2>/dev/null && echo yes", "r");
    char yes[8] = "";
    bool can = f && fgets(yes, sizeof yes, f);
    if (f) pclose(f);
    if (!can) SKIP("no limit on the size of files here");
    else {
        char *shell = mem_printf(
            &mem, "trap '' XFSZ; ulimit -f 100; '%s' convert tests/data/models/qwen3_moe '%s' --force --dtype f32 2>&1",
            hone, f32);
        f = popen(shell, "r");
        CHECK(f, "popen");
        char text[1024];
        size_t n = fread(text, 1, sizeof text - 1, f);
        text[n] = 0;
        int status = pclose(f);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 1 && strstr(text, "File too large"), "status %d: %s", status,
               text);
        EXPECT_STR(scores(&mem, f32), before);
        EXPECT(system(mem_printf(&mem, "ls -d '%s'/f32.* >/dev/null 2>&1", tmp)), "nothing is left beside it");
        EXPECT(
            run(&out, true, &mem, mem_printf(&mem, "convert tests/data/models/qwen3_moe '%s' --force --dtype f32", f32))
                == 0,
            "%s", out.data);
        EXPECT(strcmp(scores(&mem, f32), before), "with room it is replaced");
        EXPECT(
            run(&out, true, &mem,
                mem_printf(&mem, "convert tests/data/models/deepseek_v3_fp8 '%s' --force --dtype f32 --shard-size 1MB",
                           f32))
                == 0,
            "%s", out.data);
    }
    buf_free(&out);
    mem_free(&mem);
}

static void random_model(void) {
    Mem mem = { 0 };
    Buf out = { 0 }, a = { 0 }, b = { 0 };
    Err err;
    for (int i = 0; i < 3; i++) {
        int rc = run(&out, true, &mem,
                     mem_printf(&mem, "random tests/data/models/qwen3_moe/config.json '%s/r%d' --seed %d --threads %d",
                                tmp, i, i / 2, i + 1));
        EXPECT(rc == 0, "%s", out.data);
    }
    CHECK(file_read(&a, mem_printf(&mem, "%s/r0/model.safetensors", tmp), &err), "%s", err.msg);
    CHECK(file_read(&b, mem_printf(&mem, "%s/r1/model.safetensors", tmp), &err), "%s", err.msg);
    EXPECT(a.n == b.n && !memcmp(a.data, b.data, a.n), "the same seed, other threads: the same bytes");
    CHECK(file_read(&b, mem_printf(&mem, "%s/r2/model.safetensors", tmp), &err), "%s", err.msg);
    EXPECT(a.n == b.n && memcmp(a.data, b.data, a.n), "another seed: other bytes");
    scores(&mem, mem_printf(&mem, "%s/r0", tmp));
    buf_free(&out);
    buf_free(&a);
    buf_free(&b);
    mem_free(&mem);
}

/* ---- wrong input: exit code, and one line that says what is wrong */
static const struct {
    const char *args;
    int rc;
    const char *says;
} bad[] = {
    { "inspect", 2, "an argument is missing" },
    { "inspect nothing", 1, "nothing: cannot open" },
    { "inspect tests/data", 1, "there is no config.json in this folder" },
    { "inspect tests/data/models/qwen2/model.safetensors", 1, "JSON line 1" },
    { "convert tests/data/models/qwen2 TMP/f32", 1, "is there already" },
    { "convert tests/data/models/qwen2 TMP --force", 1, "is not a model's folder" },
    { "convert TMP/f32 TMP/f32/. --force", 1, "is the model itself" },
    { "random TMP/f32 TMP/f32 --force", 1, "is the model itself" },
    { "convert tests/data/models/qwen2 TMP/x --dtype f8", 2, "--dtype wants" },
    { "convert tests/data/models/qwen2 TMP/x --shard-size tiny", 2, "--shard-size wants" },
    { "convert TMP/broken TMP/x", 1, "this shard is missing" },
    { "inspect TMP/broken", 1, "this shard is missing" },
    { "convert TMP/cut TMP/x", 1, "cut off" },
    { "convert TMP/empty TMP/x", 1, "0 bytes are not a safetensors file" },
    { "convert TMP/huge TMP/x", 1, "too large" },
    { "convert tests/data/models/qwen2 /proc/x/y", 1, "/proc/x" },
    { "random tests/data/models/qwen2/meta.json TMP/x", 1, "is this a model's config.json" },
};

static void break_models(Mem *mem) {
    Err err;
    Buf b = { 0 };
    CHECK(!system(mem_printf(mem, "cd '%s' && cp -r f32 broken && rm broken/model-00002-of-*", tmp)), "cp");
    CHECK(!system(mem_printf(mem, "cd '%s' && mkdir cut empty huge", tmp)), "mkdir");
    for (int i = 0; i < 3; i++) {
        const char *name = i == 0 ? "cut" : i == 1 ? "empty" : "huge";
        const char *huge = "\x48\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_"
                           "offsets\":[0,8]}}12345678";
        CHECK(file_read(&b, FIXTURE("models/qwen2/config.json"), &err), "%s", err.msg);
        CHECK(file_write(mem_printf(mem, "%s/%s/config.json", tmp, name), b.data, b.n, &err), "%s", err.msg);
        CHECK(file_read(&b, FIXTURE("models/qwen2/model.safetensors"), &err), "%s", err.msg);
        CHECK(file_write(mem_printf(mem, "%s/%s/model.safetensors", tmp, name), i < 2 ? b.data : huge,
                         i == 0   ? 40000
                         : i == 1 ? 0
                                  : 88,
                         &err),
              "%s", err.msg);
    }
    buf_free(&b);
}

static void wrong_input(void) {
    Mem mem = { 0 };
    Buf out = { 0 };
    break_models(&mem);
    for (size_t i = 0; i < COUNT(bad); i++) {
        Buf args = { 0 };
        for (const char *c = bad[i].args; *c; c++) {
            bool here = !strncmp(c, "TMP", 3);
            if (here) buf_puts(&args, tmp), c += 2;
            else buf_putc(&args, *c);
        }
        int rc = run(&out, true, &mem, args.data);
        char *nl = strchr(out.data, '\n');
        EXPECT(rc == bad[i].rc && strstr(out.data, bad[i].says) && nl && !nl[1], "%s: exit code %d, %s", bad[i].args,
               rc, out.data);
        buf_free(&args);
    }
    EXPECT(!dir_exists(mem_printf(&mem, "%s/x", tmp)), "nothing is left of a failed conversion");
    buf_free(&out);
    mem_free(&mem);
}

int main(int argc, char **argv) {
    (void)argc;
    const char *slash = strrchr(argv[0], '/'); /* build/tests/cmd/test_model_verbs -> build/hone */
    snprintf(hone, sizeof hone, "%.*s/../../hone", slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
    CHECK(!access(hone, X_OK), "%s: not there", hone);
    CHECK(mkdtemp(tmp), "no temporary folder");
    inspect();
    conversions();
    full_disk();
    random_model();
    wrong_input();
    Mem mem = { 0 };
    CHECK(!system(mem_printf(&mem, "rm -r '%s'", tmp)), "rm");
    mem_free(&mem);
    return test_end();
}

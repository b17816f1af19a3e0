/* test_models_next.c - families whose reference values are not in the repository: with --extra DIR, every folder of
 * DIR/models_next that is listed here agrees with transformers in both spellings of its config, and again after its
 * weights were read and written by `hone convert`. */
#include "cmd/verbs.h"

static const char *const names[] = {
    "glm4_moe",    "glm4_moe_lite", "kimi_k2",   "seed_oss",  "smollm3",    "hunyuan_v1_moe", "ernie4_5_moe",
    "deepseek_v2", "phi3",          "phi4_mini", "qwen2_moe", "qwen3_next", "qwen3_5_text",   "qwen3_5_moe_text",
};

static bool agrees(const char *name, const char *how, const char *args) {
    Buf out = { 0 }, said = { 0 };
    int rc = verb_run("verify", args, &out, &said);
    bool ok = rc == 0 && strstr(out.data, " 0 failed");
    EXPECT(ok, "%s, %s: exit code %d\n%s%s", name, how, rc, out.data, said.data);
    buf_free(&out);
    buf_free(&said);
    return ok;
}

static void one(const char *name, const char *dir, int k, Mem *mem) {
    static const char *const recompute[] = { "none", "selective", "full" };
    Buf out = { 0 }, said = { 0 };
    agrees(name, "as published", mem_printf(mem, "'%s' --guard --recompute %s", dir, recompute[k % 3]));
    const char *made = mem_printf(mem,
                                  "mkdir '%s/%s' && cp '%s'/*.safetensors '%s/%s' && cp '%s/config_v5.json' "
                                  "'%s/%s/config.json'",
                                  verbs_dir, name, dir, verbs_dir, name, dir, verbs_dir, name);
    CHECK(!system(made), "%s", made);
    agrees(name, "newer config", mem_printf(mem, "%s --golden '%s' --threads 1", name, dir));
    int rc = verb_run("convert", mem_printf(mem, "'%s' %s-out --dtype f32", dir, name), &out, &said);
    EXPECT(rc == 0, "%s: convert: exit code %d\n%s", name, rc, said.data);
    if (rc == 0) agrees(name, "converted", mem_printf(mem, "%s-out --golden '%s'", name, dir));
    buf_free(&out);
    buf_free(&said);
}

int main(int argc, char **argv) {
    const char *extra = argc > 2 && !strcmp(argv[1], "--extra") ? argv[2] : NULL;
    if (!extra) {
        SKIP("families whose values are not in the repository: --extra DIR has them");
        return test_end();
    }
    Mem mem = { 0 };
    verbs_open();
    for (size_t k = 0; k < COUNT(names); k++)
        one(names[k], mem_printf(&mem, "%s/models_next/%s", extra, names[k]), (int)k, &mem);
    verbs_close();
    mem_free(&mem);
    return test_end();
}

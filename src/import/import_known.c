/* import_known.c - the trainers and the models that verl's scripts name.
 *
 * What hone does not do yet is a row of config/verl.c; what is said here and in import_rules.c falls silent with it.
 * So does a family's, which asks arch/ whether models of that type are computed. */
#include "import/import_verl.h"

#include "base/file.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- trainers: what stands behind python's -m, or the file with dots for its slashes; the first row that fits */
static const struct {
    const char *module, *why; /* why NULL: hone trains as it does */
    const char *stale;        /* it trains on answers of older weights, as this key asks for: said while that key is
                               * one that hone cannot do (config/verl.c) */
} TRAINERS[] = {
    { "*verl.trainer.main_ppo", NULL, NULL },
    { "*verl.trainer.main_ppo_sync", NULL, NULL },
    { "*verl.trainer.main_ppo_v0", NULL, NULL },
    { "*verl.trainer.*sft_trainer", NULL, NULL },
    { "*verl.trainer.sft_trainer_ray", NULL, NULL },
    { "*recipe.dapo.*", NULL, NULL },
    { "*dapo.main_dapo", NULL, NULL },
    { "main_ppo", NULL, NULL }, /* a file beside the script, as verl/trainer has them */
    { "main_dapo", NULL, NULL },
    { "sft_trainer", NULL, NULL },
    { "fsdp_sft_trainer", NULL, NULL },
    { "*one_step_off_policy*", NULL, "async_training.staleness_threshold" },
    { "*fully_async*", NULL, "async_training.staleness_threshold" },
    { "*", "a trainer of its own, which is not verl's: what it does that main_ppo does not is lost", NULL },
};

/* ---- models, by the names that they are published under: a part of the last folder of a path that fits any; in
 * small letters */
static const struct {
    const char *name, *type; /* type: config.json's model_type */
    int layers, experts;     /* of models that scripts cut into stages without having them; 0: not known */
} MODELS[] = {
    { "*deepseek-r1-distill-qwen*", "qwen2", 0, 0 },
    { "*deepseek-r1-distill-llama*", "llama", 0, 0 },
    { "*deepseek-r1-0528-qwen3*", "qwen3", 0, 0 },
    { "*deepseek-v3.2*", "deepseek_v32", 61, 256 },
    { "*deepseek-v3*", "deepseek_v3", 61, 256 },
    { "*deepseek-r1*", "deepseek_v3", 61, 256 },
    { "*deepseek-v4*", "deepseek_v4", 0, 0 },
    { "*deepseek-v2*", "deepseek_v2", 0, 0 },
    { "*deepseek-coder-v2*", "deepseek_v2", 0, 0 },
    { "*deepseek-vl*", "deepseek_vl", 0, 0 },
    { "*deepseek-llm*", "llama", 0, 0 },
    { "*deepseek-coder*", "llama", 0, 0 },
    { "*moonlight*", "deepseek_v3", 27, 64 },
    { "*kimi-k2.*", "kimi_k25", 61, 384 },
    { "*kimi-k2*", "kimi_k2", 61, 384 },
    { "*kimi-linear*", "kimi_linear", 0, 0 },
    { "*kimi-vl*", "kimi_vl", 0, 0 },

    { "*qwen3-vl-235b-a22b*", "qwen3_vl_moe", 94, 128 },
    { "*qwen3-vl-30b-a3b*", "qwen3_vl_moe", 48, 128 },
    { "*qwen3-vl*", "qwen3_vl", 0, 0 },
    { "*qwen3-omni*", "qwen3_omni_moe", 0, 0 },
    { "*qwen3-next*", "qwen3_next", 48, 512 },
    { "*qwen3-coder-next*", "qwen3_next", 48, 512 },
    { "*qwen3.[0-9]*-*b-a[0-9]*", "qwen3_5_moe", 0, 0 },
    { "*qwen3.[0-9]*", "qwen3_5", 0, 0 },
    { "*qwen3-235b-a22b*", "qwen3_moe", 94, 128 },
    { "*qwen3-30b-a3b*", "qwen3_moe", 48, 128 },
    { "*qwen3-coder-30b-a3b*", "qwen3_moe", 48, 128 },
    { "*qwen3-*b-a[0-9]*", "qwen3_moe", 0, 0 },
    { "*qwen3-*moe*", "qwen3_moe", 0, 0 },
    { "*qwen3*", "qwen3", 0, 0 },
    { "*qwen2.5-vl*", "qwen2_5_vl", 0, 0 },
    { "*qwen2_5_vl*", "qwen2_5_vl", 0, 0 },
    { "*qwen2.5-omni*", "qwen2_5_omni", 0, 0 },
    { "*qwen2-vl*", "qwen2_vl", 0, 0 },
    { "*qvq-*", "qwen2_vl", 0, 0 },
    { "*qwen2-audio*", "qwen2_audio", 0, 0 },
    { "*qwen2-57b-a14b*", "qwen2_moe", 0, 0 },
    { "*qwen1.5-moe*", "qwen2_moe", 0, 0 },
    { "*qwen2*", "qwen2", 0, 0 },
    { "*qwq-*", "qwen2", 0, 0 },

    { "*gpt-oss*", "gpt_oss", 0, 0 },
    { "*gptoss*", "gpt_oss", 0, 0 },
    { "*glm-4.5v*", "glm4v_moe", 0, 0 },
    { "*glm-4.6v-flash*", "glm4v", 0, 0 },
    { "*glm-4.6v*", "glm4v_moe", 0, 0 },
    { "*glm-4.[0-9]v*", "glm4v", 0, 0 },
    { "*glm-4v*", "glm4v", 0, 0 },
    { "*glm-4.[0-9]-flash*", "glm4_moe_lite", 0, 0 },
    { "*glm-4.[0-9]*", "glm4_moe", 0, 0 },
    { "*glm-5*", "glm_moe_dsa", 0, 0 },
    { "*glm-4-*", "glm4", 0, 0 },
    { "*glm-z1*", "glm4", 0, 0 },
    { "*seed-oss*", "seed_oss", 0, 0 },
    { "*minimax-m*", "minimax_m2", 0, 0 },
    { "*minicpm-o*", "minicpmo", 0, 0 },
    { "*minicpm-v*", "minicpmv", 0, 0 },
    { "*minicpm*", "minicpm", 0, 0 },
    { "*mimo-vl*", "qwen2_5_vl", 0, 0 },
    { "*mimo*", "mimo", 0, 0 },
    { "*ernie-4.5-*a[0-9]*", "ernie4_5_moe", 0, 0 },
    { "*ernie-4.5*", "ernie4_5", 0, 0 },
    { "*hunyuan-*a[0-9]*", "hunyuan_v1_moe", 0, 0 },
    { "*hunyuan*", "hunyuan_v1_dense", 0, 0 },
    { "hy3*", "hy_v3", 0, 0 },
    { "*internvl*", "internvl", 0, 0 },
    { "*internlm*", "internlm2", 0, 0 },
    { "*gemma-4*", "gemma4", 0, 0 },
    { "*gemma-3n*", "gemma3n", 0, 0 },
    { "*gemma-3*", "gemma3", 0, 0 },
    { "*gemma-2-*", "gemma2", 0, 0 },
    { "*gemma*", "gemma", 0, 0 },
    { "*phi-4-multimodal*", "phi4mm", 0, 0 },
    { "*phi-[34]*", "phi3", 0, 0 },
    { "*granite-4*", "granitemoehybrid", 0, 0 },
    { "*granite*", "granite", 0, 0 },
    { "*olmoe*", "olmoe", 0, 0 },
    { "*olmo-3*", "olmo3", 0, 0 },
    { "*olmo-2*", "olmo2", 0, 0 },
    { "*smollm3*", "smollm3", 0, 0 },
    { "*smollm*", "llama", 0, 0 },
    { "*llama-3*nemotron*", "llama", 0, 0 },
    { "*nemotron-h*", "nemotron_h", 0, 0 },
    { "*nemotron*nano*", "nemotron_h", 0, 0 },
    { "*llama-4*", "llama4", 0, 0 },
    { "*llama-3.2-*vision*", "mllama", 0, 0 },
    { "*llama*", "llama", 0, 0 },
    { "*mixtral-8x22b*", "mixtral", 56, 8 },
    { "*mixtral*", "mixtral", 32, 8 },
    { "*pixtral*", "llava", 0, 0 },
    { "*mistral-small-3*", "mistral3", 0, 0 },
    { "*ministral-3*", "mistral3", 0, 0 },
    { "*mistral*", "mistral", 0, 0 },
};

/* Names in the table, the deepest folder first: HF's cache ends with a folder that is called by a sum. */
static int by_name(const char *path) {
    char name[256];
    for (size_t end = strlen(path); end;) {
        size_t at = end;
        while (at && path[at - 1] != '/') at--;
        snprintf(name, sizeof name, "%.*s", (int)(end - at), path + at);
        for (char *c = name; *c; c++) *c = (char)tolower((unsigned char)*c);
        for (size_t i = 0; i < COUNT(MODELS); i++)
            if (!fnmatch(MODELS[i].name, name, 0)) return (int)i;
        end = at ? at - 1 : 0;
    }
    return -1;
}

void import_know_model(Import *im) {
    const char *path = import_text(im, IMPORT_MODEL, "");
    const char *config = mem_printf(im->mem, "%s/config.json", path);
    ModelDesc m;
    Err err;
    if (im->in.model || (*path && file_exists(config))) {
        bool ok = model_desc_load(&m, im->in.model ? im->in.model : path, im->mem, &err);
        if (ok) im->layers = m.d.layers, im->experts = m.d.experts;
        if (!ok || !model_desc_runs(&m, &err)) im->no_model = mem_printf(im->mem, "the model is not run: %s", err.msg);
        return;
    }
    int i = by_name(path);
    if (i < 0) return;
    im->layers = MODELS[i].layers, im->experts = MODELS[i].experts;
    if (!arch_runs_type(MODELS[i].type))
        im->no_model =
            mem_printf(im->mem, "by its name a model of the family %s, which hone does not run yet", MODELS[i].type);
}

/* A row of the report that no key of the script has. */
static void add_row(Import *im, const char *what, const char *why) {
    HydraSet *s = MEM_NEW(im->mem, HydraSet);
    *s = (HydraSet){ .key = what };
    VEC_PUSH(im->rows, ((ImportRow){ .set = s, .fate = FATE_NOT_SUPPORTED, .why = why }));
}

void import_know_trainer(Import *im) {
    if (im->no_model && !import_find(im, IMPORT_MODEL)) add_row(im, "--model", im->no_model);
    const char *module = im->in.module;
    if (!module) return;
    char *dotted = mem_str(im->mem, module, strlen(module));
    size_t n = strlen(dotted);
    if (n > 3 && !strcmp(dotted + n - 3, ".py")) dotted[n - 3] = 0;
    for (char *c = dotted; *c; c++)
        if (*c == '/') *c = '.';
    size_t i = 0;
    while (fnmatch(TRAINERS[i].module, dotted, 0)) i++;
    const char *why = TRAINERS[i].why, *cannot, *key = TRAINERS[i].stale;
    im->stale = key && conf_verl(key, "", &cannot) == CONF_REFUSED;
    if (im->stale) why = mem_printf(im->mem, "it trains on answers that older weights gave: %s", cannot);
    if (why) add_row(im, module, why);
}

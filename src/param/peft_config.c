/* peft_config.c - adapter_config.json of an adapter's table.  One rank and one alpha where that is true, else a pattern
 * for every module that has others; the scale is always alpha / r, which every engine reads alike. */
#include "param/peft.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    Buf targets, ranks, alphas, name;
    int64_t rank; /* the first's */
    double alpha;
    bool bias;
} Text;

static double alpha_of(const ParamDesc *b, int layer) {
    double a = (double)b->scale[layer] * b->rank[layer], near = round(a * 1e4) / 1e4;
    return (double)(float)(near / b->rank[layer]) == (double)b->scale[layer] ? near : a;
}
/* A module by its name; of experts all: the name is an expression there, and a target is a list of names. */
static void module_of(Buf *out, const ParamDesc *p, int layer, const char *expert) {
    const char *front = strlen("base_model.model.") + p->name, *end = strstr(p->name, ".lora_");
    int at = 0;
    buf_clear(out);
    for (const char *c = front; c < end; c++) {
        if (c[0] != '%') buf_putc(out, *c);
        else if (c++, at++ == 0) buf_printf(out, "%d", layer);
        else buf_puts(out, expert);
    }
}

static void look(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)experts, (void)rows, (void)cols;
    Text *x = user;
    if (p->part == ADAPTER_BIAS) x->bias = true;
    if (p->part != ADAPTER_B) return;
    if (!x->rank) x->rank = p->rank[layer], x->alpha = alpha_of(p, layer);
}

static void comma(Buf *b) {
    if (b->n) buf_puts(b, ", ");
}
static void put_pattern(Buf *b, const char *key, double value) {
    comma(b);
    json_put_str(b, key, strlen(key));
    buf_puts(b, ": ");
    json_put_f64(b, value);
}
static void add(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)rows, (void)cols;
    Text *x = user;
    if (p->part != ADAPTER_B) return;
    module_of(&x->name, p, layer, "[0-9]+");
    if (p->rank[layer] != x->rank) put_pattern(&x->ranks, x->name.data, p->rank[layer]);
    if (alpha_of(p, layer) != x->alpha) put_pattern(&x->alphas, x->name.data, alpha_of(p, layer));
    for (int64_t e = 0; e < (p->where == IN_EXPERT ? experts : 1); e++) {
        char number[24];
        snprintf(number, sizeof number, "%d", (int)e);
        module_of(&x->name, p, layer, number);
        comma(&x->targets);
        json_put_str(&x->targets, x->name.data, x->name.n);
    }
}

void peft_config_text(Buf *out, const ModelDesc *adapter, const char *base) {
    Text x = { 0 };
    arch_each_row(adapter, look, &x);
    arch_each_row(adapter, add, &x);
    buf_puts(out, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  \"base_model_name_or_path\": ");
    json_put_str(out, base, strlen(base));
    buf_printf(out, ",\n  \"r\": %d,\n  \"lora_alpha\": ", (int)x.rank);
    json_put_f64(out, x.alpha);
    buf_printf(out, ",\n  \"lora_dropout\": 0.0,\n  \"bias\": \"none\",\n  \"lora_bias\": %s,\n",
               x.bias ? "true" : "false");
    buf_printf(out, "  \"use_rslora\": false,\n  \"use_dora\": false,\n  \"fan_in_fan_out\": false,\n");
    buf_printf(out, "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n  \"modules_to_save\": null,\n");
    buf_printf(out, "  \"rank_pattern\": {%s},\n  \"alpha_pattern\": {%s},\n", x.ranks.n ? x.ranks.data : "",
               x.alphas.n ? x.alphas.data : "");
    buf_printf(out, "  \"target_modules\": [%s]\n}\n", x.targets.n ? x.targets.data : "");
    buf_free(&x.targets), buf_free(&x.ranks), buf_free(&x.alphas), buf_free(&x.name);
}

/* test_choose.c - which kernel computes a product, and which serves attention: listed shapes, each with its row, and no
 * row that serves none.  The choice is a function of the description, so this needs neither nvcc nor a GPU. */
#include "op/cuda/chosen.h"

#include "test.h"

enum { F32_OUT = 1, CAPTURED = 2, KNOWN = 4, ADD = 8, F32_A = 16, F32_B = 32, PIECES = 64, HEADS = 128, AT = 256 };
typedef struct {
    const char *row;
    ProdKind kind;
    int64_t rows, N, K; /* DW: K is M */
    int E, flags, sms;  /* E 0: dense; sms 0: 132, an H100's */
} Shape;

static const Shape shapes[] = {
    /* a step of decoding: one token, in a list of calls that is recorded, and not */
    { "one_16", FWD, 1, 2048, 2048, 0, CAPTURED, 0 },
    { "one_40", FWD, 1, 5120, 2048, 0, CAPTURED, 0 },
    { "few_early_16_8_8", FWD, 1, 128, 2048, 0, CAPTURED | F32_OUT, 0 },
    { "few_early_16_8_8", FWD, 4, 2112, 4096, 0, CAPTURED, 0 },
    { "few_early_40_8_4", FWD, 1, 2048, 6144, 0, CAPTURED, 78 }, /* two thirds of the card */
    { "few_early_40_8_4", FWD, 8, 2560, 2048, 0, CAPTURED, 0 },
    { "few_early_48_8_4", FWD, 2, 6144, 2048, 0, CAPTURED, 0 },
    { "few_early_56_8_4", FWD, 1, 7168, 7168, 0, CAPTURED, 0 },
    { "few_16_8_8", FWD, 1, 2048, 4096, 0, 0, 0 },
    { "few_16_8_4", FWD, 1, 4096, 4096, 0, 0, 0 },
    { "few_32_8_4", FWD, 1, 8192, 4096, 0, 0, 0 },
    { "few_64_8_2", FWD, 1, 151936, 2048, 0, CAPTURED, 0 },
    { "few_64_8_2", FWD, 8, 8456, 2048, 0, 0, 0 },
    { "few_64_8_2", FWD, 8, 128, 512, 128, HEADS, 0 },
    /* several tokens: sums in float32 (mid.cu has none), or more rows of the weight than one wave */
    { "few_16_16_4", FWD, 16, 4096, 2048, 0, F32_OUT, 0 },
    { "few_16_32_4", FWD, 17, 4096, 2048, 0, F32_OUT, 0 },
    { "few_16_48_2", FWD, 33, 4096, 2048, 0, F32_OUT, 0 },
    { "few_16_64_2", FWD, 64, 4096, 2048, 0, F32_OUT, 0 },
    { "few_32_16_2", FWD, 9, 2048, 2048, 0, F32_OUT, 0 },
    { "few_32_32_2", FWD, 32, 2048, 2048, 0, F32_OUT, 0 },
    { "few_32_48_2", FWD, 48, 8192, 2048, 0, F32_OUT, 0 },
    { "few_32_64_2", FWD, 49, 8192, 2048, 0, F32_OUT, 0 },
    { "few_64_16_2", FWD, 16, 151936, 2048, 0, 0, 0 },
    { "few_64_32_2", FWD, 32, 151936, 2048, 0, 0, 0 },
    { "few_64_48_2", FWD, 48, 151936, 2048, 0, 0, 0 },
    { "few_64_64_2", FWD, 64, 151936, 2048, 0, 0, 0 },
    { "mid_16_1", FWD, 9, 2048, 2048, 0, 0, 0 },
    { "mid_16_1", FWD, 64, 2048, 2048, 0, CAPTURED, 0 },
    { "mid_32_1", FWD, 16, 4096, 2048, 0, 0, 0 },
    { "mid_40_1", FWD, 16, 5120, 2048, 0, 0, 0 },
    { "mid_56_1", FWD, 64, 7168, 2048, 0, 0, 0 },
    { "mid_64_1", FWD, 64, 8192, 2048, 0, 0, 0 },
    { "mid_80_1", FWD, 64, 10240, 2048, 0, 0, 0 },
    { "mid_96_1", FWD, 64, 12288, 2048, 0, 0, 0 },
    { "mid_112_1", FWD, 64, 14336, 2048, 0, 0, 0 },
    { "mid_128_1", FWD, 64, 16384, 2048, 0, 0, 0 },
    { "mid_160_1", FWD, 64, 20480, 2048, 0, 0, 0 },
    { "mid_64_2", FWD, 256, 4096, 2048, 0, 0, 0 },
    { "mid_80_2", FWD, 256, 5120, 2048, 0, 0, 0 },
    { "mid_96_2", FWD, 256, 6144, 2048, 0, 0, 0 },
    { "mid_112_2", FWD, 256, 7168, 2048, 0, 0, 0 },
    { "mid_128_2", FWD, 256, 8192, 2048, 0, 0, 0 },
    { "mid_56_1", FWD, 64, 4096, 2048, 0, 0, 78 }, /* an H20 */
    /* experts */
    { "experts_early_64_8_2", FWD, 8, 768, 2048, 128, AT | CAPTURED | KNOWN, 0 },
    { "experts_early_64_16_2", FWD, 64, 768, 2048, 128, AT | CAPTURED | KNOWN, 0 },
    { "experts_64_16_2", FWD, 64, 768, 2048, 128, AT | CAPTURED, 0 },
    { "experts_64_16_2", FWD, 1151, 768, 2048, 128, AT, 0 },
    { "experts_64_32_2", FWD, 1152, 768, 2048, 128, AT, 0 },
    { "experts_64_32_2", FWD, 2175, 768, 2048, 128, AT, 0 },
    { "tiles_FWD_256_false", FWD, 2176, 768, 2048, 128, AT, 0 },
    /* training */
    { "tiles_FWD_32_false", FWD, 257, 128, 2048, 0, 0, 0 },
    { "tiles_FWD_64_false", FWD, 1024, 1024, 2048, 0, 0, 0 },
    { "tiles_FWD_128_false", FWD, 2048, 1024, 2048, 0, 0, 0 },
    { "tiles_FWD_256_false", FWD, 8192, 4096, 4096, 0, 0, 0 },
    { "tiles_FWD_128_true", FWD, 8192, 128, 4096, 0, PIECES, 0 },
    { "tiles_FWD_256_true", FWD, 1, 151936, 4096, 0, PIECES, 0 },
    { "tiles_FWD_256_false", FWD, 8192, 4096, 4096, 0, F32_OUT | ADD, 0 },
    { "tiles_DX_128_false", DX, 1, 4096, 4096, 0, 0, 0 },
    { "tiles_DX_256_false", DX, 8192, 4096, 4096, 0, 0, 0 },
    { "tiles_DX_128_true", DX, 64, 4096, 4096, 0, PIECES, 0 },
    { "tiles_DX_256_true", DX, 8192, 4096, 4096, 0, PIECES, 0 },
    { "dw_tall", DW, 8192, 2560, 2048, 0, 0, 0 },
    { "dw_tiles_128", DW, 8192, 1024, 1024, 0, 0, 0 },
    { "dw_tiles_256", DW, 8192, 4096, 4096, 0, 0, 0 },
    { "dw_tiles_256", DW, 8192, 768, 2048, 128, AT, 0 },
    /* operands that the copy engine does not take */
    { "split", FWD, 8192, 128, 2048, 0, F32_B | F32_OUT, 0 }, /* a float32 router */
    { "split", DX, 8192, 2048, 128, 0, F32_A, 0 },            /* ... and its gradients */
    { "split", DW, 8192, 2048, 128, 0, F32_A, 0 },
    { "padded", FWD, 4096, 1280, 3420, 0, 0, 0 }, /* a vision tower's feed-forward */
    { "padded", FWD, 4096, 3420, 1280, 0, 0, 0 },
    { "plain_mma", FWD, 4096, 3420, 1280, 16, AT, 0 },
    { "plain_mma", FWD, 64, 100, 100, 0, PIECES, 0 },
    { "plain_chain_16", FWD, 64, 64, 64, 0, F32_A | F32_B | F32_OUT, 0 },
    { "plain_chain_64", FWD, 8192, 4096, 4096, 0, F32_A | F32_B | F32_OUT, 0 },
    { "plain_chain_64", DX, 8192, 4096, 4096, 0, F32_B, 0 }, /* float32 weights of a gradient */
};

static const int some_at[1];
static Prod prod_of(const Shape *s) {
    void *at = (void *)(uintptr_t)ARENA_ALIGN;
    Prod p = { .kind = s->kind, .a = at, .b = at, .c = at, .rows = s->rows, .N = s->N, .E = s->E ? s->E : 1 };
    const int64_t K = s->kind == DW ? 0 : s->K, M = s->kind == DW ? s->K : 0, wide = M ? M : K;
    p.ta = s->flags & F32_A ? DT_F32 : DT_BF16, p.tb = s->flags & F32_B ? DT_F32 : DT_BF16;
    p.tc = s->kind == DW || s->flags & F32_OUT ? DT_F32 : DT_BF16;
    p.K = K, p.M = M, p.add = s->flags & ADD;
    p.lda = (wide + 7) / 8 * 8, p.ldb = s->kind == FWD ? K : s->N, p.ldc = (s->N + 7) / 8 * 8;
    if (s->flags & AT) p.at = some_at, p.step_b = M ? 0 : p.ldb * (s->kind == FWD ? s->N : K), p.step_c = M * p.ldc;
    if (s->flags & HEADS) p.lda *= s->E, p.ldc *= s->E, p.step_a = K, p.step_b = p.ldb * s->N, p.step_c = s->N;
    p.n_pieces = s->flags & PIECES ? 8 : 1;
    for (int i = 1; i <= p.n_pieces; i++) p.cut[i] = (int)(K * i / p.n_pieces);
    return p;
}
static ProdCall call_of(const Shape *s, const Prod *p) {
    return (ProdCall){ .p = p,
                       .act = DT_BF16,
                       .card = 90,
                       .sms = s->sms ? s->sms : 132,
                       .smem = 227 << 10,
                       .captured = s->flags & CAPTURED,
                       .known = s->flags & KNOWN };
}

enum { F = ATTN_FORWARD, B = ATTN_BACKWARD };
static const struct {
    const char *row;
    AttnCall c;
} heads[] = {
    { "attn_128", { true, 90, F, false, false, 32, 4, 128, 128 } }, /* Qwen3-30B-A3B */
    { "attn_128", { true, 90, B, false, false, 32, 4, 128, 128 } },
    { "attn_128", { true, 90, F, false, false, 64, 1, 128, 128 } },
    { "attn_plain", { true, 90, F, false, false, 65, 1, 128, 128 } },
    { "attn_plain", { true, 90, B, false, false, 128, 1, 128, 128 } },
    { "attn_64", { true, 90, F, false, false, 14, 2, 64, 64 } }, /* Qwen2.5-0.5B */
    { "attn_64", { true, 90, B, false, false, 14, 2, 64, 64 } },
    { "attn_mla", { true, 90, F, false, true, 128, 1, 576, 512 } }, /* DeepSeek-V3, absorbed */
    { "attn_plain", { true, 90, B, false, false, 128, 1, 576, 512 } },
    { "attn_plain", { true, 90, F, false, true, 16, 2, 576, 512 } },
    { "attn_plain", { true, 90, F, false, true, 16, 1, 128, 128 } },
    { "expanded", { true, 90, B, false, false, 128, 128, 192, 128 } }, /* ... its heads made */
    { "attn_plain", { true, 90, B, false, false, 33, 1, 192, 128 } },
    { "attn_plain", { true, 90, F, false, false, 128, 128, 192, 128 } },
    { "attn_all", { true, 90, F, true, false, 16, 16, 80, 80 } }, /* Qwen2.5-VL's tower */
    { "attn_all", { true, 90, B, true, false, 16, 16, 80, 80 } },
    { "attn_plain", { true, 90, F, false, false, 16, 16, 80, 80 } },
    { "attn_plain", { true, 90, F, true, false, 16, 16, 128, 128 } },
    { "attn_plain", { false, 90, F, false, false, 32, 4, 128, 128 } }, /* float32 */
    { "attn_plain", { true, 80, F, false, false, 32, 4, 128, 128 } },  /* an A100 */
};
static void attention(void) {
    bool served[COUNT(attns)] = { false };
    for (size_t i = 0; i < COUNT(heads); i++) {
        const AttnKernel *k = attn_choose(&heads[i].c);
        EXPECT(!strcmp(k->name, heads[i].row), "attention %zu: %s, not %s", i, k->name, heads[i].row);
        if (k != &attn_plain) served[k - attns] = true;
    }
    for (size_t i = 0; i < COUNT(attns); i++) EXPECT(served[i], "%s serves nothing of the list", attns[i].name);
}

/* Rows of a table that no listed shape is served by. */
static void all_serve(const ProdKernel *table, const bool *served) {
    for (int i = 0; table[i].name; i++)
        EXPECT(served[i], "%s serves no shape of the list: one is missing, or nobody needs it", table[i].name);
}

int main(void) {
    bool hopper[128] = { false }, plain[16] = { false };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const Shape *s = shapes + i;
        const Prod p = prod_of(s);
        ProdCall c = call_of(s, &p);
        const ProdKernel *k = prod_choose(&c);
        EXPECT(!strcmp(k->name, s->row), "%d: %ld x %ld x %ld, %d matrices: %s, not %s", s->kind, (long)s->rows,
               (long)s->N, (long)s->K, p.E, k->name, s->row);
        const bool is_plain = !strncmp(k->name, "plain", 5);
        if (is_plain) plain[k - prods_plain] = true;
        else hopper[k - prods_sm90] = true;
        /* of another card, and where it is asked for */
        const int others[] = { 0, 80, 89, 100, 120 };
        for (size_t o = 0; o < COUNT(others); o++) {
            c.card = others[o];
            const ProdKernel *other = prod_choose(&c);
            EXPECT(!strncmp(other->name, "plain", 5), "a card of %d has %s", others[o], other->name);
        }
        /* What is planned without a card is enough for any. */
        c = call_of(s, &p);
        c.sms = 0;
        const size_t most = prod_scratch(&c);
        for (c.sms = 2; c.sms <= 160; c.sms++)
            EXPECT(prod_scratch(&c) <= most, "%s on %d multiprocessors takes %zu bytes; planned %zu", k->name, c.sms,
                   prod_scratch(&c), most);
    }
    all_serve(prods_sm90, hopper);
    all_serve(prods_plain, plain);
    attention();
    return test_end();
}

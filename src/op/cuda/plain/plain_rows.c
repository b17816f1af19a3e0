/* plain_rows.c - which of the plain kernels takes a product: one of them takes any. */
#include "op/cuda/common/prod.h"

static bool takes_bf16(const ProdCall *c, const ProdKernel *k) {
    (void)k;
    return prod_is_bf16(c->p);
}
/* Small tiles where large ones would leave the device idle; a chain is the same in both. */
static bool takes_small(const ProdCall *c, const ProdKernel *k) {
    const Prod *p = c->p;
    (void)k;
    return (p->kind == DW ? p->M : p->rows) * p->N * (p->kind != DW && p->at ? 1 : p->E)
           < (int64_t)64 * 64 * 2 * c->sms;
}
static bool takes_all(const ProdCall *c, const ProdKernel *k) {
    (void)c, (void)k;
    return true;
}

void run_plain_mma(Dev *d, const Prod *p);
void run_plain_chain_16(Dev *d, const Prod *p);
void run_plain_chain_64(Dev *d, const Prod *p);
const ProdKernel prods_plain[] = { { "plain_mma", "plain", takes_bf16, NULL, run_plain_mma, NULL, { 0 } },
                                   { "plain_chain_16", "plain", takes_small, NULL, run_plain_chain_16, NULL, { 0 } },
                                   { "plain_chain_64", "plain", takes_all, NULL, run_plain_chain_64, NULL, { 0 } },
                                   { 0 } };

/* test_machine.c - clusters by name and by file: what is understood, and what each wrong one is told. */
#include "base/yaml.h"
#include "plan/machine.h"
#include "test.h"

#include <math.h>

static Mem mem;

static const struct {
    const char *text;
    double bytes; /* < 0: refused */
} SIZES[] = { { "1500GB", 1500e9 }, { "1.5TB", 1.5e12 }, { "1.5 TB", 1.5e12 }, { "96GiB", 96 * 0x1p30 },
              { "400Gb/s", 50e9 },  { "123", 123 },      { "-1GB", -1 },       { "12 parsecs", -1 },
              { "", -1 },           { "nan", -1 },       { "inf", -1 },        { "1e400", -1 } };

static const struct {
    const char *spec;
    int gpus, domain; /* 0: refused */
    const char *says;
} SPECS[] = { { "H20-96x96", 96, 8, NULL },
              { "H20x8", 8, 8, NULL },
              { "GB200x72", 72, 72, NULL },
              { "H100", 0, 0, "how many?" },
              { "H100x0", 0, 0, "number of GPUs" },
              { "H100x99999999999", 0, 0, "number of GPUs" },
              { "Z80x8", 0, 0, "no machine is called 'Z80'" },
              { "", 0, 0, "no machine is called ''" },
              { FIXTURE("plan/cluster.yaml"), 64, 8, NULL } };

static const struct {
    const char *text;
    int gpus, domain;
    const char *says;
} FILES[] = {
    { "{type: H100, gpus: 64}", 64, 8, NULL },
    { "{type: H100, gpus: 64, gpus_per_node: 4}", 64, 4, NULL },
    { "{type: GB200, gpus: 64, gpus_per_node: 8}", 64, 72, NULL },
    { "{type: H100, gpus: 64, domain: 32}", 64, 32, NULL },
    { "{type: H100}", 0, 0, "gpus must be a whole number" },
    { "{gpus: 64}", 0, 0, "the key type is missing" },
    { "{type: H100, gpus: 64, speed: 3}", 0, 0, "no key 'speed'" },
    { "{type: H100, gpus: 64, memory: lots}", 0, 0, "memory: 'lots' is not a size" },
    { "{type: H100, gpus: 64, memory: -3}", 0, 0, "memory must be more than 0" },
    { "{type: H100, gpus: 64, memory: [80GB]}", 0, 0, "memory must be a size, not" },
    { "{type: H100, gpus: 64, gemm_fraction: 70}", 0, 0, "shares of flops: at most 1" },
    { "{type: custom, gpus: 64}", 0, 0, "the key flops is missing" },
    { "{type: abacus, gpus: 64}", 0, 0, "no machine is called 'abacus'" },
    { "[H100, 64]", 0, 0, "a cluster file is a mapping" },
};

static const struct {
    const char *card;
    double tflops; /* 0: not in the table */
} CARDS[] = { { "NVIDIA H200", 989 },
              { "NVIDIA H100 80GB HBM3", 989 },
              { "NVIDIA H20", 148 },
              { "NVIDIA H20-3e", 148 },
              { "NVIDIA A100-SXM4-80GB", 312 },
              { "NVIDIA B200", 2250 },
              { "NVIDIA H100 PCIe", 0 },
              { "NVIDIA H100 NVL", 0 },
              { "CPU (AVX-512)", 0 },
              { "NVIDIA H2000", 0 },
              { "", 0 } };

static void told(const char *what, bool ok, const Cluster *c, int gpus, int domain, const char *says, const Err *err) {
    if (says) EXPECT(!ok && strstr(err->msg, says), "%s: '%s' is not said: %s", what, says, ok ? "accepted" : err->msg);
    else EXPECT(ok && c->gpus == gpus && c->gpu.domain == domain, "%s: %s", what, ok ? "other numbers" : err->msg);
}

int main(void) {
    for (size_t i = 0; i < COUNT(CARDS); i++) {
        const Machine *m = machine_card(CARDS[i].card);
        EXPECT(m ? m->flops == CARDS[i].tflops * 1e12 : CARDS[i].tflops == 0, "'%s' is taken for %s", CARDS[i].card,
               m ? m->name : "none in the table");
    }
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        double x = 0;
        Err err = { 0 };
        bool ok = size_parse(&x, SIZES[i].text, &err);
        EXPECT(ok == (SIZES[i].bytes >= 0) && (!ok || fabs(x / SIZES[i].bytes - 1) < 1e-12), "'%s': %g", SIZES[i].text,
               x);
    }
    for (size_t i = 0; i < COUNT(SPECS); i++) {
        Cluster c = { 0 };
        Err err = { 0 };
        bool ok = cluster_parse(&c, SPECS[i].spec, &mem, &err);
        told(SPECS[i].spec, ok, &c, SPECS[i].gpus, SPECS[i].domain, SPECS[i].says, &err);
    }
    for (size_t i = 0; i < COUNT(FILES); i++) {
        Cluster c = { 0 };
        Err err = { 0 };
        Json j;
        bool ok =
            yaml_parse(&j, FILES[i].text, strlen(FILES[i].text), &mem, &err) && cluster_from_json(&c, &j, &mem, &err);
        told(FILES[i].text, ok, &c, FILES[i].gpus, FILES[i].domain, FILES[i].says, &err);
    }
    double memory[2]; /* of a rank, of one and of four on this machine: they share it, as with thisx4 */
    for (int i = 0; i < 2; i++) {
        Cluster c = { 0 };
        Err err = { 0 };
        Json j;
        const char *text = i ? "{type: this, gpus: 4, gpus_per_node: 4, nvlink: 3GB/s}" : "{type: this, gpus: 1}";
        bool ok = yaml_parse(&j, text, strlen(text), &mem, &err) && cluster_from_json(&c, &j, &mem, &err);
        EXPECT(ok && (!i || c.gpu.nvlink == 3e9), "%s: %s", text, err.msg);
        memory[i] = c.gpu.memory;
    }
    EXPECT(memory[1] == memory[0] / 4, "four ranks of this machine have %g bytes each, one %g", memory[1], memory[0]);
    mem_free(&mem);
    return test_end();
}

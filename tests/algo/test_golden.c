/* test_golden.c - every case that verl's own code produced, to 1e-5, and that the comparison itself can fail. */
#include "base/file.h"
#include "cmd/verify/verify_algos.h"
#include "test.h"

int main(void) {
    Mem mem = { 0 };
    Buf text = { 0 }, out = { 0 };
    Err err = { { 0 } };
    Json file, back;
    VerifyAlgos r;
    if (!file_read(&text, FIXTURE("verl/algos.json"), &err) || !json_parse(&file, text.data, text.n, &mem, &err)) {
        EXPECT(false, "%s", err.msg);
        return test_end();
    }
    bool ok = verify_algos_json(&r, &out, &file, 1e-5, &mem, NULL, &err);
    EXPECT(ok, "%s", err.msg);
    EXPECT(r.cases == 10 + 56 + 7 + 4 + 1, "%d cases", r.cases);
    EXPECT(r.failed == 0, "%d of %d cases differ, most %s: %g", r.failed, r.cases, r.worst_case, r.worst);

    /* What was written has the same structure: verifying it again passes with next to no tolerance. */
    EXPECT(json_parse(&back, out.data, out.n, &mem, &err), "%s", err.msg);
    buf_clear(&text);
    EXPECT(verify_algos_json(&r, &text, &back, 1e-7, &mem, NULL, &err) && r.cases == 78 && r.failed == 0, "%s %s %g",
           err.msg, r.worst_case, r.worst);

    /* A wrong value is found. */
    Json *loss = (Json *)(uintptr_t)json_get(json_get(json_get(&file, "loss"), "gspo/token-mean"), "loss");
    loss->real += 1e-3;
    buf_clear(&out);
    EXPECT(verify_algos_json(&r, &out, &file, 1e-5, &mem, NULL, &err) && r.failed == 1
               && strstr(r.worst_case, "gspo/token-mean"),
           "%s", r.worst_case);

    static const struct {
        const char *text, *says;
    } bad[] = {
        { "{}", "inputs.mask" },
        { "{\"inputs\":{\"mask\":[[1,1],[1]]}}", "mask[1]" },
        { "{\"inputs\":{\"mask\":[[1,1]],\"log_prob\":[[1,\"x\"]]},\"kl\":{\"k1\":{}}}",
          "log_prob[0][1] is not a number" },
        { "{\"inputs\":{\"mask\":[[1]],\"log_prob\":[[1]],\"ref_log_prob\":[[1]]},\"kl\":{\"k9\":{}}}",
          "'k9' is not known" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        Json j;
        buf_clear(&out);
        ok = json_parse(&j, bad[i].text, strlen(bad[i].text), &mem, &err)
             && verify_algos_json(&r, &out, &j, 1e-5, &mem, NULL, &err);
        EXPECT(!ok && strstr(err.msg, bad[i].says), "%s: %s", bad[i].text, err.msg);
    }
    buf_free(&text);
    buf_free(&out);
    mem_free(&mem);
    return test_end();
}

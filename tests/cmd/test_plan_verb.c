/* test_plan_verb.c - `hone plan` and `hone sync-plan` as a user meets them: what is said, and the exit code. */
#include "cmd/cmd.h"
#include "base/file.h"
#include "test.h"

#include <unistd.h>

extern const Verb verb_plan, verb_sync_plan;

/* Runs a verb with both its outputs caught. */
static int run(const Verb *v, const char *line, Buf *said) {
    char copy[1024], *argv[64], path[] = "/tmp/hone-plan-XXXXXX";
    int argc = 0, fd = mkstemp(path), out = dup(1), err = dup(2);
    CHECK(fd >= 0, "no temporary file");
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) argv[argc++] = w;
    fflush(stdout), fflush(stderr);
    dup2(fd, 1), dup2(fd, 2);
    int rc = v->run(v, argc, argv);
    fflush(stdout), fflush(stderr);
    dup2(out, 1), dup2(err, 2);
    close(fd), close(out), close(err);
    Err e;
    buf_clear(said);
    CHECK(file_read(said, path, &e), "%s", e.msg);
    unlink(path);
    return rc;
}

#define V3        FIXTURE("configs/DeepSeek-V3.json ")
#define Q30       FIXTURE("configs/Qwen3-30B-A3B.json ")
#define Q235      FIXTURE("configs/Qwen3-235B-A22B.json ")
#define DAPO      " --kl --prompts 96 --answers 8 --mini 32 --mean 1960 --max 9632 --prompt-max 2048 "
#define PUBLISHED " --tp 8 --pp 12 --ep 8 --split last=6 --offload 1 --park --rollout-tp 32 --rollout-memory 0.6 "

static const struct {
    const Verb *v;
    const char *line;
    int rc;
    const char *says[3];
} CASES[] = {
    /* one GPU too few; too little host memory; unknown machine; a context of three million tokens */
    { &verb_plan,
      V3 "--cluster H20-96x95" DAPO "--tp 8 --pp 12 --ep 8",
      1,
      { "does not divide the 95 GPUs", "96 GPUs would do" } },
    { &verb_plan,
      V3 "--cluster H20-96x96 --host-memory 900GB --profile verl" DAPO PUBLISHED,
      1,
      { "host memory", "short by", "smallest change" } },
    { &verb_plan, V3 "--cluster H200-1TBx8" DAPO, 1, { "no machine is called 'H200-1TB'", "H20-96, H20-141" } },
    { &verb_plan, V3 "--cluster H20-96" DAPO, 1, { "how many?" } },
    /* GPUs that the backend is not built for: planned, and said */
    { &verb_plan,
      Q30 "--cluster A100-80x16 --tp 4 --etp 4 --rollout-tp 4",
      0,
      { "hone does not run there: its CUDA backend takes cards of capability 9.0 alone (H20-96, ", "A100-80 has 8.0",
        "fits" } },
    { &verb_plan, Q30 "--cluster B200x8 --json", 0, { "\"refused\":\"its CUDA backend takes", "B200 has 10.0" } },
    { &verb_plan,
      Q30 "--cluster GB200x16 --min-gpus",
      0,
      { "hone does not run there: ", "GB200 has 10.0", "without offload" } },
    { &verb_plan, Q30 "--cluster H100x16 --tp 4 --etp 4 --rollout-tp 4", 0, { "ep 1, etp 4", "expert dp 4", "fits" } },
    { &verb_plan, Q30 "--cluster H100x16 --tp 4 --rollout-tp 4", 1, { "expert dp 16", "short by" } },
    { &verb_plan,
      V3 "--cluster H20-96x96 --mean 1000 --max 3000000",
      1,
      { "3001024 tokens exceed the model's context of 163840" } },
    { &verb_plan, Q30 "--cluster H20-96x8 --mean 100 --max 30", 1, { "cannot all end by 30" } },
    { &verb_plan,
      V3 "--cluster H20-96x16" DAPO,
      1,
      { "nothing fits on 16 x H20-96", "the update of a rank needs", "short by" } },
    { &verb_plan, V3 "--cluster H20-96x96 --profile verl" DAPO PUBLISHED, 0, { "1791", "optimizer", "fits" } },
    { &verb_plan, V3 "--cluster H20-96x96 --search" DAPO PUBLISHED, 0, { " 1. ", "loses by", "slowest / mean" } },
    { &verb_plan,
      V3 "--cluster H20-96x64 --search --recipe recipes/deepseek-v3-96.yaml",
      0,
      { " 1. ", "given: cannot be had here: ", "fits: " } },
    /* checkpoints: bytes; seconds by the rate of the nodes' file system; a job that is told too late */
    { &verb_plan,
      V3 "--cluster H20-96x96" DAPO "--tp 8 --pp 6 --ep 16 --vpp 2 --offload 1 --rollout-tp 8 --rollout-ep 32",
      0,
      { "checkpoint: 8052.3 GB = weights 2684.1 + averages 5368.2; seconds: --storage" } },
    { &verb_plan,
      V3 "--recipe recipes/deepseek-v3-96.yaml --signal 960",
      0,
      { "at 10 GB/s a save takes 805 s, a resume 939 s", "trainer.save_buffer=0): an update waits 3.3 s",
        "ends after at most 889 s" } },
    { &verb_plan,
      V3 "--recipe recipes/deepseek-v3-96.yaml --signal 120",
      1,
      { "mistake: told 120 s before its end (--signal), the job is killed", "960 would do" } },
    { &verb_plan,
      V3 "--recipe recipes/deepseek-v3-96.yaml --host-memory 1TB --storage 5GB/s --signal 900 --json",
      1,
      { "\"save_seconds\":1610.4" } },
    { &verb_plan, V3 "--cluster H20-96x96 --signal 900" DAPO, 1, { "--storage 10GB/s" } },
    { &verb_plan, V3 "--cluster H20-96x96 --storage fast" DAPO, 1, { "--storage: 'fast' is not a size" } },
    { &verb_plan, V3 "--cluster H20-96x96 --min-gpus" DAPO, 0, { "without offload: ", "with offload: " } },
    { &verb_plan,
      Q235 "--cluster H20-96x32 --tp 4 --pp 8 --ep 4 --split last=6",
      1,
      { "leaves 88 layers for 7 stages", "does not divide" } },
    { &verb_plan,
      Q30 "--cluster H20-96x8 --profile verl --prompts 512 --answers 16 --mini 128 --mean 1180 --max 8192 --prompt-max "
          "2048 --ep 8 --recompute none "
          "--unfused-head --offload 1 --park --rollout-tp 4 --rollout-memory 0.7",
      1,
      { "update needs 111.8 GB", "short by 15.8 GB", "recompute" } },
    { &verb_plan, V3 "--cluster H20-96x96 --tp 3", 1, { "tp 3 does not divide the 128 attention heads" } },
    { &verb_plan, V3 "--cluster H20-96x96 --ep 7", 1, { "ep 7 does not divide the 256 experts" } },
    { &verb_plan, V3 "--cluster H20-96x96 --pp 12 --split 5x12", 1, { "holds 60 layers, the model has 61" } },
    { &verb_plan, V3 "--cluster H20-96x96 --profile ray", 1, { "there is no profile 'ray'" } },
    { &verb_plan, V3 "--cluster no/such/file.yaml", 1, { "no/such/file.yaml" } },
    { &verb_plan, "no/such/model --cluster H100x8", 1, { "no/such/model" } },
    { &verb_plan,
      FIXTURE("models/qwen3_moe/config.json") " --prompts 8 --mean 20 --max 60 --prompt-max 60 --prompt-mean 20",
      0,
      { "this machine", "fits" } },
    { &verb_sync_plan,
      V3 "--from tp8,pp12,ep8 --to tp32 --cluster H20-96x96",
      0,
      { "1342.1 GB", "peak buffer", "receives       43." } },
    { &verb_sync_plan,
      V3 "--from tp8,pp12,ep8 --to tp8,ep32 --cluster H20-96x96 --json",
      0,
      { "\"received_most\"", "\"seconds\"" } },
    { &verb_sync_plan,
      V3 "--from tp8,pp12,ep8 --to tp8,pp12,ep8 --cluster H20-96x96",
      0,
      { "nothing has to move", "receives        0.00 GB" } },
    { &verb_sync_plan, V3 "--from tp8,pp12,ep8", 1, { "--from and --to" } },
    { &verb_sync_plan, V3 "--from tp8,qq2 --to tp32", 1, { "not understood" } },
    { &verb_sync_plan, V3 "--from tp8,pp12,ep8 --to tp7 --cluster H20-96x96", 1, { "does not divide" } },
};

int main(void) {
    Buf said = { 0 };
    for (size_t i = 0; i < COUNT(CASES); i++) {
        int rc = run(CASES[i].v, CASES[i].line, &said);
        EXPECT(rc == CASES[i].rc, "%s: exit %d, want %d: %.300s", CASES[i].line, rc, CASES[i].rc, said.data);
        for (int k = 0; k < 3 && CASES[i].says[k]; k++)
            EXPECT(strstr(said.data, CASES[i].says[k]), "%s: does not say '%s': %.600s", CASES[i].line,
                   CASES[i].says[k], said.data);
    }
    /* --json of a plan parses, and has what it promises */
    EXPECT(run(&verb_plan, V3 "--cluster H20-96x96 --json" DAPO PUBLISHED, &said) == 0, "json: %s", said.data);
    Mem mem = { 0 };
    Err err = { 0 };
    Json j;
    EXPECT(json_parse(&j, said.data, said.n, &mem, &err), "json: %s", err.msg);
    const Json *stages = json_get(&j, "stages"),
               *up = stages && stages->n == 12 ? json_path(&stages->items[11], "memory.update") : NULL;
    EXPECT(up && json_get(up, "weights") && json_path(&j, "phases.rollout.bound_by")
               && json_path(&j, "phases.update.seconds"),
           "json: keys");
    mem_free(&mem);
    buf_free(&said);
    return test_end();
}

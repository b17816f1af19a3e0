#!/usr/bin/env python3
"""trl_grpo.py [avx2] [quick] [bars] [small|novice|large] [ROUNDS] - a whole GRPO step: hone beside TRL's GRPOTrainer, and what concerns hone's step by itself.

The same model (small: recipes/quickstart/model, 2 M parameters; large: bench/models/moe_29m.json with that vocabulary, 25 M), the
same sums, taught their format by a short `hone sft` so that answers differ in reward (novice: the small model taught for a third as long, so
that few groups are all right and skipped; as answers end only), 16 questions with 8 answers, one update, float32, no
KL, two threads each.  Answers of exactly 64 tokens (the end token is ignored; nobody pads): the figure to quote is that of the large model.  Then, but
for "bars", answers that end where the model ends them, at most 64 tokens (the peer pads to the longest).  A turn is a short run of hone
without its first two steps, then a step of TRL's (the first two are not counted), whose experts are eager or grouped and whose malloc is one of three, as is quickest.
The reward is verl's gsm8k rule in both.  Then: the share of hone's step outside rollout, scoring and update, and resident
memory after step 2 and step 500 of a tiny run."""
import json, os, random, re, shutil, statistics, subprocess, sys, time, warnings
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side

QUESTIONS, ANSWERS, LENGTH = 16, 8, 64
TMP = os.path.join(side.TMP, "hone-bench-grpo")
SIZES = {"small": "2 M", "novice": "2 M (novice)", "large": "25 M"}
NUMBER = re.compile(r"#### (\-?[0-9\.\,]+)")


def make_model(size):
    """The folder with config and tokenizer, then a random checkpoint of it."""
    source = os.path.join(TMP, size + "-config")
    shutil.copytree(os.path.join(side.ROOT, "recipes", "quickstart", "model"), source, dirs_exist_ok=True)
    if size == "large":
        small = json.load(open(os.path.join(source, "config.json")))
        big = json.load(open(os.path.join(side.ROOT, "bench", "models", "moe_29m.json")))
        for key in ("vocab_size", "eos_token_id", "pad_token_id"):
            big[key] = small[key]
        json.dump(big, open(os.path.join(source, "config.json"), "w"))
    random_model, taught = side.model(source, os.path.join(TMP, size)), os.path.join(TMP, size + "-taught")
    if not os.path.exists(os.path.join(taught, "config.json")):
        pairs, run = os.path.join(TMP, "pairs.jsonl"), os.path.join(TMP, "sft")
        with open(pairs, "w") as f:
            for r in sums(8192):
                f.write(json.dumps({"prompt": r["prompt"], "response": "#### " + r["reward_model"]["ground_truth"]}) + "\n")
        shutil.rmtree(run, ignore_errors=True)
        subprocess.run([side.HONE, "sft", "model.path=" + random_model, "data.train_files=[%s]" % pairs, "sft.batch_size=64",
                        "sft.max_length=64", "train.lr=1e-3", "trainer.steps=%d" % (40 if size == "novice" else 120), "trainer.run_dir=" + run, "trainer.threads=%d" % side.THREADS], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([side.HONE, "export", run, taught], check=True, stdout=subprocess.DEVNULL)
    return taught


def sums(n):
    r = random.Random(1)
    for _ in range(n):
        a, b = r.randrange(10), r.randrange(10)
        yield {"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": "%d+%d" % (a, b)}], "reward_model": {"ground_truth": str(a + b)}}


def hone_run(folder, data, name, steps, fixed, *more):
    run = os.path.join(TMP, name)
    shutil.rmtree(run, ignore_errors=True)
    settings = {
        "model.path": folder, "data.train_files": "[%s]" % data, "data.train_batch_size": QUESTIONS, "data.max_prompt_length": 32,
        "data.max_response_length": LENGTH, "rollout.n": ANSWERS, "rollout.ignore_eos": "true" if fixed else "false", "rollout.max_batch": QUESTIONS * ANSWERS,
        "train.lr": "1e-6", "trainer.steps": steps, "trainer.run_dir": run, "trainer.save_every": 0, "trainer.val_every": 0,
        "trainer.threads": side.THREADS,
    }
    settings.update(s.split("=", 1) for s in more)
    subprocess.run([side.HONE, "train", *("%s=%s" % kv for kv in settings.items())], check=True, stdout=subprocess.DEVNULL)
    return list(map(json.loads, open(os.path.join(run, "metrics.jsonl"))))


def peer(folder, data, fixed, experts):
    """TRL's trainer; every step waits for a line and is answered by its time."""
    tell = side.channel()
    warnings.filterwarnings("ignore")
    import dataclasses, torch, transformers, trl
    from datasets import Dataset
    torch.set_num_threads(side.THREADS)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    rows = map(json.loads, open(data))
    dataset = Dataset.from_list([{"prompt": r["prompt"], "truth": r["reward_model"]["ground_truth"]} for r in rows])

    def gsm8k(completions, truth, **_):
        out = []
        for c, t in zip(completions, truth):
            found = NUMBER.findall(c[0]["content"])
            out.append(1.0 if found and found[-1].replace(",", "").replace("$", "") == t else 0.0)
        return out

    class Turns(transformers.TrainerCallback):
        length = 0

        def on_train_begin(self, *_, **__):
            tell(torch=torch.__version__, transformers=transformers.__version__, trl=trl.__version__, set=torch.backends.cpu.get_cpu_capability())

        def on_step_begin(self, *_, **__):
            if not sys.stdin.readline():
                os._exit(0)
            self.t0, self.c0 = time.perf_counter(), time.process_time()

        def on_step_end(self, *_, **__):
            tell(seconds=time.perf_counter() - self.t0, cpu=time.process_time() - self.c0, length=self.length)

        def on_log(self, *_, logs, **__):       # after the step: the length of the answers before
            self.length = float(logs.get("completions/mean_length", self.length))

    wanted = {
        "output_dir": os.path.join(TMP, "trl"), "per_device_train_batch_size": QUESTIONS * ANSWERS, "num_generations": ANSWERS,
        "max_prompt_length": 32, "max_completion_length": LENGTH, "learning_rate": 1e-6, "beta": 0.0,
        "num_iterations": 1, "temperature": 1.0, "top_p": 1.0, "bf16": False, "fp16": False, "use_cpu": True, "gradient_checkpointing": False,
        "report_to": "none", "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True, "optim": "adamw_torch_fused", "max_steps": 240,
        "router_aux_loss_coef": 0.0, "generation_kwargs": {"min_new_tokens": LENGTH} if fixed else {}, "dataloader_num_workers": 0, "use_vllm": False, "remove_unused_columns": False,
    }
    fields = {f.name for f in dataclasses.fields(trl.GRPOConfig)}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, experts_implementation=experts)
    args = trl.GRPOConfig(**{k: v for k, v in wanted.items() if k in fields})
    trl.GRPOTrainer(model=model, args=args, reward_funcs=gsm8k, train_dataset=dataset, processing_class=transformers.AutoTokenizer.from_pretrained(folder), callbacks=[Turns()]).train()


def side_by_side(size, rounds, fixed):
    folder, data = make_model(size), os.path.join(TMP, "sums.jsonl")
    with open(data, "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in sums(4096))

    def trial(p):
        for _ in range(side.rounds(2)):
            p.ask("step")
        return statistics.median(side.seconds(p.ask("step")) for _ in range(side.rounds(3)))
    start = lambda experts, malloc: side.Peer(__file__, folder, data, int(fixed), experts, env=side.surroundings(malloc))
    # which experts: for each model; which malloc: that of the small model's steps is kept for the large one
    experts, _ = side.best("GRPO %s, experts" % size, ["grouped_mm", "eager"], lambda e: start(e, "glibc"), trial, go_on=False)
    malloc, p = side.best("GRPO, malloc", list(side.MALLOCS), lambda m: start(experts, m), trial)
    print("  torch %(torch)s with %(set)s, transformers %(transformers)s, trl %(trl)s" % p.told, flush=True)
    for _ in range(side.rounds(2)):
        p.ask("step")
    steps, ours, theirs, got, lengths = 3 if size == "large" else 6, [], [], [], []
    for _ in range(rounds):
        before = os.times()
        run = hone_run(folder, data, "run", steps, fixed)
        after = os.times()      # the whole program, its start included
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        ours.append(side.seconds({"seconds": statistics.median(m["timing_s/step"] for m in run[2:]), "cpu": cpu / steps}))
        got += run[2:]
        turn = p.ask("step")
        theirs.append(side.seconds(turn)), lengths.append(turn["length"])
    p.close()
    mean = lambda key: statistics.mean(m[key] for m in got)
    print("  hone's rewards: mean %.3f, gradient norm %.4f, largest difference of log-probs %g" % (
        mean("critic/score/mean"), got[-1]["actor/grad_norm"], max(m["exact/max_abs_logprob_diff"] for m in got)))
    print("  hone's step: " + ", ".join("%s %.4f" % (k.split("/")[1], statistics.median(m.get(k, 0) for m in got)) for k in (
        "timing_s/gen", "timing_s/reward", "timing_s/adv", "timing_s/update_actor", "timing_s/other")))
    side.row("GRPO step, %s, answers of %.1f tokens (TRL %.1f), %.0f %% silent" % (SIZES[size], mean("response_length/mean"), statistics.mean(lengths), 100 * mean("perf/silent_ratio")),
             ours, theirs, "s", 4 if size == "large" else 5, "TRL, %s, %s" % (experts, malloc))
    print("outside rollout, scoring and update: %.2f %% of a step (bar 3 %%)" % (100 * statistics.median(m["timing_s/other"] / m["timing_s/step"] for m in got)))
    return folder, data


def memory(folder, data):
    got = hone_run(folder, data, "long", 500, False, "data.train_batch_size=4", "rollout.n=4", "data.max_response_length=16", "rollout.max_batch=16", "train.micro_tokens=1024")
    kb = {n: got[n - 1]["perf/cpu_memory_used_gb"] for n in (1, 2, 3, 10, 100, 500)}
    print("resident memory, GB, by step: " + ", ".join("%d: %.4f" % x for x in kb.items()))


def main():
    if sys.argv[1:2] == ["peer"]:
        return peer(*sys.argv[2:4], sys.argv[4] == "1", sys.argv[5])
    os.makedirs(TMP, exist_ok=True)
    bars, size = side.taken("bars"), sys.argv[1] if len(sys.argv) > 1 else "small"
    rounds = side.rounds(int(sys.argv[2]) if len(sys.argv) > 2 else 5)
    side.heading()
    for fixed in (False,) if size == "novice" else (True,) if bars else (True, False):
        folder, data = side_by_side(size, rounds, fixed)
    if size == "small" and not bars:
        memory(folder, data)


main()

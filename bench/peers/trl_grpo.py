#!/usr/bin/env python3
"""trl_grpo.py [small|novice|large] [ROUNDS] [STEPS] - a whole GRPO step: hone beside TRL's GRPOTrainer, and what concerns hone's step by itself.

The same model (small: recipes/quickstart/model; large: bench/models/moe_29m.json with that vocabulary, 25 M parameters), the
same sums, taught their format by a short `hone sft` so that answers differ in reward (novice: the small model taught for a third as long, so
that few groups are all right and skipped; as answers end only), 16 questions with 8 answers, one update, float32, no
KL, two threads each.  Twice: answers that end where the model ends them, at most 64 tokens, as in any run (the peer pads to the
longest); and of exactly 64 tokens (the end token is ignored), the peer's best case, in which nobody pads.  Rounds take turns: some steps of hone, some of TRL.  Each first two steps are not counted.
The reward is verl's gsm8k rule in both.  Then: the share of hone's step outside rollout, scoring and update, and resident
memory after step 2 and step 500 of a tiny run."""
import contextlib, io, json, os, random, re, shutil, statistics, subprocess, sys, tempfile, time, warnings
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side

QUESTIONS, ANSWERS, LENGTH, STEPS = 16, 8, 64, 6
TMP = os.path.join(tempfile.gettempdir(), "hone-bench-grpo")
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
        subprocess.run([os.path.join(side.BUILD, "hone"), "sft", "model.path=" + random_model, "data.train_files=[%s]" % pairs, "sft.batch_size=64",
                        "sft.max_length=64", "train.lr=1e-3", "trainer.steps=%d" % (40 if size == "novice" else 120), "trainer.run_dir=" + run, "trainer.threads=%d" % side.THREADS], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([os.path.join(side.BUILD, "hone"), "export", run, taught], check=True, stdout=subprocess.DEVNULL)
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
    subprocess.run([os.path.join(side.BUILD, "hone"), "train", *("%s=%s" % kv for kv in settings.items())], check=True, stdout=subprocess.DEVNULL)
    return list(map(json.loads, open(os.path.join(run, "metrics.jsonl"))))


def make_trl(folder, rows, fixed):
    side.two_threads()
    warnings.filterwarnings("ignore")
    import dataclasses, torch, transformers, trl
    from datasets import Dataset
    torch.set_num_threads(side.THREADS)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print("torch %s, transformers %s, trl %s" % (torch.__version__, transformers.__version__, trl.__version__), flush=True)
    data = Dataset.from_list([{"prompt": r["prompt"], "truth": r["reward_model"]["ground_truth"]} for r in rows])

    def gsm8k(completions, truth, **_):
        out = []
        for c, t in zip(completions, truth):
            found = NUMBER.findall(c[0]["content"])
            out.append(1.0 if found and found[-1].replace(",", "").replace("$", "") == t else 0.0)
        return out

    class Clock(transformers.TrainerCallback):
        def __init__(self):
            self.seconds = []

        def on_step_begin(self, *_, **__):
            self.t0, self.c0 = time.perf_counter(), time.process_time()

        def on_step_end(self, *_, **__):
            self.seconds.append((time.perf_counter() - self.t0, time.process_time() - self.c0))

    wanted = {
        "output_dir": os.path.join(TMP, "trl"), "per_device_train_batch_size": QUESTIONS * ANSWERS, "num_generations": ANSWERS,
        "max_prompt_length": 32, "max_completion_length": LENGTH, "learning_rate": 1e-6, "beta": 0.0,
        "num_iterations": 1, "temperature": 1.0, "top_p": 1.0, "bf16": False, "fp16": False, "use_cpu": True, "gradient_checkpointing": False,
        "report_to": "none", "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True, "optim": "adamw_torch_fused",
        "router_aux_loss_coef": 0.0, "generation_kwargs": {"min_new_tokens": LENGTH} if fixed else {}, "dataloader_num_workers": 0, "use_vllm": False, "remove_unused_columns": False,
    }
    fields = {f.name for f in dataclasses.fields(trl.GRPOConfig)}

    def steps(experts, count):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, experts_implementation=experts)
        tok = transformers.AutoTokenizer.from_pretrained(folder)
        clock = Clock()
        args = trl.GRPOConfig(**{k: v for k, v in wanted.items() if k in fields}, max_steps=count)
        trainer = trl.GRPOTrainer(model=model, args=args, reward_funcs=gsm8k, train_dataset=data, processing_class=tok, callbacks=[clock])
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train()
        lengths = [h["completions/mean_length"] for h in trainer.state.log_history if "completions/mean_length" in h]
        return clock.seconds[2:], lengths
    trial = {e: steps(e, 3)[0][0][1] for e in ("eager", "grouped_mm")}
    print("TRL's third step, processor seconds: " + ", ".join("%s experts %.2f" % x for x in trial.items()), flush=True)
    best = min(trial, key=trial.get)
    return lambda: steps(best, STEPS)


def side_by_side(size, rounds, fixed):
    folder, data = make_model(size), os.path.join(TMP, "sums.jsonl")
    rows = list(sums(4096))
    with open(data, "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    trl_steps = make_trl(folder, rows, fixed)
    ours, other, theirs, parts, cpu = [], [], [], {}, 0
    for _ in range(rounds):
        before = os.times()
        got = hone_run(folder, data, "run", 5 * STEPS, fixed)[2:]
        after = os.times()      # the whole program, its start included
        cpu += after.children_user + after.children_system - before.children_user - before.children_system
        ours += [m["timing_s/step"] for m in got]
        other += [m["timing_s/other"] / m["timing_s/step"] for m in got]
        for k in ("timing_s/gen", "timing_s/reward", "timing_s/adv", "timing_s/update_actor", "timing_s/other"):
            parts.setdefault(k, []).extend(m.get(k, 0) for m in got)
        seconds, lengths = trl_steps()
        theirs += seconds
    print("hone's silent answers: %.0f %%" % (100 * statistics.mean(m["perf/silent_ratio"] for m in got)))
    print("hone's rewards: mean %.3f, gradient norm %.4f, largest difference of log-probs %g" % (
        statistics.mean(m["critic/score/mean"] for m in got), got[-1]["actor/grad_norm"], max(m["exact/max_abs_logprob_diff"] for m in got)))
    print("tokens in an answer: hone %.1f, TRL %.1f" % (statistics.mean(m["response_length/mean"] for m in got), statistics.mean(lengths or [0])))
    print("hone's step: " + ", ".join("%s %.4f" % (k.split("/")[1], statistics.median(v)) for k, v in parts.items()))
    mine, peer = cpu / (rounds * 5 * STEPS), statistics.median(c for _, c in theirs)
    theirs = [t for t, _ in theirs]
    print("hone s/step: %s\nTRL  s/step: %s" % (side.spread(ours), side.spread(theirs)))
    print("processor seconds a step: hone %.3f, TRL %.3f: %.2f x" % (mine, peer, peer / mine))
    side.verdict("GRPO step, %s model, answers %s" % (size, "of 64 tokens" if fixed else "as they end"), statistics.median(theirs) / statistics.median(ours), 5)
    print("outside rollout, scoring and update: %.2f %% of a step (bar 3 %%)" % (100 * statistics.median(other)))
    return folder, data


def memory(folder, data):
    got = hone_run(folder, data, "long", 500, False, "data.train_batch_size=4", "rollout.n=4", "data.max_response_length=16", "rollout.max_batch=16", "train.micro_tokens=1024")
    kb = {n: got[n - 1]["perf/cpu_memory_used_gb"] for n in (1, 2, 3, 10, 100, 500)}
    print("resident memory, GB, by step: " + ", ".join("%d: %.4f" % x for x in kb.items()))


def main():
    os.makedirs(TMP, exist_ok=True)
    size = sys.argv[1] if len(sys.argv) > 1 else "small"
    global STEPS
    STEPS = int(sys.argv[3]) if len(sys.argv) > 3 else STEPS
    side.load_note()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    for fixed in (False,) if size == "novice" else (False, True):
        folder, data = side_by_side(size, rounds, fixed)
    if size == "small":
        memory(folder, data)


main()

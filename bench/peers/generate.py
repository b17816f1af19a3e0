#!/usr/bin/env python3
"""generate.py [avx2] [quick] [ROUNDS] - 8 answers of 64 tokens to each of 4 prompts of 512 tokens: hone beside a transformers loop that shares the prefill.

100 M Qwen2, float32, two threads each, in turns.  transformers reads each prompt once, gives its keys and values to 8 sequences, and decodes
all 32 at once, drawing from the softmax; the head is taken of the last position only.  hone's time is its engine's, drawing and
log-probs included.  The malloc is the best of three, and layers are compiled where that is quicker."""
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side

PROMPTS, LENGTH, ANSWERS, TOKENS, VOCAB = 4, 512, 8, 64, 32000


def peer(folder, how):
    import torch, transformers
    torch.set_num_threads(side.THREADS)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    m = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    if how == "compiled":
        for layer in m.model.layers:
            layer.compile(dynamic=True)
    ids = torch.tensor(side.tokens(PROMPTS * LENGTH, VOCAB)).view(PROMPTS, LENGTH)

    def draw(logits):
        return torch.multinomial(torch.softmax(logits[:, -1], dim=-1), 1)

    @torch.inference_mode()
    def answers(words):
        cache, n = transformers.DynamicCache(config=m.config), int(words[1])
        logits = m(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        cache.batch_repeat_interleave(ANSWERS)
        t = draw(logits.repeat_interleave(ANSWERS, dim=0))
        for _ in range(n - 1):
            t = draw(m(input_ids=t, past_key_values=cache, use_cache=True, logits_to_keep=1).logits)
    side.serve(answers, torch=torch.__version__, transformers=transformers.__version__, set=torch.backends.cpu.get_cpu_capability())


def main():
    if sys.argv[1:2] == ["peer"]:
        return peer(*sys.argv[2:4])
    rounds = side.rounds(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    side.heading()
    folder, n = side.model(os.path.join(side.ROOT, "bench", "models", "dense_100m.json"), os.path.join(side.TMP, "hone-bench-dense")), 4 if side.QUICK else TOKENS
    start = lambda how: side.Peer(__file__, folder, how.split()[0], env=side.surroundings(how.split()[-1]))
    trial = lambda p: (p.ask("answers", 4), side.seconds(p.ask("answers", n // 2)))[1]
    how, p = side.best("generate", ["plain " + m for m in side.MALLOCS] + ["compiled glibc"], start, trial)
    print("  torch %(torch)s with %(set)s, transformers %(transformers)s" % p.told)
    hone = side.Hone("bench_decode", folder, side.THREADS, PROMPTS * ANSWERS, LENGTH + TOKENS)
    hone.ask("answers", PROMPTS, LENGTH, ANSWERS, n)
    ours, theirs = zip(*((hone.ask("answers", PROMPTS, LENGTH, ANSWERS, n), p.ask("answers", n)) for _ in range(rounds)))
    hone.close(), p.close()
    print("  rows that hone computed: %d" % ours[-1]["rows"])
    side.row("generate, 100 M, n = 8, %d prompts of %d, %d tokens" % (PROMPTS, LENGTH, n), list(map(side.seconds, ours)), list(map(side.seconds, theirs)), "s", 2.5, "transformers, " + how)


main()

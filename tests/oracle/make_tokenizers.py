#!/usr/bin/env python3
"""make_tokenizers.py OUT - small tokenizers that between them use every supported piece, and what the reference libraries
make of some texts with each of them.  pip install tokenizers tiktoken

OUT/NAME/ gets the tokenizer's files and cases.jsonl, a line being
{"text", "special", "bos", "ids", "decoded", "skipped"}: special tokens recognised or not, post-processor applied or not, the ids, and their text with
and without special tokens."""
import base64, json, os, random, sys
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers as N, pre_tokenizers as P, processors, trainers

TEXT = """The quick brown fox jumps over the lazy dog. It's 12345 o'clock; they'll say WE'RE done! http://example.org/a_b?c=1
def f(x):\n    return x**2 + 3*x - 1  # code\n\tif (a && b || !c) { arr[i] += 0x1F; }\r\n\r\n  trailing   spaces   \n\n\n
Der Fluß über Äpfel, naïve café résumé, ÀÉÎÕÜ, Ελληνικά και Ρωσικά: Привет, мир! Съешь ещё этих мягких булок.
中文字符和日本語のテキスト、ひらがなカタカナ。한국어 텍스트도 있습니다. हिन्दी पाठ और देवनागरी. نص عربي ١٢٣. עברית. ไทย ภาษา
emoji 😀👍🏽👨‍👩‍👧 ❤️ ½ ² ³ Ⅷ ① ﬁ ﬀ Ａ１ ™ … — “quotes” ‘single’ €5.00 £3 ¥ ∑∫√ a\u0301 e\u0308 n\u0303 q\u0323\u0307 \u1e9b\u0323 İstanbul ſ K
"""
CASES = [
    "", " ", "  ", "\n", "\n\n \t x", "Hello, world!", " leading", "trailing ", "a  b   c", "It's they'LL WE'RE o'clock 'S", "x'\u017f I'\u212a",
    "12345 1 22 333 4444 ½²Ⅷ", "def f(x):\n    return x**2\n", "tabs\tand\r\nlines\r\n\r\nend", "über naïve café ÀÉÎÕÜ", "a\u0301e\u0308q\u0323\u0307\u1e9b\u0323",
    "中文字符和日本語のテキスト。", "한국어 각\u11a8 \u1100\u1161\u11a8", "हिन्दी पाठ", "نص عربي ١٢٣", "😀👍🏽👨‍👩‍👧 ❤️", "ﬁﬀＡ１™ …", "İSTANBUL ſK",
    "<s>hi</s> there <s>", "<|sp|>user\nhi<|end|>", "x<|sp|>y <|sp|> z", "foo <mask> bar<mask>baz  <mask>  end", "a WORD b WORDS cWORD WORD", "Ünder ünder Under",
    "\u00a0nbsp\u2003em\u3000wide\u180e\u200b", "snake_case CamelCase mixedUPPERlower", "!!!???...,,,", "▁under▁score", "ĠtĊ bytes Ã©", "\x00\x01\x7f", "a" * 70, "ab" * 40,
    " x y  z\u00e9\U0001f600 ", "\U0001f1e9\U0001f1ea\U00020000\U0010ffff", "don't 'tis 'twas rock'n'roll", "A\u0300\u0301 \u0958 \u212b \uf900", "<0x41><0x0A>", "E\u0301\U00011a34\u1df7\u0323 \U00011935\U00011930a\u1df7\u0301",
]
SP = dict(single_word=False, lstrip=False, rstrip=False, normalized=False)


def byte_model(extra=90, **kw):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = P.ByteLevel(add_prefix_space=False)
    t.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=256 + extra, initial_alphabet=sorted(P.ByteLevel.alphabet()), show_progress=False))
    return rebuild(t, **kw)


def char_model(size=260, pre=None, norm=None, tokens=(), **kw):
    t = Tokenizer(models.BPE(**{k: v for k, v in kw.items() if "subword" in k or "suffix" in k}))
    if pre:
        t.pre_tokenizer = pre
    if norm:
        t.normalizer = norm
    ascii_text = TEXT[:330]                          # the rest of TEXT has characters that this vocabulary lacks
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(tokens), show_progress=False,
                                  **{k: v for k, v in kw.items() if "subword" in k or "suffix" in k})
    t.train_from_iterator([ascii_text] * 2, trainer)
    j = json.loads(t.to_str())
    j["added_tokens"] = []
    j["model"].update({k: v for k, v in kw.items() if "subword" not in k and "suffix" not in k})
    return Tokenizer.from_str(json.dumps(j))


def rebuild(t, **kw):
    j = json.loads(t.to_str())
    j["model"].update(kw)
    j["pre_tokenizer"] = None
    return Tokenizer.from_str(json.dumps(j))


def edit(t, **kw):
    j = json.loads(t.to_str())
    for k, v in kw.items():
        j[k] = v(j[k]) if callable(v) else v
    return Tokenizer.from_str(json.dumps(j)), j


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KIMI = "|".join([r"[\p{Han}]+", r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def specials(t, names=("<|sp|>", "<|end|>")):
    t.add_special_tokens([AddedToken(n, **SP) for n in names])
    return t


def split_bytes(pattern, **kw):
    t = byte_model(**kw)
    t.pre_tokenizer = P.Sequence([P.Split(Regex(pattern), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return specials(t)


def llama3():
    t = split_bytes(LLAMA3, ignore_merges=True)
    bos = t.token_to_id("<|sp|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            processors.TemplateProcessing(single="<|sp|> $A <|end|>", special_tokens=[("<|sp|>", bos), ("<|end|>", t.token_to_id("<|end|>"))])])
    return t


def gpt2():
    t = byte_model()
    t.pre_tokenizer, t.decoder, t.post_processor = P.ByteLevel(add_prefix_space=True), decoders.ByteLevel(), processors.ByteLevel(trim_offsets=True)
    return specials(t)


def bytes_vocab(tokens=("<unk>", "<s>", "</s>")):
    return list(tokens) + ["<0x%02X>" % i for i in range(256)]


def llama2(pre=None, decoder=None, norm=True):
    n = N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]) if norm else None
    t = char_model(480, pre, n, bytes_vocab(), byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    t.normalizer, t.pre_tokenizer = n or N.Sequence([]), pre
    if n is None:
        t, _ = edit(t, normalizer=None)
    t.add_special_tokens([AddedToken(s, **SP) for s in ("<unk>", "<s>", "</s>")])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    t.decoder = decoder or decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t


def metaspace(scheme, split, model=None):
    return lambda: llama2(P.Metaspace("▁", scheme, split), decoders.Metaspace("▁", scheme, split), norm=False)


def old_metaspace():
    t = llama2(P.Metaspace("▁", "always"), decoders.Metaspace("▁", "always"), norm=False)
    return edit(t, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
                decoder={"type": "Metaspace", "replacement": "▁", "add_prefix_space": True})


def added():
    t = byte_model()
    t.normalizer, t.decoder = N.Lowercase(), decoders.ByteLevel()
    t.pre_tokenizer = P.ByteLevel(add_prefix_space=False)
    t.add_special_tokens([AddedToken("<|sp|>", **SP), AddedToken("<mask>", lstrip=True, rstrip=False, normalized=False), AddedToken("<s>", rstrip=True, normalized=False)])
    t.add_tokens([AddedToken("WORD", single_word=True, normalized=False), AddedToken("Ünder", normalized=True), AddedToken("there", single_word=True, lstrip=True, rstrip=True),
                  AddedToken("<|end|>", normalized=True), AddedToken("he", normalized=False), AddedToken("hello", normalized=False)])
    return t


def normal(n, **kw):
    def make():
        t = char_model(240, None, None, ("<unk>",), unk_token="<unk>", **kw)
        t.normalizer = n
        t.decoder = decoders.Fuse()
        return t
    return make


def pre(p, **kw):
    def make():
        t = char_model(240, p, None, ("<unk>",), unk_token="<unk>", **kw)
        t.pre_tokenizer = p
        return t
    return make


def affixes():
    t = char_model(300, P.WhitespaceSplit(), None, ("<unk>",), unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>", byte_fallback=True)
    return t


def decoder(d):
    def make():
        t = llama2()
        t.decoder = d
        return t
    return make


def mapped_first():            # ByteLevel, and then a step that sees its characters
    t = byte_model()
    t.pre_tokenizer = P.Sequence([P.ByteLevel(add_prefix_space=True), P.Split("Ġ", "merged_with_next")])
    t.decoder = decoders.ByteLevel()
    return t


D = decoders
MADE = {
    "llama3": llama3, "gpt2": gpt2, "llama2": llama2, "kimi_json": lambda: split_bytes(KIMI), "added": added,
    "metaspace_first": metaspace("first", True), "metaspace_never": metaspace("never", False), "metaspace_old": old_metaspace,
    "nfc": normal(N.NFC()), "nfd": normal(N.NFD()), "nfkc": normal(N.NFKC(), fuse_unk=True), "nfkd": normal(N.Sequence([N.NFKD(), N.Lowercase()])),
    "accents": normal(N.Sequence([N.NFD(), N.StripAccents(), N.Strip()])), "strip_right": normal(N.Sequence([N.Strip(left=False), N.Replace(Regex(r"\s+"), " "), N.Replace("o", "00")])),
    "prepend": normal(N.Sequence([N.Strip(left=True, right=False), N.Prepend("x y"), N.Replace(Regex(r"[^a-z ]"), "")])),
    "split_removed": pre(P.Split(Regex(r"[\s,.]+"), "removed")), "split_isolated": pre(P.Split(Regex(r"[aeiou]|\d+"), "isolated", invert=True)),
    "split_previous": pre(P.Split(Regex(r"[\s.,!]"), "merged_with_previous")), "split_next": pre(P.Split(Regex(r"\p{Lu}|\s"), "merged_with_next")),
    "split_contiguous": pre(P.Split(" ", "contiguous"), fuse_unk=True), "split_odd": pre(P.Split(Regex(r"(?<=[a-z])(?=[A-Z])|\s+?|\bo|^d|;$"), "isolated")),
    "digits": pre(P.Sequence([P.Digits(False), P.Punctuation("contiguous")])), "digits_each": pre(P.Sequence([P.WhitespaceSplit(), P.Digits(True), P.Punctuation("merged_with_previous")])),
    "whitespace": pre(P.Sequence([P.Whitespace(), P.Punctuation("removed")])), "affixes": affixes, "mapped_first": mapped_first,
    "decoder_strip": decoder(D.Sequence([D.Strip("▁", 1, 0), D.ByteFallback(), D.Fuse(), D.Replace(Regex("[ae]+"), "_"), D.Strip("_", 0, 2)])),
}


def both(t, ids):
    try:
        return {"ids": ids, "decoded": t.decode(ids, skip_special_tokens=False), "skipped": t.decode(ids, skip_special_tokens=True)}
    except BaseException as e:             # the decoder Strip of the reference panics on an empty token
        assert "PanicException" in str(type(e))
        return {"ids": ids}


def hf_cases(t, texts):
    for text in texts:
        for special in (False, True):
            for bos in (False, True) if t.post_processor else (False,):
                t.encode_special_tokens = not special
                yield {"text": text, "special": special, "bos": bos, **both(t, t.encode(text, add_special_tokens=bos).ids)}


def decode_cases(t, n, seed):
    r = random.Random(seed)
    for _ in range(n):
        yield both(t, [r.randrange(t.get_vocab_size() + 3) for _ in range(r.randrange(1, 12))])


def thin(cases):                       # --special and --bos matter for few texts
    seen = set()
    for c in cases:
        key = (c.get("text"), c["bos"] if "bos" in c else None, tuple(c["ids"]))
        if key not in seen:
            seen.add(key)
            yield c


def write(out, name, files, cases):
    d = os.path.join(out, name)
    os.makedirs(d, exist_ok=True)
    for f, text in files.items():
        with open(os.path.join(d, f), "w") as o:
            o.write(text)
    with open(os.path.join(d, "cases.jsonl"), "w") as o:
        for c in cases:
            o.write(json.dumps(c, ensure_ascii=False).replace("\x7f", "\\u007f") + "\n")


def merges_of(j):
    return j["model"]["merges"]


def tiktoken_ranks(extra):
    """BPE merges of TEXT as tiktoken counts them: a token's rank is its id."""
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in printable]
    chars = {**{chr(b): b for b in printable}, **{chr(256 + i): b for i, b in enumerate(rest)}}
    ranks = {bytes([b]): b for b in range(256)}
    for a, b in merges_of(json.loads(byte_model(extra).to_str())):
        ranks.setdefault(bytes(chars[c] for c in a + b), len(ranks))
    return ranks


def moonlight():
    ranks = tiktoken_ranks(120)
    base = len(ranks)
    named = {base: "[BOS]", base + 1: "[EOS]", base + 2: "<|sp|>", base + 5: "<|end|>"}
    special = {named.get(i, f"<|reserved_token_{i}|>"): i for i in range(base, base + 258)}
    enc = tiktoken.Encoding("fixture", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=special)
    config = {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {str(i): {"content": c, "special": True, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False} for i, c in named.items()}}
    files = {"tiktoken.model": "".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()), "tokenizer_config.json": json.dumps(config)}
    back = {i: s for s, i in special.items()}

    def cases(texts):
        for text in list(texts) + ["[BOS]x<|reserved_token_%d|>[EOS]" % (base + 3)]:
            for sp in (False, True):
                ids = enc.encode(text, allowed_special="all") if sp else enc.encode(text, disallowed_special=())
                yield {"text": text, "special": sp, "bos": False, "ids": ids, "decoded": enc.decode(ids), "skipped": enc.decode([i for i in ids if i not in back])}
        r = random.Random(7)
        for _ in range(30):
            ids = [r.randrange(base + 258) for _ in range(8)]
            yield {"ids": ids, "decoded": enc.decode(ids), "skipped": enc.decode([i for i in ids if i not in back])}
    return files, cases


def vocab_merges(class_name):
    t = byte_model()
    t.decoder = decoders.ByteLevel()
    if class_name.startswith("Qwen2"):
        t.normalizer = N.NFC()
        t.pre_tokenizer = P.Sequence([P.Split(Regex(QWEN), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        t.pre_tokenizer = P.ByteLevel(add_prefix_space=False)
    j = json.loads(t.to_str())
    specials(t)
    dec = {str(t.token_to_id(s)): {"content": s, "special": True, **SP} for s in ("<|sp|>", "<|end|>")}
    files = {"vocab.json": json.dumps(j["model"]["vocab"], ensure_ascii=False), "merges.txt": "#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in merges_of(j)),
             "tokenizer_config.json": json.dumps({"tokenizer_class": class_name, "added_tokens_decoder": dec})}
    return files, t


def all_tokenizers():
    """name -> (files, a function from texts to cases)"""
    for name, make in MADE.items():
        t = make()
        t, j = t if isinstance(t, tuple) else (t, json.loads(t.to_str()))
        if name == "gpt2":                                        # the older spelling of merges
            j["model"]["merges"] = [" ".join(m) for m in j["model"]["merges"]]
        seed = sum(map(ord, name))
        yield name, {"tokenizer.json": json.dumps(j, ensure_ascii=False)}, lambda texts, t=t, seed=seed: list(hf_cases(t, texts)) + list(decode_cases(t, 20, seed))
    files, cases = moonlight()
    yield "tiktoken", files, lambda texts: list(cases(texts))
    for name, c in (("vocab_gpt2", "GPT2Tokenizer"), ("vocab_qwen2", "Qwen2TokenizerFast")):
        files, t = vocab_merges(c)
        yield name, files, lambda texts, t=t: list(hf_cases(t, texts)) + list(decode_cases(t, 20, 3))


if __name__ == "__main__":
    for name, files, cases in all_tokenizers():
        write(sys.argv[1], name, files, thin(cases(CASES)))

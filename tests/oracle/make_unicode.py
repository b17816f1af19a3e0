#!/usr/bin/env python3
"""make_unicode.py - asks Hugging Face tokenizers (pip install tokenizers) about every code point and writes what it
says as sorted ranges into src/text/unicode_data.inc.  The library holds several versions of Unicode at once (its regular
expressions 16, its punctuation 8, ...): equal ids need the classes that it uses, not those of one version."""
import sys, ctypes, ctypes.util, unicodedata
import tokenizers
from tokenizers import Regex, pre_tokenizers as P, normalizers as N

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CHUNKS = [ALL[i:i + 4096] for i in range(0, len(ALL), 4096)]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()


def members(pattern):
    keep = P.Split(Regex(pattern), "removed", invert=True)
    return {ord(c) for k in CHUNKS for piece, _ in keep.pre_tokenize_str("".join(map(chr, k))) for c in piece}


def alone(pre):                    # the characters that are cut off from letters on both sides
    return {ord(p) for k in CHUNKS for p, _ in pre.pre_tokenize_str("a".join(map(chr, k))) if len(p) == 1 and p != "a"}


def ranges(s):
    out = []
    for c in sorted(s):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def put(f, name, rows):
    kind = "UnicodeTagged" if rows and len(rows[0]) > 2 else "UnicodeRange"
    f.write(f"static const {kind} {name}[] = {{\n")
    line = "   "
    for r in rows:
        t = " { %s }," % ", ".join(hex(x) if i < 2 else str(x) for i, x in enumerate(r))
        if len(line) + len(t) > 130:
            f.write(line + "\n")
            line = "   "
        line += t
    f.write(line + "\n};\n")


def main():
    cat = {}
    for name in CATEGORIES:
        for c in members(r"\p{%s}" % name):
            cat[c] = name
    rows = []
    for c in sorted(cat):
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == "UC_" + cat[c].upper():
            rows[-1][1] = c
        else:
            rows.append([c, c, "UC_" + cat[c].upper()])
    word = {c for c in ALL if len(P.Whitespace().pre_tokenize_str("a" + chr(c) + "a")) == 1}
    strip = N.StripAccents()
    marks = {c for c in ALL if strip.normalize_str(chr(c)) == ""}
    u8 = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
    low = N.Lowercase()
    lower = []
    for c in ALL:
        v = low.normalize_str(chr(c))
        if len(v) == 1 and ord(v) != u8.utf8proc_tolower(c):
            d = ord(v) - c
            if lower and lower[-1][1] == c - 1 and lower[-1][2] == d:
                lower[-1][1] = c
            else:
                lower.append([c, c, d])
    nfd, nfkd = N.NFD(), N.NFKD()
    assert unicodedata.unidata_version == "14.0.0"   # of Python 3.11, and of PCRE2 10.40 to 10.42
    plain = {c for c in ALL if nfd.normalize_str(chr(c)) == chr(c) != unicodedata.normalize("NFD", chr(c))}
    kplain = {c for c in ALL if nfkd.normalize_str(chr(c)) == chr(c) != unicodedata.normalize("NFKD", chr(c))}
    with open(sys.argv[1], "w") as f:
        f.write("/* unicode_data.inc - made by tests/oracle/make_unicode.py from tokenizers %s; do not edit. */\n"
                "/* clang-format off */\n" % tokenizers.__version__)
        put(f, "categories", rows)
        put(f, "han", ranges(members(r"\p{Han}")))
        put(f, "onig_word", ranges(members(r"\w")))
        put(f, "rust_word", ranges(word))
        put(f, "rust_numeric", ranges(alone(P.Digits(True))))
        put(f, "punctuation", ranges(alone(P.Punctuation())))
        put(f, "accents", ranges(marks))
        put(f, "lower_beyond", lower)
        put(f, "since_14", ranges({c for c in cat if unicodedata.category(chr(c)) == "Cn"}))
        put(f, "never_decomposed", ranges(plain | kplain))
        f.write("/* clang-format on */\n")


main()

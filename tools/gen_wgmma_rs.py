"""gen_wgmma_rs.py - writes the wgmma_rs overloads of src/op/cuda/sm90/attn_mma.cuh: one per width, because the instruction names every register.
usage: gen_wgmma_rs.py > overloads"""


def rows(words, width):
    out, line = [], ""
    for w in words:
        if len(line) + len(w) > width:
            out.append(line.rstrip())
            line = ""
        line += w
    return out + [line.rstrip()]


for n in (64, 128, 192, 256):
    d = n // 2
    names = ["%%%d%s" % (i, ", " if i < d - 1 else "") for i in range(d)]
    outs = ['"+f"(d[%d])%s' % (i, ", " if i < d - 1 else "") for i in range(d)]
    print("DEV void wgmma_rs(float (&d)[%d], const uint32_t *a, uint64_t b) {" % d)
    print('    asm volatile("wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {"' % n)
    for r in range(0, d, 16):
        print('                 "%s"' % "".join(names[r : r + 16]))
    print('                 "}, {%%%d, %%%d, %%%d, %%%d}, %%%d, 1, 1, 1, 1;"\n                 :' % tuple(range(d, d + 5)))
    for line in rows(outs, 98):
        print("                   " + line)
    print('                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));\n}')

/* parquet_value.c - one value's bytes become Json: numbers as they are, what JSON has no kind for as text that sorts
 * and reads as people write it.  No value can be wrong here; a date beyond year 9999 is written with more digits. */
#include "file/parquet_in.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static Json text(Mem *mem, const char *s) {
    size_t n = strlen(s);
    return (Json){ .kind = JSON_STRING, .n = n, .str = mem_str(mem, s, n) };
}

/* Days since 1970-01-01 to a date, proleptic Gregorian (by 400-year eras that begin on 1
 * March: then leap days are last). */
static void put_date(char *out, size_t size, int64_t days) {
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153, d = doy - (153 * mp + 2) / 5 + 1, m = mp < 10 ? mp + 3 : mp - 9;
    int64_t y = yoe + era * 400 + (m <= 2);
    snprintf(out, size, "%s%04" PRId64 "-%02" PRId64 "-%02" PRId64, y < 0 ? "-" : "", y < 0 ? -y : y, m, d);
}

/* Time of day with 'digits' of fraction in 'units' of 10^-digits seconds; no fraction is written when it is zero. */
static void put_clock(char *out, size_t size, int64_t units, int digits) {
    int64_t per = digits == 9 ? 1000000000 : digits == 6 ? 1000000 : 1000;
    int64_t s = units / per, frac = units % per;
    int n = snprintf(out, size, "%02" PRId64 ":%02" PRId64 ":%02" PRId64, s / 3600, s / 60 % 60, s % 60);
    if (frac && n > 0 && (size_t)n < size) snprintf(out + n, size - (size_t)n, ".%0*" PRId64, digits, frac);
}

static Json stamp(Mem *mem, int64_t days, int64_t units, int digits, bool utc) {
    char date[40], clock[40], both[96];
    put_date(date, sizeof date, days);
    put_clock(clock, sizeof clock, units, digits);
    snprintf(both, sizeof both, "%sT%s%s", date, clock, utc ? "Z" : "");
    return text(mem, both);
}

static Json stamp_of(Mem *mem, const PqNode *leaf, int64_t v) {
    int64_t day = 86400 * (leaf->digits == 9 ? 1000000000LL : leaf->digits == 6 ? 1000000LL : 1000LL);
    int64_t days = v / day, rest = v % day;
    if (rest < 0) rest += day, days--;
    return stamp(mem, days, rest, leaf->digits, leaf->utc);
}

/* A big-endian two's complement number of any length, in decimal, with the point 'scale' digits from the right:
 * division of the whole by 10^9, again and again (lengths are 16 bytes in practice, so n^2 is nothing). */
static Json decimal(Mem *mem, const uint8_t *p, size_t n, int scale) {
    enum { MAX_BYTES = 256 };
    if (n > MAX_BYTES)
        return (Json){ .kind = JSON_STRING, .flag = true, .n = n, .str = mem_str(mem, (const char *)p, n) };
    uint32_t limb[MAX_BYTES / 4 + 1] = { 0 };
    bool minus = n && (p[0] & 128);
    uint32_t carry = minus;
    size_t limbs = (n + 3) / 4;
    for (size_t i = 0; i < n; i++) {
        uint32_t v = (uint32_t)(uint8_t)(minus ? ~p[n - 1 - i] : p[n - 1 - i]) + carry;
        carry = v >> 8;
        limb[i / 4] |= (v & 255) << 8 * (i % 4);
    }
    if (carry && n % 4 == 0) limb[limbs++] = 1;
    else if (carry) limb[n / 4] |= 1u << 8 * (n % 4);
    char digits[MAX_BYTES * 3 + 16];
    int nd = 0;
    while (limbs && !limb[limbs - 1]) limbs--;
    while (limbs) {
        uint64_t r = 0;
        for (size_t i = limbs; i-- > 0;) {
            r = r << 32 | limb[i];
            limb[i] = (uint32_t)(r / 1000000000u);
            r %= 1000000000u;
        }
        for (int k = 0; k < 9; k++, r /= 10) digits[nd++] = (char)('0' + r % 10);
        while (limbs && !limb[limbs - 1]) limbs--;
    }
    while (nd && digits[nd - 1] == '0') nd--;
    Buf b = { 0 };
    if (minus) buf_putc(&b, '-');
    for (int k = nd > scale + 1 ? nd - 1 : scale; k >= 0; k--) {
        buf_putc(&b, k < nd ? digits[k] : '0');
        if (k == scale && k > 0) buf_putc(&b, '.');
    }
    Json v = text(mem, b.data);
    buf_free(&b);
    return v;
}

static double half(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (m ? __builtin_nan("") : __builtin_inf())
               : e     ? __builtin_ldexp(1024 + m, e - 25)
                       : __builtin_ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

static Json uuid(Mem *mem, const uint8_t *p) {
    char t[40];
    int n = 0;
    for (int i = 0; i < 16; i++)
        n += snprintf(t + n, sizeof t - (size_t)n, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", p[i]);
    return text(mem, t);
}

Json pq_value(const PqNode *leaf, const uint8_t *p, Mem *mem) {
    int64_t v = 0;
    int32_t i32;
    if (leaf->type == PQ_INT32) memcpy(&i32, p, 4), v = i32;
    if (leaf->type == PQ_INT64) memcpy(&v, p, 8);
    switch (leaf->as) {
    case PQ_AS_BOOL: return (Json){ .kind = JSON_BOOL, .flag = p[0] != 0 };
    case PQ_AS_INT: return (Json){ .kind = JSON_INT, .integer = v };
    case PQ_AS_UINT:
        if (leaf->type == PQ_INT32) v = (uint32_t)v;
        return json_uint((uint64_t)v);
    case PQ_AS_REAL: {
        float f;
        double d;
        if (leaf->type == PQ_FLOAT) memcpy(&f, p, 4), d = (double)f;
        else memcpy(&d, p, 8);
        return (Json){ .kind = JSON_REAL, .real = d };
    }
    case PQ_AS_HALF: return (Json){ .kind = JSON_REAL, .real = half((uint16_t)(p[0] | p[1] << 8)) };
    case PQ_AS_DECIMAL: {
        uint8_t big[8];
        for (int i = 0; i < 8; i++) big[i] = (uint8_t)(v >> 8 * (7 - i));
        bool whole = leaf->type == PQ_INT32 || leaf->type == PQ_INT64;
        return decimal(mem, whole ? big : p, whole ? 8 : (size_t)leaf->width, leaf->scale);
    }
    case PQ_AS_DATE: {
        char t[40];
        put_date(t, sizeof t, v);
        return text(mem, t);
    }
    case PQ_AS_TIME: {
        char t[40];
        if (v < 0) return (Json){ .kind = JSON_INT, .integer = v };
        put_clock(t, sizeof t, v, leaf->digits);
        return text(mem, t);
    }
    case PQ_AS_STAMP:
        if (leaf->type == PQ_INT96) { /* nanoseconds of the day, then the Julian day */
            uint32_t julian;
            uint64_t ns;
            memcpy(&ns, p, 8);
            memcpy(&julian, p + 8, 4);
            int64_t more = (int64_t)(ns / 86400000000000u);
            return stamp(mem, (int64_t)julian - 2440588 + more, (int64_t)(ns % 86400000000000u), 9, false);
        }
        return stamp_of(mem, leaf, v);
    case PQ_AS_UUID: return uuid(mem, p);
    case PQ_AS_NULL: return (Json){ .kind = JSON_NULL };
    case PQ_AS_TEXT:
    case PQ_AS_BYTES: break;
    }
    size_t n = (size_t)leaf->width;
    Json s = { .kind = JSON_STRING, .n = n, .str = mem_str(mem, (const char *)p, n) };
    s.flag = leaf->as == PQ_AS_BYTES || !utf8_valid(s.str, n);
    return s;
}

/* mathx_units.c - words behind a number that are units, under one name each.  Two answers whose units are both known
 * and differ are not the same; a unit on one side only is not asked for. */
#include "maths/mathx.h"

/* clang-format off */
static const char *const units[][7] = {
    { "cm", "centimeter", "centimeters", "centimetre", "centimetres" },
    { "mm", "millimeter", "millimeters", "millimetres" },
    { "km", "kilometer", "kilometers", "kilometre", "kilometres" }, { "m", "meter", "meters", "metre", "metres" },
    { "in", "inch", "inches" }, { "ft", "foot", "feet" }, { "yd", "yard", "yards" }, { "mi", "mile", "miles" },
    { "kg", "kilogram", "kilograms" }, { "g", "gram", "grams" }, { "mg", "milligrams" },
    { "lb", "lbs", "pound", "pounds" }, { "oz", "ounce", "ounces" }, { "l", "liter", "liters", "litre", "litres" },
    { "ml", "milliliter", "milliliters" }, { "s", "sec", "second", "seconds", "secs" },
    { "min", "minute", "minutes", "mins" }, { "h", "hr", "hour", "hours", "hrs" }, { "day", "days" },
    { "week", "weeks" }, { "month", "months" }, { "year", "years", "yr", "yrs" }, { "mph" }, { "kph", "kmh" },
    { "degree", "degrees", "deg" }, { "dollar", "dollars", "usd" }, { "cent", "cents" }, { "radian", "radians", "rad" },
    { "unit", "units", "sq", "square", "cubic", "per", "cu" },
};
/* clang-format on */

bool mx_is_unit(Span word, Span *canonical) {
    size_t space = span_rfind(word, SPAN(" ")); /* "square feet": the last word counts */
    if (space != SIZE_MAX) {
        Span first = { word.at, span_find(word, 0, SPAN(" ")) }, unused;
        if (!mx_is_unit(first, &unused)) return false;
        word = span_from(word, space + 1);
    }
    for (size_t i = 0; i < COUNT(units); i++)
        for (size_t k = 0; k < COUNT(units[i]) && units[i][k]; k++)
            if (span_eq(word, span_of(units[i][k]))) {
                *canonical = span_of(units[i][0]);
                return true;
            }
    return false;
}

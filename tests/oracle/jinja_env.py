"""jinja_env.py - Jinja2 set up the way transformers sets it up for chat templates (written from its documented behaviour).
Needs: pip install jinja2."""
import copy
import datetime
import json

import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}: the text passes through, as the body of a call block."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_through"), [], [], body).set_lineno(line)

    def _through(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(template, args):
    """{"text": ...} or {"error": "Type: message"}"""
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    now = datetime.datetime.fromisoformat(args["now"]) if "now" in args else datetime.datetime.now()
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: now.strftime(fmt)
    try:
        return {"text": env.from_string(template).render(**copy.deepcopy(args))}   # indent of a list changes it
    except Exception as e:
        return {"error": "%s: %s" % (type(e).__name__, e)}

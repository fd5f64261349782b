#!/usr/bin/env python3
"""Writes testdata/templates/: what Python's jinja2, set up by `transformers`, makes of chat templates.

  features.json  small templates of our own, each with its render or a note that jinja2 refuses.
  renders.json   for each template of models/templates (tools/models/fetch_vocabs.py) and each conversation: length in
                 bytes and FNV-1a hash of the render, or null where jinja2 refuses. The templates are their makers' and are
                 not committed.
  conversations.json  the conversations.

Usage: template_goldens.py [--show TEMPLATE CONVERSATION]   (the latter prints one render)
"""

import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils as utils

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "testdata" / "templates"
NOW = datetime.datetime(2024, 7, 26, 12, 34, 56)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


utils.datetime = Clock

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather <now> & here", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Name of the city, e.g. Z\u00fcrich"},
        "days": {"type": "integer", "default": 1}, "units": {"type": "string", "enum": ["C", "F"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "description": "Adds", "parameters": {"type": "object", "properties": {
        "a": {"type": "number"}, "b": {"type": ["number", "null"], "minimum": -1.5}}, "required": ["a", "b"]}}},
]
CALLS = [{"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Z\u00fcrich", "days": 2}}}]
CONVERSATIONS = {
    "system": {"messages": [{"role": "system", "content": "You are terse. "}, {"role": "user", "content": "  What's 'up' \"<now>\" & \u4f60\u597d \U0001f999?\n"}]},
    "turns": {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "1+1?"},
              {"role": "assistant", "content": "2"}, {"role": "user", "content": "Sure?"}]},
    "tools": {"messages": [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Weather in Z\u00fcrich?"},
              {"role": "assistant", "content": "", "tool_calls": CALLS}, {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"temp\": 21.5}"},
              {"role": "assistant", "content": "21.5 degrees."}, {"role": "user", "content": "And tomorrow?"}], "tools": TOOLS},
    "reasoning": {"messages": [{"role": "user", "content": "Think."}, {"role": "assistant", "reasoning_content": "Let me see.\nYes.", "content": "Done."},
                  {"role": "user", "content": "Again."}], "extra": {"enable_thinking": True}},
    "empty": {"messages": []},
}

FEATURES = [
    "{{ messages[0].content.strip() }}|{{ messages[0]['content'].upper() }}|{{ messages[0].role.startswith('sys') }}",
    "{% for m in messages %}{% if loop.first %}F{% endif %}{{ loop.index0 }}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}",
    "  {% if true %}\n  a\n  {% endif %}\nb {%- if true %} c{% endif -%}  d\n",
    "{% for m in messages %}\n  {%- if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% macro f(x, y='z') %}<{{ x }}{{ y }}>{% endmacro %}{{ f(1) }}{{ f('a', y=2) }}",
    "{{ data | tojson }}", "{{ data | tojson(indent=2) }}", "{{ data | tojson(ensure_ascii=True, sort_keys=true) }}", "{{ data | tojson(separators=(',', ':')) }}",
    "{{ [] | tojson(indent=4) }}{{ {} | tojson(indent=4) }}{{ [[], {}] | tojson(indent=1) }}",
    "{{ data }}", "{{ data.list }}|{{ data.list | string }}|{{ true }} {{ none }} {{ 1.0 }} {{ 1e20 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 8 }} {{ -7 % 3 }}",
    "{{ 'it\\'s' }} {{ ['it\\'s', 'a\"b', 'n\\n'] }}", "{{ data.text | trim | length }} {{ data.text | upper | replace('A', 'b') }}",
    "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %y %p %I') }}|{{ strftime_now('%-d %-m %%') }}",
    "{{ raise_exception('no way') }}", "{% if messages|length > 99 %}{{ raise_exception('x') }}{% endif %}ok",
    "{% for k, v in data.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in data %}{{ k }};{% endfor %}{{ 'a' in data }} {{ 'zz' not in data }}",
    "{{ data.get('nope', 'dflt') }} {{ data.get('nope') is none }} {{ data.keys() | list }}", "{{ nope }}|{{ nope is defined }}|{{ data.nope is not defined }}", "{{ nope.deeper }}", "{{ nope + 'a' }}", "{% for x in nope %}{{ x }}{% endfor %}.",
    "{{ 'a,b,c'.split(',') }} {{ 'a-b-c'.split('-')[-1] }} {{ '  x '.lstrip() }}| {{ 'xx'.rstrip('x') }}| {{ 'abc'[::-1] }} {{ 'abc'[1:] }}",
    "{{ messages | map(attribute='role') | join('+') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'eq', 'user') | first | tojson }}",
    "{{ messages[1:] | length }} {{ messages[-1].role }} {{ (messages | last).role }} {{ messages[::2] | length }}",
    "{{ 'a' ~ 1 ~ none }} {{ 'x' * 3 }} {{ 'a{}b'.format(1) }}", "{{ '%s-%d' % ('a', 3) }}", "{{ 1 if false }}|{{ 1 if false else 2 }}",
    "{% generation %}a{% endgeneration %}|{%- generation -%}  b  {%- endgeneration %}\nc {% generation %}\nd\n{% endgeneration %}\n",
    "{{ data.text is string }} {{ data is mapping }} {{ data.list is iterable }} {{ data.list is sequence }} {{ 1 is number }} {{ true is boolean }} {{ none is none }}",
    "{{ data.list | sort }} {{ data.list | reverse | list }} {{ data.list | unique | list }} {{ [3,1]|max }} {{ data | dictsort }}", "{{ range(3) | list }} {{ range(1, 10, 4) | list }} {{ dict(a=1) }}",
    "{% set x %}cap{{ 1 }}{% endset %}{{ x }}", "{% filter upper %}abc{% endfilter %}", "{% raw %}{{ x }}{% endraw %}{# no #}", "{{ '\\u00e9' }} {{ 'Z\u00fcrich' | tojson }} {{ '</x>&\\'' | tojson }}",
    "{% call(x) f2() %}{{ x }}{% endcall %}", "{% for a in [1,2] recursive %}{{ a }}{% endfor %}", "{% for a in [1,2,3] if a > 1 %}{{ loop.previtem }}{{ a }}{{ loop.nextitem }}{% else %}none{% endfor %}",
    "{{ 'a' if messages else 'b' }}{{ not messages }}{{ messages and 1 }}{{ none or 'x' }}", "{{ 'ab' in 'cabd' }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1] == [1] }}",
    "{{ messages[0].content | default('d') }}{{ nope | default('d') }}{{ '' | default('e', true) }}", "{{ data.list[0] }}{{ data['list'][5] }}", "{{ 3 | int + 2 }} {{ '4' | int }} {{ 2.5 | round }} {{ -3 | abs }} {{ '1.5' | float }}",
    "{{ 'Hello World'.title() }} {{ 'a\nb'.splitlines() }} {{ 'abc'.find('c') }} {{ 'aXbX'.replace('X', '-', 1) }} {{ 'x'.join(['a','b']) }} {{ 'q'.isdigit() }} {{ 'abcabc'.count('b') }} {{ 'abc'.endswith('c') }} {{ 'pre-x'.removeprefix('pre-') }}",
    "{% if data.list is not none and data.list %}{{ data.list | first }}{% elif false %}{% else %}{% endif %}", "{{ {'a': 1, 'b': [true, none]} }} {{ ('a', 1) }} {{ [1.5, 'x'] | join(', ') }}", "{{ data.text[:3] }} {{ data.text | indent(2) }} {{ data.text | capitalize }} {{ 'x y' | title }} {{ 'a b' | wordcount }}",
]
DATA = {"text": " a\u00e9\n<b> ", "list": [3, "x", None, True, 1.5], "nested": {"k": {"z": [], "a": {}}, "n": 12345678901234567890, "f": 1e-7, "g": 1e16, "h": 0.1, "i": -0.0}, "quote": "it's \"q\" \\ \t\u0001\u007f\U0001f999"}
FEATURES = [f for f in FEATURES if "data.list | sort" not in f] + ["{{ [3,1,2] | sort }} {{ [3,1,3] | unique | list }} {{ [3,1] | max }} {{ [1,2] | reverse | list }} {{ {'b':1,'a':2} | dictsort }}"]


def render(source, conversation, **more):
    """The render, or None with the reason where jinja2 refuses."""
    try:
        template = utils._compile_jinja_template(source)
        messages = utils._alias_reasoning_fields(utils._normalize_chat_messages(conversation["messages"]))
        return template.render(messages=messages, tools=conversation.get("tools"), documents=None, add_generation_prompt=True,
                               bos_token="<s>", eos_token="</s>", **conversation.get("extra", {}), **more), None
    except Exception as e:  # every refusal counts alike
        return None, f"{type(e).__name__}: {e}"


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def templates():
    return sorted((ROOT / "models" / "templates").glob("*.jinja"))


def main():
    if sys.argv[1:2] == ["--show"]:
        print(render((ROOT / "models" / "templates" / sys.argv[2]).read_text(encoding="utf-8"), CONVERSATIONS[sys.argv[3]]))
        return
    renders = {}
    for path in templates():
        source = path.read_text(encoding="utf-8")
        row = {}
        for name, conversation in CONVERSATIONS.items():
            text, _ = render(source, conversation)
            row[name] = None if text is None else [len(text.encode()), fnv(text.encode())]
        renders[path.stem] = row
    features = []
    for source in FEATURES:
        text, why = render(source, CONVERSATIONS["system"], data=DATA)
        features.append({"template": source, "render": text} if why is None else {"template": source, "refused": why})
    OUT.mkdir(parents=True, exist_ok=True)
    for name, value in [("renders", renders), ("features", {"data": DATA, "cases": features}), ("conversations", CONVERSATIONS)]:
        indent = None if name == "renders" else 1
        text = json.dumps(value, indent=indent, ensure_ascii=True)
        if indent is None:
            text = text.replace("}, ", "},\n")
        (OUT / f"{name}.json").write_text(text + "\n")
    n = sum(v is not None for row in renders.values() for v in row.values())
    print(f"{len(renders)} templates, {n} renders, {len(renders) * len(CONVERSATIONS) - n} refusals, {len(features)} features")


if __name__ == "__main__":
    main()

"""Whole chat templates in the manner of the families, written for chat_oracle.py."""

CHATML = r"""{% for message in messages %}{% if loop.first and message['role'] != 'system' %}{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

INST = r"""{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}{% endif %}{% for message in rest %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must take turns: user, assistant, user ...') }}{% endif %}{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

HEADERS = r"""{%- set loop_messages = messages -%}
{%- for message in loop_messages -%}
    {%- set content = '<|header|>' + message['role'] + '<|/header|>\n\n' + message['content'] | trim + '<|eot|>' -%}
    {%- if loop.index0 == 0 -%}
        {%- set content = bos_token + content -%}
    {%- endif -%}
    {{- content -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|header|>assistant<|/header|>\n\n' -}}
{%- endif -%}
"""

HEADERS_TOOLS = r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user is defined %}
    {%- set tools_in_user = true %}
{%- endif %}
{%- if not date is defined %}
    {%- if strftime_now is defined %}
        {%- set date = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message goes first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|header|>system<|/header|>\n\n" }}
{%- if tools is not none %}
    {{- "Tools: on\n" }}
{%- endif %}
{{- "Today: " + date + "\n\n" }}
{%- if tools is not none and not tools_in_user %}
    {{- "Call one with {\"name\": ..., \"parameters\": ...}.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system }}
{{- "<|eot|>" }}
{%- if tools_in_user and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("There is no user message for the tools to go into") }}
    {%- endif %}
    {{- '<|header|>user<|/header|>\n\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first + "<|eot|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|header|>' + message['role'] + '<|/header|>\n\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time!") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|header|>assistant<|/header|>\n\n' -}}
        {{- '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|header|>ipython<|/header|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|header|>assistant<|/header|>\n\n' }}
{%- endif %}
"""

INST_TOOLS = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system = messages[0]["content"] %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set users = rest | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in rest %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("user and assistant must take turns, message " ~ loop.index0) }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == users[-1]) %}
            {{- "[TOOLS][" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system is defined %}
            {{- "[INST]" + system + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[CALLS][" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function|tojson %}
            {{- out[:-1] }}
            {%- if not call.id is defined or call.id|length != 9 %}
                {{- raise_exception("The id of a call has 9 characters!") }}
            {%- endif %}
            {{- ', "id": "' + call.id + '"}' }}
            {{- ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[RESULT]{"content": ' + content|string + "}[/RESULT]" }}
    {%- else %}
        {{- raise_exception("Unknown role " + message["role"]) }}
    {%- endif %}
{%- endfor %}
"""

CHATML_TOOLS = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(seeking=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.seeking and message.role == "user" and message.content is string and not(message.content.startswith('<result>') and message.content.endswith('</result>')) %}
        {%- set ns.seeking = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or thoughts) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if call.function %}
                    {%- set call = call.function %}
                {%- endif %}
                {{- '<call>\n{"name": "' }}
                {{- call.name }}
                {{- '", "arguments": ' }}
                {%- if call.arguments is string %}
                    {{- call.arguments }}
                {%- else %}
                    {{- call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<result>\n' + content + '\n</result>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

TYPES = r"""{%- macro type_of(spec) -%}
    {%- set names = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} -%}
    {%- if names[spec.type] is defined -%}
        {{- names[spec.type] -}}
    {%- elif spec.type == "array" -%}
        {{- "list[" + type_of(spec["items"]) + "]" if "items" in spec else "list" -}}
    {%- elif spec.type == "object" -%}
        {{- "dict" -}}
    {%- elif spec.type is iterable -%}
        {{- "Union[" -}}
        {%- for t in spec.type -%}{{- type_of({"type": t}) -}}{{- "," if not loop.last -}}{%- endfor -%}
        {{- "]" -}}
    {%- else -%}
        {{- "Any" -}}
    {%- endif -%}
{%- endmacro -%}
{{- bos_token }}<|im_start|>system
Functions: {% for tool in tools %}
    {%- set tool = tool.function if tool.function is defined else tool %}
{{ tool.name }}(
    {%- for name, spec in tool.parameters.properties.items() -%}
        {{ name }}: {{ type_of(spec) }}
        {%- if name not in tool.parameters.required %} = None{% endif %}
        {%- if not loop.last %}, {% endif %}
    {%- endfor %}) - {{ tool.description|trim|capitalize }}
{%- endfor %}
<|im_end|>
{% for message in messages %}
    {%- if message.role in ["user", "system"] or (message.role == "assistant" and not message.tool_calls) %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
    {%- elif message.role == "assistant" %}
<|im_start|>assistant
        {%- for call in message.tool_calls %}
<call>
{{ {"name": call.function.name, "arguments": call.function.arguments}|tojson }}
</call>
        {%- endfor %}<|im_end|>
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}
<|im_start|>tool
        {%- endif %}
<answer name={{ message.name|tojson }}>
{{ message.content }}
</answer>
        {%- if not loop.last and loop.nextitem.role != "tool" or loop.last %}<|im_end|>
        {%- endif %}
    {%- endif %}

{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TURNS = r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('There is no system role') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<turn>' + role + '\n' + message['content'] | trim + '</turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<turn>model\n'}}{% endif %}"""

MARKED = r"""{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|assistant|>\n' }}
        {%- generation %}
            {{- message.content + eos_token }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- '<|' ~ message.role ~ '|>\n' ~ message.content ~ '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %}"""

PARTS = r"""{% for message in messages %}<|{{ message.role | upper }}|>{% if message.content is string %}{{ message.content }}{% elif message.content is iterable %}{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% elif part['type'] in ('image', 'image_url') %}<image>{% else %}{{ raise_exception('Unknown part ' ~ part.type) }}{% endif %}{% endfor %}{% endif %}
{% endfor %}{{ '<|ASSISTANT|>' if add_generation_prompt }}"""

EFFORT = r"""{%- set effort = reasoning_effort | default("medium") %}
{%- if xml_tools or python_tools %}{% set has_tools = true %}{% else %}{% set has_tools = false %}{% endif %}
{%- set head -%}
Effort: {{ effort | title }}; tools: {{ "yes" if has_tools else "no" }}; documents: {{ documents | default([], true) | length }}
{%- endset -%}
{{ head }}
{% for d in (documents or []) | sort(attribute='title') %}
[{{ loop.index }}] {{ d.title }}: {{ d.text | replace('\n', ' ') | trim }}
{% endfor %}
{% for role, group in {"user": messages | selectattr("role", "eq", "user") | list, "assistant": messages | rejectattr("role", "eq", "user") | list}.items() %}
{{ role }}: {% for m in group %}{{ m.content | trim }}{% if not loop.last %} / {% endif %}{% else %}-{% endfor %}

{% endfor %}
{{- messages | map(attribute="role") | unique | join(",") }}"""

TEMPLATES = {
    "chatml": CHATML, "inst": INST, "headers": HEADERS, "headers_tools": HEADERS_TOOLS,
    "inst_tools": INST_TOOLS, "chatml_tools": CHATML_TOOLS, "types": TYPES, "turns": TURNS,
    "marked": MARKED, "parts": PARTS, "effort": EFFORT,
}

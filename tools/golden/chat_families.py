"""Templates with the features of published families; all of them were written for this file.

Each has what its family's template does: the marks round turns, where the system message and the
tools go, what happens to thinking, and the Jinja that it takes. The words and many marks are others.
"""

# ChatML: a default system message; with tools and thinking; Hermes' tools; Kimi's two loops.
QWEN_TOOLS = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- else %}{{- 'Help.' }}{%- endif %}
    {{- "\n\n# Functions\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools>\nAnswer {\"name\": NAME} in <call></call>.<|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}{{- '<|im_start|>system\nHelp.<|im_end|>\n' }}{%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\n<call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}{{- tool_call.arguments | tojson }}{{- '}\n</call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<result>\n' }}{{- message.content }}{{- '\n</result>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""

KIMI = r"""{%- macro say(content) -%}
{%- if content is string -%}{{ content }}{%- else -%}{%- for part in content or [] -%}{{ part.text if part.type == 'text' else '<|media|>' }}{%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- macro mark(message) -%}
{%- if message.role == 'user' -%}<|user|>{{ message.get('name', 'user') }}<|mid|>{%- elif message.role == 'assistant' -%}<|assistant|>assistant<|mid|>{%- else -%}<|system|>{{ message.name or message.role }}<|mid|>{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last=-1) -%}
{%- for message in messages -%}{%- if message.role == 'assistant' and not message.get('tool_calls') -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- set past = messages[:ns.last + 1] -%}{%- set present = messages[ns.last + 1:] -%}
{%- if tools -%}<|system|>tools<|mid|>{{ tools | tojson(separators=(',', ':')) }}<|end|>{%- endif -%}
{%- for message in past -%}{{ mark(message) }}{%- if message.role == 'assistant' -%}<think></think>{%- endif -%}{{ say(message.content) }}{%- for call in message.get('tool_calls') or [] -%}<|call|>{{ call.function.name }}<|arg|>{{ call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}{%- endfor -%}<|end|>{%- endfor -%}
{%- for message in present -%}{{ mark(message) }}{%- if message.role == 'assistant' -%}<think>{{ message.get('reasoning_content', '') }}</think>{%- endif -%}{{ say(message.content) }}{%- for call in message.get('tool_calls') or [] -%}<|call|>{{ call.function.name }}<|arg|>{{ call.function.arguments | tojson }}{%- endfor -%}<|end|>{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>assistant<|mid|>{%- endif -%}"""

SMOL3 = r"""{%- set now = strftime_now("%d %B %Y") -%}
{%- set mode = "/think" if enable_thinking | default(true) else "/no_think" -%}
{%- if messages[0].role == "system" -%}{%- set own = messages[0].content -%}{%- set mode = "/no_think" if "/no_think" in own else mode -%}{%- set own = own.replace("/no_think", "").replace("/think", "").rstrip() -%}{%- endif -%}
<|im_start|>system
Today: {{ now }}
Mode: {{ mode }}
{% if own %}{{ own ~ "\n" }}{% endif %}<|im_end|>
{% for message in messages if message.role != "system" %}
{%- set content = message.content if message.content is string else "" %}
{%- if message.role == "user" %}
{{ "<|im_start|>user\n" + content + "<|im_end|>\n" }}
{%- elif message.role == "assistant" %}
{%- generation %}
{%- if mode == "/think" %}
{{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}
{%- else %}
{{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n" + content.lstrip("\n") + "<|im_end|>\n" }}
{%- endif %}
{%- endgeneration %}
{%- elif message.role == "tool" %}
{{ "<|im_start|>user\n" + content + "<|im_end|>\n" }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\n" if mode == "/think" else "<|im_start|>assistant\n<think>\n\n</think>\n" }}{%- endif %}"""

# Llama 3.2 and 4, with parts; Mistral's system message in the last user message.
LLAMA_PARTS = r"""{{- bos_token }}
{%- set image = namespace(seen=false) %}
{%- for message in messages %}{%- if message.content is not string %}{%- for part in message.content or [] if part.type == 'image' %}{%- set image.seen = true %}{%- endfor %}{%- endif %}{%- endfor %}
{%- if messages[0].role == 'system' %}{%- set system = messages[0].content | trim %}{%- set messages = messages[1:] %}{%- else %}{%- set system = "" %}{%- endif %}
{%- if system or (tools is not none and not image.seen) %}{{- "<|h|>system<|/h|>\n\n" ~ system ~ "<|eot|>" }}{%- endif %}
{%- for message in messages %}
    {%- if message.role != 'tool' and not 'tool_calls' in message %}
        {{- '<|h|>' + message.role + '<|/h|>\n\n' }}
        {%- if message.content is string %}{{- message.content }}
        {%- else %}{%- for part in message.content %}{{- '<|image|>' if part.type == 'image' else part.text | trim }}{%- endfor %}{%- endif %}
        {{- '<|eot|>' }}
    {%- elif 'tool_calls' in message and message.tool_calls | length > 0 %}
        {{- '<|h|>assistant<|/h|>\n\n<|python_start|>' }}
        {%- for call in message.tool_calls %}{%- set ns = namespace(pairs=[]) %}{%- for k, v in call.function.arguments.items() %}{%- set ns.pairs = ns.pairs + [k ~ '=' ~ v | tojson] %}{%- endfor %}{{- '[' ~ call.function.name ~ '(' ~ ns.pairs | join(', ') ~ ')]' }}{%- endfor %}
        {{- '<|python_end|><|eom|>' }}
    {%- else %}
        {{- "<|h|>ipython<|/h|>\n\n" ~ (message.content | tojson if message.content is mapping or message.content is iterable else message.content) ~ "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|h|>assistant<|/h|>\n\n' }}{%- endif %}"""

MISTRAL_V1 = r"""{%- if messages[0]['role'] == 'system' -%}{%- set system = messages[0]['content'] -%}{%- set rest = messages[1:] -%}{%- else -%}{%- set rest = messages -%}{%- endif -%}
{{- bos_token -}}
{%- for message in rest -%}
    {%- if message['role'] == 'user' -%}
        {%- if loop.last and system is defined -%}{{ ' [INST] ' + system + '\n\n' + message['content'] + ' [/INST]' }}{%- else -%}{{ ' [INST] ' + message['content'] + ' [/INST]' }}{%- endif -%}
    {%- elif message['role'] == 'assistant' and message['content'] -%}{{ ' ' + message['content'] + eos_token }}
    {%- endif -%}
{%- endfor -%}"""

MISTRAL_V7 = r"""{%- set default = "Day: {today}. Yesterday: {yesterday}.".replace("{today}", strftime_now("%Y-%m-%d")).replace("{yesterday}", "?") -%}
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}{{- '[SYS]' ~ messages[0].content ~ '[/SYS]' -}}{%- set rest = messages[1:] -%}{%- else -%}{{- '[SYS]' ~ default ~ '[/SYS]' -}}{%- set rest = messages -%}{%- endif -%}
{%- for message in rest -%}
    {%- if message.role == 'user' -%}
        {%- if message.content is string -%}{{- '[INST]' ~ message.content ~ '[/INST]' -}}
        {%- else -%}{{- '[INST]' -}}{%- for block in message.content -%}{%- if block.type == 'text' -%}{{- block.text -}}{%- elif block.type in ['image', 'image_url'] -%}{{- '[IMG]' -}}{%- else -%}{{- raise_exception('Only text and images!') -}}{%- endif -%}{%- endfor -%}{{- '[/INST]' -}}{%- endif -%}
    {%- elif message.role == 'assistant' -%}
        {%- if message.content -%}{{- message.content -}}{%- endif -%}
        {%- for call in message.tool_calls or [] -%}{{- '[CALL]' ~ call.function.name ~ '[ARGS]' ~ call.function.arguments | tojson -}}{%- endfor -%}
        {{- eos_token -}}
    {%- elif message.role == 'tool' -%}{{- '[RESULT]' ~ message.content | string ~ '[/RESULT]' -}}
    {%- else -%}{{- raise_exception('Only user, system, assistant and tool!') -}}{%- endif -%}
{%- endfor -%}"""

# Gemma: roles that take turns, the system message before the first; parts with images.
GEMMA3 = r"""{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}
{%- if messages[0]['content'] is string -%}{%- set prefix = messages[0]['content'] + '\n\n' -%}{%- else -%}{%- set prefix = messages[0]['content'][0]['text'] + '\n\n' -%}{%- endif -%}{%- set rest = messages[1:] -%}
{%- else -%}{%- set prefix = "" -%}{%- set rest = messages -%}{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception("Turns must alternate") }}{%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<turn>' + role + '\n' + (prefix if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}{{ '<image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '</turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<turn>model\n' }}{%- endif -%}
"""

PHI3 = r"""{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{ '<|system|>\n' + message['content'] + '<|end|>\n' }}{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '<|end|>\n' }}{% elif message['role'] == 'assistant' %}{{ '<|assistant|>\n' + message['content'] + '<|end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""
PHI4 = r"""{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|im_start|>' ~ message['role'] ~ '<|im_sep|>' ~ message['content'] ~ '<|im_end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"""
SMOL2 = r"""{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are small.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

DEEPSEEK_V2 = r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\n\n' }}{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""
DEEPSEEK_R1 = r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system = ns.system + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system = ns.system + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<U>' + (message['content'] if message['content'] is string else '')}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message and message['tool_calls'] is not none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{{'<A><calls><call>' + tool['type'] + '<sep>' + tool['function']['name'] + '\n' + '```json' + '\n' + tool['function']['arguments'] | tojson + '\n' + '```' + '<call_end>'}}{%- set ns.is_first = true -%}{%- else %}{{'\n' + '<call>' + tool['type'] + '<sep>' + tool['function']['name']}}{%- endif %}{%- endfor %}{{'<calls_end>' + eos_token}}{%- elif message['role'] == 'assistant' %}{%- if ns.is_tool %}{{'<outputs_end>' + message['content'] + eos_token}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<A>' + content + eos_token}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<outputs><output>' + message['content'] + '<output_end>'}}{%- set ns.is_output_first = false %}{%- else %}{{'\n<output>' + message['content'] + '<output_end>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<outputs_end>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<A><think>\n'}}{% endif %}"""
DEEPSEEK_V3 = r"""{% set ns = namespace(last_user=-1) %}{% set thinking = thinking | default(false) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last_user = loop.index0 %}{% endif %}{% endfor %}{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}<U>{{ m.content if m.content is string else m.content | map(attribute='text', default='') | join }}{% elif m.role == 'assistant' %}<A>{% if loop.index0 > ns.last_user and thinking %}{{ '<think>' }}{% else %}{{ '</think>' }}{% endif %}{% set c = m.content or '' %}{{ c.split('</think>', 1)[1] if '</think>' in c else c }}{% for t in m.tool_calls or [] %}<call>{{ t.function.name }}<sep>{{ t.function.arguments | tojson }}</call>{% endfor %}{{ eos_token }}{% elif m.role == 'tool' %}<output>{{ m.content }}</output>{% endif %}{% endfor %}{% if add_generation_prompt %}<A>{{ '<think>' if thinking else '</think>' }}{% endif %}"""

COMMAND_R = r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% elif false == true %}{% set loop_messages = messages %}{% set system_message = 'Help.' %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}{{ '<|T|><|SYSTEM|>' + system_message + '<|/T|>' }}{% endif %}{%- macro doc(d) %}{% for k, v in d | dictsort %}{{ k | title }}: {{ v }}
{% endfor %}{% endmacro -%}{% for d in documents or [] %}{{ 'Document: ' ~ loop.index0 ~ '\n' }}{{ doc(d) }}{% endfor %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|T|><|USER|>' + content.strip() + '<|/T|>' }}{% elif message['role'] == 'assistant' %}{{ '<|T|><|BOT|>' + content.strip() + '<|/T|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|T|><|BOT|>' }}{% endif %}"""

GRANITE3 = r"""{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}
{%- else %}{%- set system = "Cutoff: April.\nToday: " + strftime_now('%B %d, %Y') + "." %}{%- if tools and documents %}{%- set system = system + " Tools and documents." %}{%- elif tools %}{%- set system = system + " Tools." %}{%- elif thinking %}{%- set system = system + " Think." %}{%- endif %}{%- set rest = messages %}{%- endif %}
{{- '<|role|>system<|/role|>' + system + '<|eot|>\n' }}
{%- if tools %}{{- '<|role|>tools<|/role|>' }}{{- tools | tojson(indent=4) }}{{- '<|eot|>\n' }}{%- endif %}
{%- if documents %}{%- for document in documents %}{{- '<|role|>document {"id": "' + loop.index | string + '"}<|/role|>' + document['text'] + '<|eot|>\n' }}{%- endfor %}{%- endif %}
{%- for message in rest %}{{- '<|role|>' + message['role'] + '<|/role|>' + (message['content'] if message['content'] is string else '') + '<|eot|>\n' }}{%- if loop.last and add_generation_prompt %}{{- '<|role|>assistant' }}{%- if controls %}{{- ' ' + controls | tojson() }}{%- endif %}{{- '<|/role|>' }}{%- endif %}{%- endfor %}"""

OLMO = r"""{{ eos_token }}{% for message in messages %}
{% if message['role'] == 'system' %}
{{ message['content'] }}
{% elif message['role'] == 'user' %}
<|user|>
{{ message['content'] }}
{% elif message['role'] == 'assistant' %}
<|assistant|>
{{ message['content'] + ('' if loop.last and not add_generation_prompt else '') + eos_token }}
{% endif %}{% if loop.last and add_generation_prompt %}<|assistant|>
{% endif %}{% endfor %}"""
ZEPHYR = r"""{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
VICUNA = r"""{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + ' ' }}{% set messages = messages[1:] %}{% else %}{{ 'A chat. ' }}{% endif %}{% for m in messages %}{% if m['role'] == 'user' %}{{ 'USER: ' + m['content'] | trim + ' ' }}{% elif m['role'] == 'assistant' %}{{ 'ASSISTANT: ' + m['content'] | trim + eos_token + '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"""
ALPACA = r"""{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + '\n\n' }}{% endif %}{% for message in messages | rejectattr('role', 'equalto', 'system') %}{{ {'user': '### Instruction:\n', 'assistant': '### Response:\n'}.get(message.role, '### Input:\n') ~ (message.content or '') | trim }}{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n\n' if not loop.last }}{% endfor %}{% if add_generation_prompt %}{{ '\n\n### Response:\n' }}{% endif %}"""
FALCON = r"""{% for message in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}{% if message['role'] == 'system' %}{{ 'System: ' }}{% elif message['role'] == 'user' %}{{ 'User: ' }}{% elif message['role'] == 'assistant' %}{{ 'Falcon: ' }}{% endif %}{{ message['content'].replace('\r\n', '\n').replace('\n\n', '\n') }}{% endfor %}{% if add_generation_prompt %}{{ '\n' + 'Falcon:' }}{% endif %}"""
STABLE = r"""{{ bos_token }}{% for message in messages %}{{ "<|" ~ message.role ~ "|>\n" ~ message.content ~ "<|endoftext|>" }}{{ "\n" if not loop.last }}{% endfor %}{% if add_generation_prompt %}{{ "\n<|assistant|>\n" }}{% endif %}"""
YI = r"""{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}{% endif %}{% if system_message is defined %}{{ system_message }}{% endif %}{% for message in messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|im_start|>user\n' + content + '<|im_end|>\n<|im_start|>assistant\n' }}{% elif message['role'] == 'assistant' %}{{ content + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"""
INTERNLM = r"""{{ bos_token }}{% for message in messages %}{% if message.role == 'tool' or message.name is defined %}{{ '<|im_start|>environment name=<|plugin|>\n' ~ message.content ~ '<|im_end|>\n' }}{% else %}{{ '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>' ~ '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
GLM4 = r"""[gMASK]<sop>{%- if tools -%}<|system|>
# Tools
{% for tool in tools %}{%- if 'function' in tool -%}{%- set tool = tool['function'] -%}{%- endif %}

## {{ tool.name }}

{{ tool | tojson(ensure_ascii=False, indent=4) }}
{%- endfor %}{%- endif %}
{%- macro visible(content) -%}{%- if content is string -%}{{- content }}{%- elif content is iterable and content is not mapping -%}{%- for item in content -%}{%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- elif item is string -%}{{- item }}{%- endif -%}{%- endfor -%}{%- else -%}{{- content }}{%- endif -%}{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}{% set ns.last_user_index = loop.index0 -%}{%- endif %}{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}<|assistant|>
{%- set reasoning_content = '' %}{%- set content = visible(m.content) %}
{%- if m.reasoning_content is string %}{%- set reasoning_content = m.reasoning_content %}{%- elif '</think>' in content %}{%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}
{%- if loop.index0 > ns.last_user_index and reasoning_content -%}{{ '\n<think>' + reasoning_content.strip() + '</think>'}}{%- else -%}{{ '\n<think></think>' }}{%- endif -%}
{%- if content.strip() -%}{{ '\n' + content.strip() }}{%- endif -%}
{% for tc in m.tool_calls or [] %}{%- if tc.function %}{%- set tc = tc.function %}{%- endif %}{{ '\n<call>' + tc.name }}
{% set _args = tc.arguments %}{% for k, v in _args.items() %}<key>{{ k }}</key>
<value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</value>
{% endfor %}</call>{% endfor %}
{%- elif m.role == 'tool' -%}{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|observation|>' }}{%- endif %}{{- '\n<result>\n' }}{{- m.content }}{{- '\n</result>' }}
{%- elif m.role == 'system' -%}<|system|>
{{ visible(m.content) }}
{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}{%- endif -%}"""

# gpt-oss: types of parameters by a macro, channels, a token of its own behind the last answer.
HARMONY = r"""{%- macro type_name(spec, required=[], nullable=false) -%}
    {%- if spec.type == "array" -%}{%- if spec['items'] -%}{%- if spec['items']['type'] in ["string", "number"] -%}{{- spec['items']['type'] }}[]{%- else -%}{%- set inner = type_name(spec['items'], required) -%}{%- if inner | length > 20 -%}{{- "any[]" }}{%- else -%}{{- inner ~ "[]" }}{%- endif -%}{%- endif -%}{%- else -%}any[]{%- endif -%}{%- if nullable -%}{{- " | null" -}}{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping -%}{{- spec.type | join(" | ") -}}
    {%- elif spec.oneOf -%}{%- for variant in spec.oneOf -%}{{- type_name(variant, required) -}}{%- if variant.default is defined %} // default: {{ variant.default }}{%- endif -%}{%- if not loop.last %} | {% endif -%}{%- endfor -%}
    {%- elif spec.type == "string" -%}{%- if spec.enum -%}{{- '"' + spec.enum | join('" | "') + '"' -}}{%- else -%}{{- "string" }}{%- endif -%}
    {%- elif spec.type == "integer" or spec.type == "number" -%}{{- "number" }}
    {%- elif spec.type == "object" -%}{%- if spec.properties -%}{{- "{\n" }}{%- for name, inner in spec.properties.items() -%}{{- name -}}{%- if name not in (spec.required or []) -%}{{- "?" }}{%- endif -%}{{- ": " }}{{ type_name(inner, spec.required or []) }}{%- if not loop.last -%}{{- ", " }}{%- endif -%}{%- endfor -%}{{- "}" }}{%- else -%}{{- "object" }}{%- endif -%}
    {%- else -%}{{- "any" }}{%- endif -%}
{%- endmacro -%}
{%- macro namespace_of(name, tools) -%}
    {{- "## " + name + "\n\nnamespace " + name + " {\n\n" }}
    {%- for tool in tools %}{%- set tool = tool.function %}{{- "// " + tool.description + "\ntype " + tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}{{- "(_: {\n" }}{%- for k, v in tool.parameters.properties.items() %}{%- if v.description %}{{- "// " + v.description + "\n" }}{%- endif %}{{- k }}{%- if k not in (tool.parameters.required or []) %}{{- "?" }}{%- endif %}{{- ": " }}{{- type_name(v, tool.parameters.required or []) }}{{- ",\n" }}{%- endfor %}{{- "}) => any;\n\n" }}{%- else %}{{- "() => any;\n\n" }}{%- endif %}{%- endfor %}
    {{- "} // namespace " + name }}
{%- endmacro -%}
{%- if messages[0].role in ["developer", "system"] %}{%- set developer = messages[0].content %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set developer = "" %}{%- set loop_messages = messages %}{%- endif %}
{{- "<|start|>system<|message|>Date: " + strftime_now("%Y-%m-%d") + "\nReasoning: " + reasoning_effort | default("medium") + "<|end|>" }}
{%- if developer or tools %}{{- "<|start|>developer<|message|>" }}{%- if developer %}{{- "# Instructions\n\n" + developer }}{%- endif %}{%- if tools %}{{- "\n\n# Tools\n\n" }}{{- namespace_of("functions", tools) }}{%- endif %}{{- "<|end|>" }}{%- endif %}
{%- set last = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message and "<|channel|>" in message.content %}{{- raise_exception("Do not pass channels in content") }}{%- endif %}
        {%- if "tool_calls" in message %}
            {%- set future = namespace(found=false) %}{%- for later in loop_messages[loop.index:] %}{%- if later.role == 'assistant' and "tool_calls" not in later %}{%- set future.found = true %}{%- endif %}{%- endfor %}
            {%- set call = message.tool_calls[0].function %}
            {%- if message.thinking and not future.found %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json<|message|>" + call.arguments | tojson + "<|call|>" }}{%- set last.name = call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {%- if "thinking" in message %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}{{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}{%- set last.name = none %}{%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last.name is none %}{{- raise_exception("A tool message without a call before it") }}{%- endif %}
        {{- "<|start|>functions." + last.name + " to=assistant<|channel|>commentary<|message|>" + message.content | tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}{{- "<|start|>user<|message|>" + message.content + "<|end|>" }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|start|>assistant" }}{%- endif -%}"""

NEMOTRON = r"""{{- bos_token }}{%- set sys = namespace(text='') -%}{%- for m in messages if m['role'] == 'system' -%}{%- set sys.text = sys.text ~ m['content'] -%}{%- endfor -%}<extra_0>System
{{ sys.text }}{% for tool in tools or [] %}{{ ' <tool> ' + tool | tojson + ' </tool>' }}{% endfor %}{{ '\n' }}{% for message in messages %}{% if message['role'] == 'user' %}<extra_1>User
{{ message['content'] | trim }}
{% if loop.last %}<extra_1>Assistant
{% endif %}{% elif message['role'] == 'tool' %}{{ '<extra_1>Tool\n' ~ message.content ~ '\n' }}{% elif message['role'] == 'assistant' %}<extra_1>Assistant
{{ (message['content'] or '').split('</think>') | last | trim }}
{% endif %}{% endfor %}"""
MINIMAX = r"""{%- macro tools_xml(ns_name, list) -%}{%- for tool in list -%}{{ "<tool>" ~ tool.function | tojson(ensure_ascii=False) ~ "</tool>\n" }}{%- endfor -%}{%- endmacro -%}
{%- macro visible(content) -%}{%- if content is string -%}{{ content }}{%- elif content is iterable and content is not mapping -%}{%- for item in content -%}{{ item.text if item is mapping and item.type == 'text' else (item if item is string else '') }}{%- endfor -%}{%- elif content is none -%}{{ '' }}{%- else -%}{{ content }}{%- endif -%}{%- endmacro -%}
{%- set system = messages[0] if messages and messages[0].role == "system" else none -%}{%- set conversation = messages[1:] if system else messages -%}
{%- set ns = namespace(last=-1) -%}{%- for m in conversation -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{{- ']~!b[]~b]system\n' ~ (visible(system.content) if system else 'Help.') }}{%- if tools %}{{- '\n<tools>\n' }}{{- tools_xml("functions", tools) }}{{- '</tools>' }}{%- endif %}{{- '[e~[\n' }}
{%- for message in conversation -%}
{%- if message.role == 'assistant' -%}{{- ']~b]ai\n' }}{%- set reasoning = message.reasoning_content if message.reasoning_content is string else '' -%}{%- set content = visible(message.content) -%}{%- if '</think>' in content -%}{%- set reasoning = content.split('</think>')[0].strip('\n').split('<think>')[-1].strip('\n') -%}{%- set content = content.split('</think>')[-1].strip('\n') -%}{%- endif -%}{%- if reasoning and loop.index0 > ns.last -%}{{- '<think>' ~ '\n' ~ reasoning ~ '\n' ~ '</think>' ~ '\n\n' }}{%- endif -%}{{- content }}{%- for call in message.tool_calls or [] -%}{{- '\n<invoke name="' ~ call.function.name ~ '">' }}{% for k, v in call.function.arguments.items() %}{{- '<parameter name="' ~ k ~ '">' ~ (v if v is string else v | tojson(ensure_ascii=False)) ~ '</parameter>' }}{% endfor %}{{- '</invoke>' }}{%- endfor -%}{{- '[e~[\n' }}
{%- elif message.role == 'tool' -%}{%- if loop.first or conversation[loop.index0 - 1].role != 'tool' -%}{{- ']~b]tool' }}{%- endif -%}{{- '\n<response>' ~ visible(message.content) ~ '</response>' }}{%- if loop.last or conversation[loop.index0 + 1].role != 'tool' -%}{{- '[e~[\n' }}{%- endif -%}
{%- elif message.role == 'user' -%}{{- ']~b]user\n' ~ visible(message.content) ~ '[e~[\n' }}{%- endif -%}
{%- endfor -%}{%- if add_generation_prompt -%}{{- ']~b]ai\n<think>\n' }}{%- endif -%}"""
EXAONE = r"""{% for message in messages %}{% if loop.first and message['role'] != 'system' %}{{ '[|system|][|endofturn|]\n' }}{% endif %}{% set content = message['content'] %}{% if message['role'] == 'assistant' and '</thought>' in content %}{% set content = content.split('</thought>')[-1].lstrip('\\n') %}{% endif %}{{ '[|' + message['role'] + '|]' + content }}{% if not message['role'] == 'user' %}{{ '[|endofturn|]' }}{% endif %}{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '\n[|assistant|]<thought>\n' }}{% endif %}"""
JAMBA = r"""{%- set ns = namespace(document_tools=none, any_tools=(tools or false) and true, message_count=0, is_last_checked_defined=false, knobs='') -%}{%- set bos = bos_token or '<|startoftext|>' -%}{{- bos -}}{%- if messages[0].role == 'system' %}{%- set system_message = messages[0].content %}{%- set messages = messages[1:] %}{%- set ns.message_count = ns.message_count + 1 %}{%- endif %}{%- macro handle_docs() -%}{%- if documents -%}{{- '<documents>' -}}{%- for doc in documents -%}{{- {'title': doc.title, 'i': loop.index0} | tojson -}}{%- endfor -%}{{- '</documents>' -}}{%- endif -%}{%- endmacro -%}{%- if system_message is defined or ns.any_tools -%}{{- '<|system|> ' ~ (system_message | default('')) ~ handle_docs() ~ '<|eom|>\n' -}}{%- endif -%}{%- for message in messages -%}{%- if message.role in ('user', 'tool') -%}{{- '<|bom|><|' ~ message.role ~ '|> ' ~ message.content ~ '<|eom|>' -}}{%- elif message.role == 'assistant' -%}{{- '<|bom|><|assistant|> ' -}}{%- if message.content -%}{{- message.content -}}{%- endif -%}{%- if message.tool_calls is defined and message.tool_calls is not none and message.tool_calls is iterable and message.tool_calls | length > 0 -%}{{- '<tool_calls>[\n' -}}{%- for tool_call in message.tool_calls -%}{%- if 'function' in tool_call -%}{%- set tool_call = tool_call.function -%}{%- endif -%}{{- '{"name": "' ~ tool_call.name ~ '", "arguments": ' ~ tool_call.arguments | tojson ~ '}' -}}{%- if not loop.last -%}{{- ',\n' -}}{%- endif -%}{%- endfor -%}{{- '\n]</tool_calls>' -}}{%- endif -%}{{- '<|eom|>' -}}{%- else -%}{{- raise_exception('Unknown role: ' ~ message.role) -}}{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|bom|><|assistant|> ' -}}{%- endif -%}"""
HUNYUAN = r"""{%- macro start() %}<|start|>{% endmacro -%}{% set has_head = true %}{% for message in messages %}{% if message['role'] == 'system' and loop.first %}{% set has_head = false %}{{ start() + message['content'] + '<|extra_4|>' }}{% elif message['role'] == 'user' %}{% if message['content'] is string %}{% set content = message['content'] %}{% else %}{% set content = message['content'] | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('') %}{% endif %}{% if enable_thinking is defined and not enable_thinking %}{% set content = '/no_think' + content %}{% endif %}{{ (start() if loop.index0 != 0 or has_head else '') + content + '<|extra_0|>' }}{% elif message['role'] == 'assistant' %}{% set parts = (message['content'] or '').rpartition('</think>') %}{{ (parts[2] if not loop.last else message['content'] or '') + '<|eos|>' }}{% endif %}{% endfor %}"""

# Jinja that few templates take and jinja2 has: blocks that call, groups, recursion.
CALLS = r"""{% macro turn(role, end='<|end|>') -%}<|{{ role }}|>{{ caller(role) }}{{ end }}
{% endmacro -%}
{% for message in messages %}{% call(who) turn(message.role, end='<|eot|>' if loop.last else '<|end|>') %}{{ who | upper }}: {{ message.content | trim if message.content is string }}{% endcall %}{% endfor %}
{% for role, group in messages | groupby('role') %}{{ role }}={{ group | length }};{% endfor %}
{% for row in messages | map(attribute='role') | batch(2, '-') %}{{ row | join('/') }} {% endfor %}
{% for column in messages | map(attribute='role') | slice(2, '.') %}{{ column | join('+') }} {% endfor %}
{%- for tool in tools or [] %}
{% for name, spec in tool.function.parameters.properties | dictsort recursive %}{{ '  ' * loop.depth0 }}{{ name }}: {{ spec.type }}
{% if spec['items'] %}{{ loop({'items': spec['items']} | dictsort) }}{% endif %}{% endfor %}{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}"""

FAMILIES = {
    "qwen_tools": QWEN_TOOLS, "kimi": KIMI, "smol3": SMOL3, "llama_parts": LLAMA_PARTS, "mistral_v1": MISTRAL_V1,
    "mistral_v7": MISTRAL_V7, "gemma3": GEMMA3, "phi3": PHI3, "phi4": PHI4, "smol2": SMOL2,
    "deepseek_v2": DEEPSEEK_V2, "deepseek_r1": DEEPSEEK_R1, "deepseek_v3": DEEPSEEK_V3, "command_r": COMMAND_R,
    "granite3": GRANITE3, "olmo": OLMO, "zephyr": ZEPHYR, "vicuna": VICUNA, "alpaca": ALPACA, "falcon": FALCON,
    "stable": STABLE, "yi": YI, "internlm": INTERNLM, "glm4": GLM4, "harmony": HARMONY, "nemotron": NEMOTRON,
    "minimax": MINIMAX, "exaone": EXAONE, "jamba": JAMBA, "hunyuan": HUNYUAN, "calls": CALLS,
}

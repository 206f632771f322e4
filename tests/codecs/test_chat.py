"""Chat templates as Hugging Face writes them, and the plain transcript of models that have none."""

import pytest

from outdraft.codecs.chat import ChatTemplate, render_chat
from outdraft.options.errors import ModelLoadError, RequestError

CHATML = (
    "{{ bos_token }}{% for message in messages %}\n"
    "    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TALK = [{"role": "system", "content": "Be <brief>."}, {"role": "user", "content": "Hi"}]


def test_chatml():
    prompt = render_chat(ChatTemplate(CHATML, {"bos_token": "<s>"}), TALK)
    assert prompt.text == (
        "<s><|im_start|>system\nBe <brief>.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert not prompt.add_special and prompt.stop == ()


def test_what_templates_use_beyond_jinja():
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
        "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}{{ strftime_now('%Y') | length }}"
        "{% if tools is not none %}!{% endif %}"
    )
    assert render_chat(ChatTemplate(source, {}), TALK).text == '{"role": "user", "content": "Hi"}4'


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ("", '{"b": "é", "a": "<1>"}'),
        ("(ensure_ascii=False)", '{"b": "é", "a": "<1>"}'),
        ("(true)", '{"b": "\\u00e9", "a": "<1>"}'),
        ("(indent=1, sort_keys=true)", '{\n "a": "<1>",\n "b": "é"\n}'),
        ("(separators=(',', ':'))", '{"b":"é","a":"<1>"}'),
    ],
)
def test_tojson_takes_the_arguments_of_transformers(arguments: str, written: str):
    template = ChatTemplate("{{ messages[0] | tojson" + arguments + " }}", {})
    assert template.render([{"b": "é", "a": "<1>"}]).text == written


def test_named_templates_take_the_default():
    listed = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    template = ChatTemplate.from_config(listed, {})
    assert template is not None and template.render(TALK).text == "d"
    assert ChatTemplate.from_config(None, {}) is None


def test_with_tools_the_template_of_that_name_is_taken():
    listed = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "{{ tools | length }} tools"}]
    template = ChatTemplate.from_config(listed, {})
    assert template is not None and template.render(TALK).text == "d" == template.render(TALK, tools=None).text
    assert render_chat(template, TALK, {"tools": []}).text == "0 tools"
    assert render_chat(template, TALK, {"tools": [{}]}).text == "1 tools"
    alone = ChatTemplate.from_config(listed[:1], {})
    assert alone is not None and alone.render(TALK, tools=[{}]).text == "d"


def test_refusals_are_our_errors():
    with pytest.raises(RequestError, match="roles must alternate"):
        render_chat(ChatTemplate("{{ raise_exception('roles must alternate') }}", {}), TALK)
    with pytest.raises(ModelLoadError, match="does not compile"):
        ChatTemplate("{% if %}", {})
    with pytest.raises(RequestError, match="empty"):
        render_chat(None, [])
    with pytest.raises(RequestError, match=r"lacks \['content'\]"):
        render_chat(None, [*TALK, {"role": "user"}])


@pytest.mark.parametrize(
    "source",
    [
        "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% for a in b %}" * 30 + "{% endfor %}" * 30,
    ],
)
def test_what_no_compiler_of_python_takes_does_not_compile(source: str):
    with pytest.raises(ModelLoadError, match="does not compile"):
        ChatTemplate(source, {})


def test_a_template_has_a_longest_source():
    with pytest.raises(ModelLoadError, match=r"has 1\d{5} characters"):
        ChatTemplate("{{ 1 }}" * 20_000, {})


@pytest.mark.parametrize("name", ["template", "self", "mood"])
def test_variables_may_have_any_name_but_messages(name: str):
    shown = render_chat(ChatTemplate("{{ " + name + " }}", {}), TALK, {name: "calm"}).text
    assert shown == "calm" or name == "self"  # which is Jinja's own word within a template
    with pytest.raises(RequestError, match=f"{name}= is for a chat template"):
        render_chat(None, TALK, {name: "calm"})
    with pytest.raises(RequestError, match="messages is the conversation itself"):
        render_chat(None, TALK, {"messages": []})


@pytest.mark.parametrize(("source", "role"), [("", "system"), ("{# 'developer' #}", "developer")])
def test_messages_are_read_as_clients_write_them(source: str, role: str):
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [{"role": "developer", "content": "Be kind.", "name": None}, {"role": "assistant", "tool_calls": [call]}]
    source += "{{ messages[0].role + messages[1].content }} {{ messages[0].name is defined }} "
    source += "{{ messages[1].tool_calls[0].function.arguments.a + 1 }}"
    assert render_chat(ChatTemplate(source, {}), messages).text == f"{role} False 2"


def test_the_sandbox_holds():
    with pytest.raises(RequestError):
        ChatTemplate("{{ messages.__class__.__mro__[1].__subclasses__() }}", {}).render(TALK)
    with pytest.raises(RequestError):
        ChatTemplate("{{ messages.append(1) }}", {}).render(TALK)


def test_without_a_template_a_transcript():
    talk = [*TALK, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"}]
    prompt = render_chat(None, talk)
    assert prompt.text == "Be <brief>.\n\nUser: Hi\nAssistant: Hello.\nUser: Bye\nAssistant:"
    assert prompt.stop == ("\nUser:",)


@pytest.mark.parametrize(
    ("name", "value"),
    [("name", "Ann"), ("tool_calls", [{"id": "c"}]), ("reasoning_content", "hm"), ("tool_call_id", "c")],
)
def test_what_a_transcript_cannot_show_is_refused(name: str, value: object):
    with pytest.raises(RequestError, match=rf"{name}=.* of a message is for a chat template, and the model has none"):
        render_chat(None, [*TALK, {"role": "assistant", "content": "Yes.", name: value}])
    with pytest.raises(RequestError, match=f"{name}="):
        render_chat(None, [*TALK, {"role": "assistant", name: value}])
    assert render_chat(None, [*TALK, {"role": "assistant", "content": "Yes.", name: None, "tools": []}])


@pytest.mark.parametrize("messages", [3, "hello", [3], [{"role": "user"}], [{"role": "user", "content": 10**5000}]])
def test_what_is_no_conversation_is_refused(messages: object):
    with pytest.raises(RequestError, match="message"):
        render_chat(None, messages)


def test_a_template_that_breaks_is_a_refusal():
    with pytest.raises(RequestError, match=r"refuses this conversation: .*by zero"):
        render_chat(ChatTemplate("{{ 1 // 0 }}", {}), TALK)
    with pytest.raises(ModelLoadError, match="no name and template"):
        ChatTemplate.from_config([{"name": "default"}], {})

"""Scenarios for the `openai` package, sync and async."""

import asyncio
import json
import time

import openai
from openai.types.chat import ChatCompletion

from settings import LONG_PROMPT, UNICODE_PROMPT, Settings, check, expect, expect_timeout

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Looks up the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def client(s: Settings, **options) -> openai.OpenAI:
    defaults = {"base_url": s.base_url + "/v1", "api_key": s.api_key, "max_retries": 0, "timeout": 60}
    return openai.OpenAI(**(defaults | options))


def ask(s: Settings, text: str = "Tell me about the sea.", **more) -> dict:
    return {"model": s.model, "max_tokens": 24, "messages": [{"role": "user", "content": text}], **more}


def text_of(stream) -> tuple[str, str | None, int]:
    """Collects a chat stream: text, finish reason, number of chunks with text."""
    parts, finish = [], None
    for chunk in stream:
        for choice in chunk.choices:
            if choice.delta.content:
                parts.append(choice.delta.content)
            finish = choice.finish_reason or finish
    return "".join(parts), finish, len(parts)


def models(s: Settings) -> str:
    with client(s) as c:
        ids = [m.id for m in c.models.list()]
        check(s.model in ids, f"{s.model} is not in {ids}")
        check(c.models.retrieve(s.model).id == s.model, "retrieve returned another model")
    return f"{len(ids)} models"


def models_unknown(s: Settings) -> str:
    with client(s) as c:
        error = expect(openai.NotFoundError, lambda: c.models.retrieve("no-such-model"))
    return f"{error.code}"


def chat(s: Settings) -> str:
    with client(s) as c:
        answer = c.chat.completions.create(**ask(s))
    choice, usage = answer.choices[0], answer.usage
    check(choice.message.role == "assistant" and choice.message.content, answer)
    check(choice.finish_reason in ("stop", "length"), answer)
    check(usage.prompt_tokens > 0 and usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage)
    check(0 < usage.completion_tokens <= 24, usage)
    return f"{usage.completion_tokens} tokens, request id {answer._request_id}"


def chat_stream(s: Settings) -> str:
    with client(s) as c, c.chat.completions.create(**ask(s, stream=True)) as stream:
        text, finish, chunks = text_of(stream)
    check(text and chunks > 1, f"{chunks} chunks, text {text!r}")
    check(finish in ("stop", "length"), f"finish_reason {finish}")
    return f"{chunks} chunks"


def chat_stream_usage(s: Settings) -> str:
    with client(s) as c:
        chunks = list(c.chat.completions.create(**ask(s, stream=True, stream_options={"include_usage": True})))
    last = chunks[-1]
    check(last.choices == [] and last.usage is not None, last)
    check(all(not chunk.usage for chunk in chunks[:-1]), "usage before the last chunk")
    check(0 < last.usage.completion_tokens <= 24 and last.usage.prompt_tokens > 0, last.usage)
    return f"{last.usage.completion_tokens} tokens in {len(chunks)} chunks"


def chat_unicode(s: Settings) -> str:
    with client(s) as c:
        answer = c.chat.completions.create(**ask(s, UNICODE_PROMPT))
        with c.chat.completions.create(**ask(s, UNICODE_PROMPT, stream=True)) as stream:
            text, _, _ = text_of(stream)
    check(answer.choices[0].message.content and text, "no text")
    check("\ufffd" not in text, f"broken characters in {text!r}")
    return f"{text!r}"


def chat_long_prompt(s: Settings) -> str:
    with client(s) as c:
        answer = c.chat.completions.create(**ask(s, LONG_PROMPT, max_tokens=2))
    check(answer.usage.prompt_tokens > 5000, answer.usage)
    return f"{answer.usage.prompt_tokens} prompt tokens"


def chat_tools(s: Settings) -> str:
    with client(s) as c:
        answer = c.chat.completions.create(**ask(s, tools=[TOOL], tool_choice="required"))
    choice = answer.choices[0]
    check(choice.finish_reason == "tool_calls", choice)
    call = choice.message.tool_calls[0]
    check(call.type == "function" and call.id and call.function.name == "weather", call)
    json.loads(call.function.arguments)
    return call.function.arguments


def chat_tools_stream(s: Settings) -> str:
    name, arguments, finish = "", "", None
    with client(s) as c, c.chat.completions.create(**ask(s, tools=[TOOL], tool_choice="required", stream=True)) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                for call in choice.delta.tool_calls or []:
                    name += call.function.name or ""
                    arguments += call.function.arguments or ""
                finish = choice.finish_reason or finish
    check(name == "weather" and finish == "tool_calls", f"name {name!r}, finish_reason {finish}")
    json.loads(arguments)
    return arguments


def chat_concurrent(s: Settings) -> str:
    """16 streams at once on one async client, each whole."""

    async def one(c: openai.AsyncOpenAI, i: int) -> int:
        chunks, finish = 0, None
        async for chunk in await c.chat.completions.create(**ask(s, f"Story {i}", stream=True)):
            for choice in chunk.choices:
                chunks += bool(choice.delta.content)
                finish = choice.finish_reason or finish
        check(chunks > 1 and finish in ("stop", "length"), f"stream {i}: {chunks} chunks, finish_reason {finish}")
        return chunks

    async def all_of_them() -> int:
        async with openai.AsyncOpenAI(base_url=s.base_url + "/v1", api_key=s.api_key, max_retries=0, timeout=60) as c:
            return sum(await asyncio.gather(*(one(c, i) for i in range(16))))

    return f"{asyncio.run(all_of_them())} chunks"


def completions(s: Settings) -> str:
    with client(s) as c:
        answer = c.completions.create(model=s.model, prompt="the sea and the", max_tokens=12)
    check(answer.choices[0].text and answer.choices[0].finish_reason in ("stop", "length"), answer)
    check(answer.usage.completion_tokens > 0, answer.usage)
    return answer.choices[0].text


def completions_stream(s: Settings) -> str:
    text, finish = "", None
    with client(s) as c, c.completions.create(model=s.model, prompt="the sea", max_tokens=12, stream=True) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.text or ""
                finish = choice.finish_reason or finish
    check(text and finish in ("stop", "length"), f"finish_reason {finish}, text {text!r}")
    return text


def embeddings(s: Settings) -> str:
    with client(s) as c:
        answer = c.embeddings.create(model=s.model, input=["the sea", "the land"])
        plain = c.embeddings.create(model=s.model, input="the sea", encoding_format="float")
    check(len(answer.data) == 2 and answer.data[1].index == 1, answer.data)
    check(len(plain.data) == 1 and all(isinstance(x, float) for x in plain.data[0].embedding), plain.data)
    check(len(plain.data[0].embedding) == len(answer.data[0].embedding) > 0, "sizes differ between encodings")
    return f"{len(plain.data[0].embedding)} dimensions"


def responses(s: Settings) -> str:
    with client(s) as c:
        answer = c.responses.create(model=s.model, input="Tell me about the sea.", max_output_tokens=16)
    check(answer.status in ("completed", "incomplete") and answer.output_text, answer)
    check(answer.usage.output_tokens > 0, answer.usage)
    return answer.output_text


def responses_stream(s: Settings) -> str:
    deltas, last = "", None
    with client(s) as c, c.responses.create(model=s.model, input="Tell me.", max_output_tokens=16, stream=True) as stream:
        for event in stream:
            last = event
            if event.type == "response.output_text.delta":
                deltas += event.delta
    check(last is not None and last.type in ("response.completed", "response.incomplete"), last)
    check(deltas and last.response.usage.output_tokens > 0, last)
    return deltas


def error_unknown_model(s: Settings) -> str:
    with client(s) as c:
        error = expect(openai.NotFoundError, lambda: c.chat.completions.create(**ask(s) | {"model": "no-such-model"}))
    check(error.status_code == 404 and error.code == "model_not_found", error.body)
    check("no-such-model" in error.message, error.message)
    return f"{error.code}: {error.message}"


def error_missing_model(s: Settings) -> str:
    body = {key: value for key, value in ask(s).items() if key != "model"}
    with client(s) as c:
        error = expect(openai.BadRequestError, lambda: c.post("/chat/completions", cast_to=ChatCompletion, body=body))
    check(error.param == "model" and str(error.code).startswith("evenkeel_"), error.body)
    return f"{error.code}: {error.message}"


def error_bad_request(s: Settings) -> str:
    """The engine refuses the request; its own answer must arrive."""
    with client(s) as c:
        error = expect(openai.BadRequestError, lambda: c.chat.completions.create(**ask(s, temperature="hot")))
    check(not str(error.code).startswith("evenkeel_"), error.body)
    return error.message


def error_wrong_key(s: Settings) -> str:
    with client(s, api_key="wrong") as c:
        error = expect(openai.AuthenticationError, lambda: c.chat.completions.create(**ask(s)))
    check(str(error.code).startswith("evenkeel_"), error.body)
    return f"{error.code}"


def error_unavailable(s: Settings) -> str:
    """Nothing can answer: a 5xx in the shape that the client knows."""
    with client(s) as c:
        error = expect(openai.InternalServerError, lambda: c.chat.completions.create(**ask(s)))
    check(error.status_code in (502, 503, 504) and error.type and str(error.code).startswith("evenkeel_"), error.body)
    return f"{error.status_code} {error.code}: {error.message}"


def retry_after(s: Settings) -> str:
    """A 429 with `retry-after: 1` comes first; the client waits and succeeds."""
    began = time.monotonic()
    with client(s, max_retries=3) as c:
        raw = c.chat.completions.with_raw_response.create(**ask(s))
    waited = time.monotonic() - began
    check(raw.parse().choices[0].message.content, "no text")
    check(raw.retries_taken == 1, f"{raw.retries_taken} retries")
    check(0.9 <= waited < 10, f"answered after {waited:.2f} s")
    return f"{waited:.2f} s"


def timeout(s: Settings) -> str:
    """The engine hangs: the client's own limit of 0.5 s must end the call."""
    began = time.monotonic()
    with client(s, timeout=0.5) as c:
        expect_timeout(openai.APITimeoutError, lambda: c.chat.completions.create(**ask(s)))
    waited = time.monotonic() - began
    check(waited < 5, f"ended after {waited:.2f} s")
    return f"{waited:.2f} s"


def timeout_stream(s: Settings) -> str:
    """The engine stalls after some chunks."""
    with client(s, timeout=0.5) as c:
        stream = c.chat.completions.create(**ask(s, stream=True))
        got = []
        expect(openai.APITimeoutError, lambda: got.extend(chunk for chunk in stream))
    return "ended in time"


def cancel(s: Settings) -> str:
    """Leaves after three chunks of a long answer."""
    with client(s) as c:
        stream = c.chat.completions.create(**ask(s, stream=True, max_tokens=2000))
        for _ in range(3):
            next(stream)
        stream.close()
    return "left"


def stream_broken(s: Settings) -> str:
    """The engine breaks in mid-answer: the client must see an error after text, never a clean end."""
    parts = []

    def read(stream) -> str:
        for chunk in stream:
            parts.extend(choice.delta.content for choice in chunk.choices if choice.delta.content)
        return "".join(parts)

    with client(s) as c:
        stream = c.chat.completions.create(**ask(s, stream=True))
        error = expect(openai.APIError, lambda: read(stream))
    check(parts, f"no text before the error {error!r}")
    return f"{len(parts)} chunks, then {type(error).__name__}: {error.message}"


def responses_stream_broken(s: Settings) -> str:
    """The same for responses, where the client also hands an engine's own `error` event to the application."""
    last = None
    with client(s) as c:
        stream = c.responses.create(model=s.model, input="Tell me.", max_output_tokens=24, stream=True)
        try:
            for event in stream:
                last = event
        except openai.APIError as error:
            return f"{type(error).__name__}: {error.message}"
    check(last is not None and last.type in ("error", "response.failed"), f"a clean end after {last}")
    return f"event {last.type}: {last}"


SCENARIOS = {
    f.__name__: f
    for f in (
        models, models_unknown, chat, chat_stream, chat_stream_usage, chat_unicode, chat_long_prompt, chat_tools,
        chat_tools_stream, chat_concurrent, completions, completions_stream, embeddings, responses, responses_stream,
        error_unknown_model, error_missing_model, error_bad_request, error_wrong_key, error_unavailable, retry_after,
        timeout, timeout_stream, cancel, stream_broken, responses_stream_broken,
    )
}  # fmt: skip

"""Scenarios for the `anthropic` package."""

import asyncio
import time

import anthropic

from settings import LONG_PROMPT, UNICODE_PROMPT, Settings, check, expect, expect_timeout

TOOL = {
    "name": "weather",
    "description": "Looks up the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

ENDS = ("end_turn", "max_tokens", "stop_sequence")


def client(s: Settings, **options) -> anthropic.Anthropic:
    defaults = {"base_url": s.base_url, "api_key": s.api_key, "max_retries": 0, "timeout": 60}
    return anthropic.Anthropic(**(defaults | options))


def ask(s: Settings, text: str = "Tell me about the sea.", **more) -> dict:
    return {"model": s.model, "max_tokens": 24, "messages": [{"role": "user", "content": text}], **more}


def code_of(error: anthropic.APIStatusError) -> str:
    """The machine-readable code inside {"type": "error", "error": {...}}."""
    check(isinstance(error.body, dict) and error.body.get("type") == "error", error.body)
    return str(error.body["error"].get("code"))


def messages(s: Settings) -> str:
    with client(s) as c:
        answer = c.messages.create(**ask(s))
    check(answer.role == "assistant" and answer.content[0].text, answer)
    check(answer.stop_reason in ENDS, answer.stop_reason)
    check(answer.usage.input_tokens > 0 and 0 < answer.usage.output_tokens <= 24, answer.usage)
    return f"{answer.usage.output_tokens} tokens, request id {answer._request_id}"


def messages_stream(s: Settings) -> str:
    with client(s) as c, c.messages.create(**ask(s, stream=True)) as stream:
        events = list(stream)
    kinds = [event.type for event in events]
    check(kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds)
    check(kinds.count("content_block_delta") > 1, kinds)
    final = next(event for event in events if event.type == "message_delta")
    check(final.delta.stop_reason in ENDS and final.usage.output_tokens > 0, final)
    return f"{len(kinds)} events"


def messages_stream_helper(s: Settings) -> str:
    """The SDK's own accumulator must find the stream complete and in order."""
    with client(s) as c, c.messages.stream(**ask(s)) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    check(text and message.content[0].text == text, message)
    check(message.stop_reason in ENDS and message.usage.output_tokens > 0, message)
    return text


def messages_unicode(s: Settings) -> str:
    with client(s) as c, c.messages.stream(**ask(s, UNICODE_PROMPT)) as stream:
        text = "".join(stream.text_stream)
    check(text and "\ufffd" not in text, f"{text!r}")
    return f"{text!r}"


def messages_long_prompt(s: Settings) -> str:
    with client(s) as c:
        usage = c.messages.create(**ask(s, LONG_PROMPT, max_tokens=2)).usage
    tokens = usage.input_tokens + (usage.cache_read_input_tokens or 0)
    check(tokens > 5000, usage)
    return f"{tokens} prompt tokens"


def messages_tools(s: Settings) -> str:
    with client(s) as c:
        answer = c.messages.create(**ask(s, tools=[TOOL], tool_choice={"type": "tool", "name": "weather"}))
    block = answer.content[-1]
    check(answer.stop_reason == "tool_use" and block.type == "tool_use", answer)
    check(block.name == "weather" and isinstance(block.input, dict), block)
    return f"{block.input}"


def messages_tools_stream(s: Settings) -> str:
    with client(s) as c, c.messages.stream(**ask(s, tools=[TOOL], tool_choice={"type": "any"})) as stream:
        answer = stream.get_final_message()
    block = answer.content[-1]
    check(answer.stop_reason == "tool_use" and block.type == "tool_use" and block.name == "weather", answer)
    return f"{block.input}"


def messages_concurrent(s: Settings) -> str:
    """16 streams at once on one async client, each whole."""

    async def one(c: anthropic.AsyncAnthropic, i: int) -> int:
        async with c.messages.stream(**ask(s, f"Story {i}")) as stream:
            message = await stream.get_final_message()
        check(message.stop_reason in ENDS and message.content[0].text, f"stream {i}: {message}")
        return message.usage.output_tokens

    async def all_of_them() -> int:
        async with anthropic.AsyncAnthropic(base_url=s.base_url, api_key=s.api_key, max_retries=0, timeout=60) as c:
            return sum(await asyncio.gather(*(one(c, i) for i in range(16))))

    return f"{asyncio.run(all_of_them())} tokens"


def count_tokens(s: Settings) -> str:
    with client(s) as c:
        count = c.messages.count_tokens(model=s.model, messages=ask(s)["messages"])
    check(count.input_tokens > 0, count)
    return f"{count.input_tokens} tokens"


def error_unknown_model(s: Settings) -> str:
    with client(s) as c:
        error = expect(anthropic.NotFoundError, lambda: c.messages.create(**ask(s) | {"model": "no-such-model"}))
    check(error.type == "not_found_error" and code_of(error) == "model_not_found", error.body)
    return error.message


def error_missing_model(s: Settings) -> str:
    body = {key: value for key, value in ask(s).items() if key != "model"}
    with client(s) as c:
        error = expect(
            anthropic.BadRequestError, lambda: c.post("/v1/messages", cast_to=anthropic.types.Message, body=body)
        )
    check(error.type == "invalid_request_error" and code_of(error).startswith("evenkeel_"), error.body)
    return error.message


def error_bad_request(s: Settings) -> str:
    """The engine refuses the request; its own answer must arrive."""
    with client(s) as c:
        error = expect(anthropic.BadRequestError, lambda: c.messages.create(**ask(s, extra_body={"temperature": "hot"})))
    check("evenkeel_" not in str(error.body), error.body)
    return error.message


def error_wrong_key(s: Settings) -> str:
    with client(s, api_key="wrong") as c:
        error = expect(anthropic.AuthenticationError, lambda: c.messages.create(**ask(s)))
    check(error.type == "authentication_error" and code_of(error).startswith("evenkeel_"), error.body)
    return error.message


def error_unavailable(s: Settings) -> str:
    """Nothing can answer: a 5xx in the shape that the client knows."""
    with client(s) as c:
        error = expect(anthropic.InternalServerError, lambda: c.messages.create(**ask(s)))
    check(error.status_code in (502, 503, 504, 529) and code_of(error).startswith("evenkeel_"), error.body)
    return f"{error.status_code} {error.message}"


def retry_after(s: Settings) -> str:
    """A 429 with `retry-after: 1` comes first; the client waits and succeeds."""
    began = time.monotonic()
    with client(s, max_retries=3) as c:
        raw = c.messages.with_raw_response.create(**ask(s))
    waited = time.monotonic() - began
    check(raw.parse().content[0].text, "no text")
    check(raw.retries_taken == 1, f"{raw.retries_taken} retries")
    check(0.9 <= waited < 10, f"answered after {waited:.2f} s")
    return f"{waited:.2f} s"


def timeout(s: Settings) -> str:
    """The engine hangs: the client's own limit of 0.5 s must end the call."""
    began = time.monotonic()
    with client(s, timeout=0.5) as c:
        expect_timeout(anthropic.APITimeoutError, lambda: c.messages.create(**ask(s)))
    waited = time.monotonic() - began
    check(waited < 5, f"ended after {waited:.2f} s")
    return f"{waited:.2f} s"


def cancel(s: Settings) -> str:
    """Leaves after the first words of a long answer."""
    with client(s) as c:
        stream = c.messages.create(**ask(s, stream=True, max_tokens=2000))
        deltas = 0
        while deltas < 3:
            deltas += next(stream).type == "content_block_delta"
        stream.close()
    return "left"


def stream_broken(s: Settings) -> str:
    """The engine breaks in mid-answer: the client must see an error after text, never a clean end."""
    kinds = []
    with client(s) as c:
        stream = c.messages.create(**ask(s, stream=True))
        error = expect(anthropic.APIError, lambda: kinds.extend(event.type for event in stream) or kinds)
    check("content_block_delta" in kinds, f"no text before the error {error!r}")
    return f"{len(kinds)} events, then {type(error).__name__}: {error.message}"


SCENARIOS = {
    f.__name__: f
    for f in (
        messages, messages_stream, messages_stream_helper, messages_unicode, messages_long_prompt, messages_tools,
        messages_tools_stream, messages_concurrent, count_tokens, error_unknown_model, error_missing_model,
        error_bad_request, error_wrong_key, error_unavailable, retry_after, timeout, cancel, stream_broken,
    )
}  # fmt: skip

"""What all scenarios share."""

import dataclasses

UNICODE_PROMPT = "Grüße, 東京! Ελλάδα — naïve café; क्षत्रिय 👩‍🚀🚂 \u2028 \u0000 \"quoted\" \\ end"
"""Two- to four-byte characters, a joined emoji, a line separator, a NUL, JSON's own characters."""

LONG_PROMPT = ("question together thousand mountain sentence " * 1500)[: 64 << 10]
"""64 KiB of text."""


@dataclasses.dataclass(frozen=True)
class Settings:
    base_url: str  # without /v1
    api_key: str
    model: str


def check(condition: object, message: object) -> None:
    """Like assert, but also under python -O."""
    if not condition:
        raise AssertionError(message)


def expect_timeout(own: type[BaseException], call) -> None:
    """call must end by a timeout: the client's own, or the balancer's 504, which knows that limit and can be first."""
    try:
        result = call()
    except own:
        return
    except Exception as error:
        if getattr(error, "status_code", None) == 504:
            return
        raise
    raise AssertionError(f"no timeout, but a result: {result!r:.500}")


def expect(kind: type[BaseException], call) -> BaseException:
    """Returns the error of the wanted kind that call must raise."""
    try:
        result = call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but a result: {result!r:.500}")

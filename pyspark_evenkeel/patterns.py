"""What `subscribePattern` may be: regular expressions that mean the same in Java and in Python.

Spark's own Kafka source takes Java's (java.util.regex.Pattern). Ours are Python's, and the two
agree on most expressions, but not on all: `[a-z&&[^b]]` is an intersection in Java and, silently,
an odd union in Python. So what is allowed is listed, and the rest is refused. Topic names are ASCII
without white space, which leaves no difference in `\\d`, `\\w`, `$` or `\\Z`.
"""

import re
from typing import Final

_PUNCTUATION: Final = r"\\[^A-Za-z0-9\s]"
_IN_CLASS: Final = rf"(?:\\[dDwWsS]|{_PUNCTUATION}|&(?!&)|\|(?!\|)|~(?!~)|-(?!-)|[^\]\[\\&|~-])"
_FLAG: Final = "(?i)"
"""Case-insensitive; only at the beginning, where Python allows it."""
_TOKEN: Final = re.compile(
    rf"""
    \\[dDwWsSbBAZ] | \\[1-9](?!\d) | {_PUNCTUATION}             # escapes, references to groups
  | \[\^?{_IN_CLASS}+\]                                         # [a-z] without another [ or &&
  | \((?!\?) | \(\?(?::|=|!|>|<=|<!) | \)                     # groups without a name, lookaround
  | (?:[*+?]|\{{\d{{1,4}}(?:,\d{{0,4}})?\}})[+?]?               # greedy, lazy, possessive
  | [.^$|]
  | [^\\\[\](){{}}*+?.^$|]
    """,
    re.VERBOSE | re.DOTALL,
)


def read(text: str) -> re.Pattern[str]:
    """The expression, which means the same in Java.

    Raises:
        ValueError: if it does not, or might not, or is not valid; the message says where.
    """
    if not text.isascii():
        raise ValueError("names of topics are ASCII, and so must be what they match")
    at = len(_FLAG) if text.startswith(_FLAG) else 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(
                f"what begins with '{text[at : at + 8]}' is read in another way by Java, or not at "
                "all; write it without nested or intersected classes, flags but (?i) at the "
                "beginning, named groups, and escapes but \\d \\w \\s \\b \\A \\Z and punctuation"
            )
        at = token.end()
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression is expected: {error}") from None

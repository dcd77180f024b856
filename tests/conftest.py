"""All tests share one compilation cache, so that each little program is compiled once per machine."""

from fova import runtime

runtime.prepare()

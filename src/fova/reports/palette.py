"""The colours of every picture and page: Okabe and Ito's palette, which colour-blind readers can distinguish.

One colour means one thing wherever a run is shown: a client's own policy, its data, the server's policy. Lines
that differ in colour differ in their dashes, too.
"""

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
VERMILION, PURPLE, SKY = "#D55E00", "#CC79A7", "#56B4E9"
BLACK, GREY = "#000000", "#767676"

NAMES = {
    "blue": BLUE,
    "orange": ORANGE,
    "green": GREEN,
    "vermilion": VERMILION,
    "purple": PURPLE,
    "sky": SKY,
    "grey": GREY,
}

CLIENT, DATA, SERVER = "blue", "orange", "green"
VOTERS = {"local": CLIENT, "behaviour": DATA, "global": SERVER}
VOTER_WORDS = {"local": "its own policy", "behaviour": "its data", "global": "the global policy"}

# For several settings in one chart, in this order: (colour, dashes as lengths of strokes and gaps).
SERIES = (
    ("blue", ()),
    ("vermilion", (7, 3)),
    ("green", (2, 2)),
    ("purple", (7, 2, 2, 2)),
    ("orange", (10, 4)),
    ("sky", (4, 2)),
)


def css() -> str:
    """One class per colour; what is drawn takes it from `var(--colour)`."""
    return "\n".join(f".{name} {{ --colour: {value}; }}" for name, value in NAMES.items())

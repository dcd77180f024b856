"""How long a test waits for something that happens at once on an idle machine.

No test may depend on how busy the machine is, so this is far more than any machine needs. It only makes a test end
that would wait for ever.
"""

PATIENCE = 1800.0  # seconds

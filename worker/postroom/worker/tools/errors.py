"""What can go wrong in a tool; each becomes an outcome that the model reads, and none ends a run.

ToolFailed                    raised by a tool's author
├── InvalidArguments          the arguments do not fit the tool's schema
└── InvalidOutput             the tool gave back something that cannot be stored
"""


class ToolFailed(Exception):
    """What was asked could not be done; a `transient` failure may succeed when tried again."""

    def __init__(self, message: str, code: str = "tool_failed", transient: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.transient = transient


class InvalidArguments(ToolFailed):
    """The arguments do not fit the tool's schema."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "invalid_arguments")


class InvalidOutput(ToolFailed):
    """The tool gave back something that cannot be stored."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "invalid_output")

"""What became of a scenario."""

import dataclasses
import json
import traceback


@dataclasses.dataclass(frozen=True)
class Error:
    """An exception that ended a scenario."""

    #: Full names of its class and that class's bases, most derived first.
    types: list
    message: str
    trace: str

    @classmethod
    def of(cls, error):
        types = [f"{t.__module__}.{t.__qualname__}" for t in type(error).__mro__]
        trace = "".join(traceback.format_exception(error))
        return cls(types, str(error), trace)

    @property
    def type(self):
        return self.types[0]

    @property
    def line(self):
        """First line of the message, where what went wrong is said."""
        return self.message.splitlines()[0] if self.message else ""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A scenario's result, or the exception that ended it."""

    result: object = None
    error: Error = None
    #: What the process wrote to its standard output and standard error.
    output: str = ""
    #: Whether the device was the simulated one.
    simulated: bool = False
    #: Differences between what the device holds and what the allocator knows of.
    imbalances: tuple = ()

    @property
    def value(self):
        """The result; fails the test when there is none."""
        assert self.error is None, f"{self.error.trace}\n{self.output}"
        return self.result

    def to_json(self):
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text):
        fields = json.loads(text)
        if fields["error"] is not None:
            fields["error"] = Error(**fields["error"])
        return cls(**fields)

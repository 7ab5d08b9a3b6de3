"""What a contract is: frozen data, checked where it enters, with ids that are safe in keys."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from postroom.mailbox import keys
from postroom.mailbox.errors import InvalidInput


def _id(what: str) -> AfterValidator:
    return AfterValidator(lambda value: keys.check_id(value, what))


def _name(what: str) -> AfterValidator:
    return AfterValidator(lambda value: keys.check_name(value, what))


def _token(what: str) -> AfterValidator:
    return AfterValidator(lambda value: keys.check_token(value, what))


def web_address(what: str, instead: str) -> AfterValidator:
    """An http or https URL without a password: that would lie in Redis in plain text; `instead` says what to do."""

    def check(value: str) -> str:
        try:
            parts = urlsplit(value)
            well = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and not parts.fragment
        except ValueError:
            well = False
        if not well or len(value) > MAX_URL or any(char <= " " or char == "\x7f" for char in value):
            raise InvalidInput(f"{what} {value[:64]!r} must be an http or https URL of at most {MAX_URL} characters")
        if parts.username is not None:
            raise InvalidInput(f"{what}: leave user and password out of the URL; {instead}")
        return value

    return AfterValidator(check)


MAX_URL = 2048
# Milliseconds since 1970: the year 2286, and still digits when Lua writes it.
MAX_TIME = 10**13
ThreadId = Annotated[str, _id("thread id")]
RunId = Annotated[str, _token("run id")]
CallId = Annotated[str, _id("call id")]
MailId = Annotated[str, _id("mail id")]
FreeId = Annotated[str, _id("id")]
DecisionId = Annotated[str, _id("decision id")]
AgentId = Annotated[str, _name("agent")]
Webhook = Annotated[str, web_address("webhook", "verify the signature instead")]
QueueName = Annotated[str, _name("queue")]
ToolName = Annotated[str, _name("tool")]
Milliseconds = Annotated[int, Field(ge=0, le=MAX_TIME)]
Metadata = dict[str, JsonValue]
Model = TypeVar("Model", bound=BaseModel)


class Contract(BaseModel):
    """Base of all: immutable, and an unknown field is a mistake worth hearing about."""

    # Built when first used: a service that imports the client pays for the few it needs, not for all of them.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def as_dict(self) -> dict[str, Any]:
        """Plain data without what is unset, ready for the codec."""
        return self.model_dump(mode="json", exclude_none=True)


def parse(model: type[Model], data: Mapping[str, Any]) -> Model:
    """A contract from untrusted data; the first mistake is told in one line."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise invalid(model.__name__, error) from None


def invalid(what: str, error: ValidationError) -> InvalidInput:
    """Pydantic's findings as one line."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    others = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return InvalidInput(f"{what}{'.' + where if where else ''}: {first['msg']}{others}")

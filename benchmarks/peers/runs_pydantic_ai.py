"""pydantic-ai: nothing is kept."""

from contextlib import asynccontextmanager

import turns
import uvloop
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel


async def answer(messages, info):
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(turns.ANSWER)])
    return ModelResponse(parts=[TextPart("Let me see."), ToolCallPart("add", {"a": 2, "b": 3}, turns.CALL)])


async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@asynccontextmanager
async def opened(keep, url, folder, lanes):
    agent = Agent(FunctionModel(answer), instructions=turns.ADVICE, tools=[add])

    async def one(number):
        return (await agent.run(turns.QUESTION)).output

    yield turns.in_lanes(one, lanes)


if __name__ == "__main__":
    turns.main(opened, uvloop.run)

"""openai-agents: its sessions keep what was said, and not where a run stands."""

from contextlib import AsyncExitStack, asynccontextmanager

import turns
import uvloop
from agents import Agent, RunConfig, Runner, SQLiteSession, Usage, function_tool
from agents.items import ModelResponse
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


@function_tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def said(words):
    text = ResponseOutputText(text=words, type="output_text", annotations=[])
    return ResponseOutputMessage(id="said", type="message", role="assistant", status="completed", content=[text])


class Fake(Model):
    async def get_response(self, system_instructions, input, *rest, **more):  # noqa: A002 - theirs
        if isinstance(input, list) and input[-1].get("type") == "function_call_output":
            output = [said(turns.ANSWER)]
        else:
            asked = ResponseFunctionToolCall(
                name="add", arguments='{"a": 2, "b": 3}', call_id=turns.CALL, type="function_call"
            )
            output = [said("Let me see."), asked]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *rest, **more):
        raise NotImplementedError


@asynccontextmanager
async def opened(keep, url, folder, lanes):
    agent = Agent(name="clerk", instructions=turns.ADVICE, model=Fake(), tools=[add])
    config = RunConfig(tracing_disabled=True)
    async with AsyncExitStack() as stack:
        if keep == "redis":
            import redis.asyncio
            from agents.extensions.memory import RedisSession

            client = await stack.enter_async_context(redis.asyncio.Redis.from_url(url))

        def session(name):
            if keep == "redis":
                return RedisSession(name, redis_client=client)
            return SQLiteSession(name, folder / "runs.db") if keep == "sqlite" else None

        async def one(number):
            kept = session(str(number))
            try:
                return (await Runner.run(agent, turns.QUESTION, run_config=config, session=kept)).final_output
            finally:
                if keep == "sqlite":
                    kept.close()

        yield turns.in_lanes(one, lanes)


if __name__ == "__main__":
    turns.main(opened, uvloop.run)

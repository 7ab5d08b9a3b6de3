"""LangChain's create_agent on LangGraph: a checkpoint after every step, written before the next one begins."""

from contextlib import asynccontextmanager

import turns
import uvloop
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


class Fake(BaseChatModel):
    @property
    def _llm_type(self):
        return "fake"

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **options):
        asked = {"name": "add", "args": {"a": 2, "b": 3}, "id": turns.CALL}
        said = AIMessage(turns.ANSWER) if messages[-1].type == "tool" else AIMessage("Let me see.", tool_calls=[asked])
        return ChatResult(generations=[ChatGeneration(message=said)])

    async def _agenerate(self, messages, stop=None, run_manager=None, **options):
        return self._generate(messages)


@asynccontextmanager
async def saver(keep, url, folder):
    if keep == "memory":
        yield None
    elif keep == "redis":
        from langgraph.checkpoint.redis.aio import AsyncRedisSaver

        async with AsyncRedisSaver.from_conn_string(url) as found:
            await found.asetup()
            yield found
    else:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(str(folder / "runs.db")) as found:
            await found.setup()
            if keep == "sqlite-lazy":
                await found.conn.execute("PRAGMA synchronous=NORMAL")
            yield found


@asynccontextmanager
async def opened(keep, url, folder, lanes):
    async with saver(keep, url, folder) as checkpointer:
        agent = create_agent(Fake(), [add], system_prompt=turns.ADVICE, checkpointer=checkpointer)
        how = {} if checkpointer is None else {"durability": "sync"}

        async def one(number):
            config = {"configurable": {"thread_id": str(number)}}
            asked = {"messages": [{"role": "user", "content": turns.QUESTION}]}
            done = await agent.ainvoke(asked, config, **how)
            return done["messages"][-1].content

        yield turns.in_lanes(one, lanes)


if __name__ == "__main__":
    turns.main(opened, uvloop.run)

"""An agent of LangChain that computes in a session for each thread."""

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool

from belljar.langchain import PythonTool


@tool
def exchange_rate(currency: str) -> float:
    """Returns the price of one unit of a currency in euros."""
    return {"USD": 0.8, "GBP": 1.25}[currency]


def answer(question: str, model: BaseChatModel | str, table: bytes, thread: str) -> str:
    with PythonTool(tools=[exchange_rate], limits={"timeout": 10, "memory": "512MB"}) as run_python:
        run_python.session(thread).sync.files.write("orders.csv", table)
        agent = create_agent(model, [run_python], system_prompt="The data is in orders.csv.")
        result = agent.invoke(
            {"messages": [{"role": "user", "content": question}]}, {"configurable": {"thread_id": thread}}
        )
        return str(result["messages"][-1].text)


if __name__ == "__main__":
    orders = b"item,price\napple,1.5\npear,2.25\n"
    print(answer("What do all orders cost in dollars?", "anthropic:claude-sonnet-5-5", orders, "1"))

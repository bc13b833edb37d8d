"""An agent of deepagents that works with shell commands and files in a native kernel."""

from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models import BaseChatModel

from belljar.deepagents import BelljarSandbox


def answer(question: str, model: BaseChatModel | str, **options: Any) -> str:
    with BelljarSandbox(**options) as sandbox:
        sandbox.upload_files([("/session/orders.csv", b"item,price\napple,1.5\npear,2.25\n")])
        agent = create_deep_agent(model, backend=sandbox.backend(), system_prompt=sandbox.instructions())
        result = agent.invoke({"messages": [{"role": "user", "content": question}]})
        return str(result["messages"][-1].text)


if __name__ == "__main__":
    print(answer("What do all orders in /session/orders.csv cost?", "anthropic:claude-sonnet-5-5"))

"""An agent of LangChain that computes in a session."""

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, tool

from belljar import Run, Sandbox, Session


def python_tool(session: Session) -> BaseTool:
    """Returns a tool that runs code in a session."""

    @tool
    def run_python(code: str) -> str:
        """Runs Python in a session that keeps its variables and files, and returns its output and last value."""
        return report(session.run(code))

    return run_python


def report(run: Run) -> str:
    """Returns the text that the model reads."""
    error = run.error and (run.error.traceback or str(run.error))
    text = "\n".join(part.rstrip() for part in (run.output, run.text, error, run.hint) if part)
    return text[:20_000] or "(no output)"


def answer(question: str, model: BaseChatModel | str, table: bytes) -> str:
    with Sandbox(limits={"timeout": 10, "memory": "512MB"}) as box, box.session() as session:
        session.files.write("orders.csv", table)
        agent = create_agent(model, [python_tool(session)], system_prompt="The data is in orders.csv.")
        result = agent.invoke({"messages": [{"role": "user", "content": question}]})
        return str(result["messages"][-1].text)


if __name__ == "__main__":
    orders = b"item,price\napple,1.5\npear,2.25\n"
    print(answer("What do all orders cost?", "anthropic:claude-sonnet-5-5", orders))

"""A code agent of smolagents whose code runs in Belljar."""

import functools
from typing import Any

from smolagents import CodeAgent, InferenceClientModel, Model, Tool, tool
from smolagents.local_python_executor import CodeOutput, PythonExecutor

import belljar


class FinalAnswer(Exception):
    """Ends the code that called `final_answer`."""


class BelljarExecutor(PythonExecutor):
    """Runs an agent's code in a session of Belljar. The agent's tools run in this process."""

    def __init__(self, **options: Any) -> None:
        """Creates an executor. The options are those of `belljar.Sandbox`."""
        self.options = options
        self.session: belljar.Session | None = None
        self.variables: dict[str, Any] = {}
        self.answers: list[Any] = []

    def send_variables(self, variables: dict[str, Any]) -> None:
        self.variables.update(variables)

    def send_tools(self, tools: dict[str, Tool]) -> None:
        box = belljar.Sandbox(tools=[self.host_function(name, each) for name, each in tools.items()], **self.options)
        # The variables of an earlier task stay.
        self.session = box.session() if self.session is None else box.load(self.session.dump())

    def host_function(self, name: str, agent_tool: Tool) -> belljar.Tool:
        @functools.wraps(getattr(agent_tool, "forward", agent_tool))
        def call(*args: Any, **kwargs: Any) -> Any:
            result = agent_tool(*args, **kwargs)
            if name == "final_answer":
                self.answers.append(result)
                raise FinalAnswer
            return result

        return belljar.Tool(call, name=name, description=agent_tool.description, blocking=True)

    def __call__(self, code_action: str) -> CodeOutput:
        assert self.session is not None, "the agent sends its tools before its code"
        variables, self.variables = self.variables, {}
        run = self.session.run(code_action, globals=variables)
        if self.answers:
            return CodeOutput(output=self.answers.pop(), logs=run.output, is_final_answer=True)
        if not run.ok:
            raise RuntimeError(f"{run.output}{run.error and (run.error.traceback or run.error)}")
        return CodeOutput(output=run.text, logs=run.output, is_final_answer=False)

    def cleanup(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None


@tool
def weather(city: str) -> dict[str, float]:
    """Returns today's temperatures in a city, in degrees Celsius.

    Args:
        city: The name of the city.
    """
    return {"Oslo": {"low": -2.0, "high": 4.5}, "Rome": {"low": 11.0, "high": 21.0}}[city]


def answer(question: str, model: Model) -> Any:
    executor = BelljarExecutor(limits={"timeout": 10, "memory": "512MB"})
    with CodeAgent([weather], model, executor=executor, additional_authorized_imports=["*"]) as agent:
        return agent.run(question)


if __name__ == "__main__":
    print(answer("How much warmer is Rome than Oslo today?", InferenceClientModel()))

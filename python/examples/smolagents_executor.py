"""A code agent of smolagents whose code runs in Belljar."""

from typing import Any

from smolagents import CodeAgent, InferenceClientModel, Model, tool

from belljar.smolagents import BelljarExecutor


@tool
def weather(city: str) -> dict[str, float]:
    """Returns today's temperatures in a city, in degrees Celsius.

    Args:
        city: The name of the city.
    """
    return {"Oslo": {"low": -2.0, "high": 4.5}, "Rome": {"low": 11.0, "high": 21.0}}[city]


def answer(question: str, model: Model) -> Any:
    executor = BelljarExecutor(limits={"timeout": 10, "memory": "512MB"})
    callbacks = [executor.attach_images]  # For models that see images.
    with CodeAgent(
        [weather], model, executor=executor, additional_authorized_imports=["*"], step_callbacks=callbacks
    ) as agent:
        return agent.run(question)


if __name__ == "__main__":
    print(answer("How much warmer is Rome than Oslo today?", InferenceClientModel()))

"""An analysis that was written for E2B: only the import has changed."""

from belljar.code_interpreter import Execution, Sandbox  # was: from e2b_code_interpreter import Execution, Sandbox


def show(execution: Execution) -> str:
    """Returns what a model reads: the output, the value, or the error."""
    if execution.error:
        return execution.error.traceback
    parts = [*execution.logs.stdout, *execution.logs.stderr, execution.text]
    return "\n".join(part.rstrip() for part in parts if part)


def analyse(orders: bytes) -> tuple[str, str, str]:
    with Sandbox.create(timeout=60, envs={"CURRENCY": "EUR"}, metadata={"user": "42"}) as sandbox:
        sandbox.files.write("/home/user/orders.csv", orders)
        total = sandbox.run_code(
            """
import csv, os
with open("/home/user/orders.csv") as file:
    rows = list(csv.DictReader(file))
total = sum(float(row["price"]) for row in rows)
print(len(rows), "orders")
f"{total} {os.environ['CURRENCY']}"
""",
            on_stdout=lambda message: print(message.line, end=""),
        )
        # Variables and files stay until the sandbox ends.
        sandbox.run_code("open('report.txt', 'w').write(f'mean: {total / len(rows)}\\n')")
        report = sandbox.files.read("report.txt")
        error = sandbox.run_code("total / nothing")
        return show(total), report, show(error)


if __name__ == "__main__":
    print(*analyse(b"item,price\napple,1.5\npear,2.25\n"), sep="\n")

"""Runs a notebook with nbclient on the kernel `belljar`, and looks at its outputs."""

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

CELLS = [
    "x = 6\nprint('six')",
    "x * 7",
    "import sys; print('seen', file=sys.stderr)\ndisplay({'text/html': '<b>bold</b>', 'text/plain': 'bold'}, raw=True)",
    "handle = display('0 %', display_id=True)",
    "handle.update('100 %')",
    "await __import__('asyncio').sleep(0)\n%who_ls int",
]

notebook = new_notebook(cells=[new_markdown_cell("# Title"), *map(new_code_cell, CELLS)])
# On a busy machine a line may arrive in two messages.
NotebookClient(notebook, kernel_name="belljar", timeout=180, coalesce_streams=True).execute()
nbformat.validate(notebook)
cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
assert [cell.execution_count for cell in cells] == list(range(1, len(CELLS) + 1))
assert cells[0].outputs == [{"output_type": "stream", "name": "stdout", "text": "six\n"}], cells[0].outputs
assert cells[1].outputs[0].data == {"text/plain": "42"} and cells[1].outputs[0].execution_count == 2, cells[1].outputs
assert cells[2].outputs[0].text == "seen\n" and cells[2].outputs[1].data["text/html"] == "<b>bold</b>", cells[2].outputs
# A display that another cell updates changes where it was displayed.
assert cells[3].outputs[0].data == {"text/plain": "'100 %'"} and cells[4].outputs == [], cells[3:5]
assert cells[5].outputs[0].data == {"text/plain": "['x']"}, cells[5].outputs
assert notebook.metadata.language_info.name == "python" and notebook.metadata.language_info.file_extension == ".py"

failing = new_notebook(cells=[new_code_cell("print('before')"), new_code_cell("1 / 0"), new_code_cell("print('after')")])
try:
    NotebookClient(failing, kernel_name="belljar", timeout=180).execute()
    raise SystemExit("it did not fail")
except CellExecutionError as error:
    assert error.ename == "ZeroDivisionError" and error.evalue == "division by zero", error
assert failing.cells[1].outputs[0].ename == "ZeroDivisionError" and failing.cells[2].outputs == []

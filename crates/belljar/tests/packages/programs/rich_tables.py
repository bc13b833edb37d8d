import io

from rich.console import Console
from rich.table import Table

table = Table("name", "size")
table.add_row("a", "1")
out = io.StringIO()
Console(file=out, width=40).print(table)
assert "name" in out.getvalue() and "│ a" in out.getvalue(), out.getvalue()

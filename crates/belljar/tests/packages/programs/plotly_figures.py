import json

import plotly.graph_objects as go

figure = go.Figure(go.Bar(x=["a", "b"], y=[1, 2]))
assert json.loads(figure.to_json())["data"][0]["type"] == "bar"
assert "<div" in figure.to_html(include_plotlyjs=False)
# A file of the package's data.
assert len(figure.to_html(include_plotlyjs=True)) > 1_000_000

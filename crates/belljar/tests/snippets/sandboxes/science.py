# Numbers, tables and charts. The WebAssembly sandbox takes the wheels of Pyodide's CDN.
# %% 19 numpy
# needs wasm: pyodide-cdn
import numpy as np

a = np.arange(12).reshape(3, 4)
print(a.sum(axis=0), a.mean(), a[:, ::2].tolist())
print(np.linalg.solve([[3, 1], [1, 2]], [9, 8]), np.random.default_rng(0).integers(0, 10, 3))
#> [12 15 18 21] 5.5 [[0, 2], [4, 6], [8, 10]]
#> [2. 3.] [8 6 5]
# %% 20 pandas
# needs wasm: pyodide-cdn
import pandas as pd

df = pd.DataFrame({"city": ["Rome", "Oslo", "Rome", "Oslo"], "year": [2022, 2022, 2023, 2023], "sales": [10, 7, 12, 9]})
print(df.groupby("city")["sales"].sum().to_dict())
print(df.pivot_table(index="year", columns="city", values="sales").loc[2023, "Rome"])
print(df[df.sales > 8].sort_values("sales").reset_index(drop=True).to_csv(index=False))
#> {'Oslo': 16, 'Rome': 22}
#> 12.0
#> city,year,sales
#> Oslo,2023,9
#> Rome,2022,10
#> Rome,2023,12
#>
# %% 21 scipy
# needs wasm: pyodide-cdn
from scipy import integrate, optimize, stats

value, _ = integrate.quad(lambda x: x**2, 0, 3)
root = optimize.brentq(lambda x: x**3 - 2, 0, 2)
print(round(value, 6), round(root, 6), round(stats.norm.cdf(1.96), 3))
#> 9.0 1.259921 0.975
# %% 22 sklearn
# needs wasm: pyodide-cdn
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

X, y = load_iris(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=42, stratify=y)
model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(X_train, y_train)
print(accuracy_score(y_test, model.predict(X_test)) > 0.9, X_train.shape)
#> True (105, 4)
# %% 23 statsmodels
# needs wasm: pyodide-cdn
import numpy as np
import statsmodels.api as sm

x = np.arange(20.0)
results = sm.OLS(3 * x + 1, sm.add_constant(x)).fit()
print(results.params.round(6), round(results.rsquared, 3))
#> [1. 3.] 1.0
# %% 24 sympy
import sympy as sp

x = sp.symbols("x")
print(sp.integrate(sp.sin(x) ** 2, x), sp.solve(x**2 - 5 * x + 6, x))
print(sp.factor(x**3 - 1), sp.diff(sp.exp(x**2), x), sp.limit(sp.sin(x) / x, x, 0))
#> x/2 - sin(x)*cos(x)/2 [2, 3]
#> (x - 1)*(x**2 + x + 1) 2*x*exp(x**2) 1
# %% 25 matplotlib savefig+show
# needs wasm: pyodide-cdn
import os

import matplotlib.pyplot as plt

fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.plot([1, 4, 9, 16], label="squares")
left.legend()
right.bar(["a", "b"], [3, 5])
fig.tight_layout()
fig.savefig("chart.png", dpi=60)
plt.show()
print(os.path.getsize("chart.png") > 1000)
#> True
# %% 26 matplotlib animation
# needs wasm: pyodide-cdn
import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.animation import FuncAnimation, PillowWriter

fig, ax = plt.subplots(figsize=(2, 2))
(line,) = ax.plot([], [])
ax.set(xlim=(0, 3), ylim=(0, 3))


def update(frame):
    line.set_data(range(frame), range(frame))
    return (line,)


FuncAnimation(fig, update, frames=3).save("animation.gif", writer=PillowWriter(fps=5))
print(open("animation.gif", "rb").read(6))
#> b'GIF89a'
# %% 27 seaborn
# needs wasm: pyodide-cdn
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns

data = pd.DataFrame({"x": [1, 2, 3, 1, 2, 3], "y": [1, 4, 9, 2, 3, 5], "kind": list("aaabbb")})
axes = sns.lineplot(data=data, x="x", y="y", hue="kind")
axes.set_title("Growth")
plt.savefig("growth.png")
print(axes.get_title(), len(axes.get_legend().get_texts()))
#> Growth 2
# %% 28 plotly
# needs wasm: pyodide-cdn
import plotly.express as px

fig = px.bar(x=["a", "b", "c"], y=[1, 3, 2], title="Counts")
fig.write_html("figure.html", include_plotlyjs="cdn")
print(fig.data[0].type, fig.layout.title.text, "Counts" in open("figure.html").read())
#> bar Counts True
# %% 64 PIL
# needs wasm: pyodide-cdn
from PIL import Image, ImageDraw, ImageFilter

image = Image.new("RGB", (64, 32), "white")
ImageDraw.Draw(image).rectangle([8, 8, 24, 24], fill="red")
image.filter(ImageFilter.GaussianBlur(1)).resize((32, 16)).save("small.png")
reopened = Image.open("small.png")
print(reopened.size, reopened.format, image.getpixel((10, 10)))
#> (32, 16) PNG (255, 0, 0)
# %% 73 networkx
# needs wasm: pyodide-cdn
import networkx as nx

graph = nx.Graph([("a", "b", {"weight": 1}), ("b", "c", {"weight": 2}), ("a", "c", {"weight": 5})])
print(nx.shortest_path(graph, "a", "c", weight="weight"), nx.is_connected(graph))
ranks = nx.pagerank(graph)
print(round(sum(ranks.values()), 6), sorted(nx.degree_centrality(graph).items())[0])
#> ['a', 'b', 'c'] True
#> 1.0 ('a', 1.0)
# %% 84 torch
# needs native: large-downloads
import torch

print(torch.tensor([1.0, 2.0]).mean().item())
#wasm! torch
#native! torch cannot be installed
# %% 85 tensorflow
# needs native: large-downloads
import tensorflow as tf

print(tf.reduce_sum(tf.constant([1.0, 2.0])).numpy())
#wasm! tensorflow
#native> 3.0
# %% 86 polars
import polars as pl

df = pl.DataFrame({"name": ["a", "b", "a"], "value": [1, 2, 3]})
print(df.group_by("name").agg(pl.col("value").sum()).sort("name").to_dicts())
#wasm! polars
#native> [{'name': 'a', 'value': 4}, {'name': 'b', 'value': 2}]
# %% 87 duckdb
# needs wasm: pyodide-cdn
import duckdb

print(duckdb.sql("SELECT count(*) AS n, sum(i) AS total FROM range(10) AS t(i)").fetchall())
#> [(10, 45)]
# %% 88 pyarrow
# needs wasm: pyodide-cdn
import pyarrow as pa
import pyarrow.parquet as pq

table = pa.table({"n": [1, 2, 3], "s": ["x", "y", None]})
pq.write_table(table, "table.parquet")
print(pq.read_table("table.parquet").to_pydict())
#> {'n': [1, 2, 3], 's': ['x', 'y', None]}
# %% 89 spacy
import spacy

nlp = spacy.blank("en")
print([token.text for token in nlp("Dr. Smith can't come.")])
#wasm! spacy
#native> ['Dr.', 'Smith', 'ca', "n't", 'come', '.']
# %% 90 opencv
# needs wasm: pyodide-cdn
import cv2
import numpy as np

image = np.zeros((40, 60, 3), np.uint8)
cv2.circle(image, (30, 20), 10, (255, 255, 255), -1)
contours, _ = cv2.findContours(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
print(len(contours), cv2.resize(image, (30, 20)).shape)
#> 1 (20, 30, 3)
# %% Missing values and joins in pandas
# needs wasm: pyodide-cdn
import numpy as np
import pandas as pd

left = pd.DataFrame({"key": ["a", "b", "c"], "value": [1.0, np.nan, 3.0]})
right = pd.DataFrame({"key": ["a", "c", "d"], "label": ["x", "y", "z"]})
merged = left.merge(right, on="key", how="outer", indicator=True)
print(merged["_merge"].astype(str).tolist(), left["value"].fillna(left["value"].mean()).tolist())
print(pd.to_datetime(pd.Series(["2024-01-31", "2024-02-29"])).dt.day_name().tolist())
#> ['both', 'left_only', 'both', 'right_only'] [1.0, 2.0, 3.0]
#> ['Wednesday', 'Thursday']
# %% A time series is resampled
# needs wasm: pyodide-cdn
import pandas as pd

index = pd.date_range("2024-01-01", periods=60, freq="D")
series = pd.Series(range(60), index=index)
print(series.resample("MS").sum().tolist(), series.rolling(7).mean().iloc[-1])
#> [465, 1305] 56.0
# %% An Excel file is written and read
# needs wasm: pyodide-cdn
import pandas as pd

pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}).to_excel("out.xlsx", index=False)
print(pd.read_excel("out.xlsx").to_dict("list"))
#wasm! openpyxl
#native> {'a': [1, 2], 'b': ['x', 'y']}
# %% The value of the last line is a table
# needs wasm: pyodide-cdn
import pandas as pd

pd.DataFrame({"a": [1, 2]}).describe().loc["mean", "a"] == 1.5
#>

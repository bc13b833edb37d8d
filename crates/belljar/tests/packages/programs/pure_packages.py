import attrs
import bs4
import networkx as nx


@attrs.define
class Point:
    x: int
    y: int = 0


assert Point(1) == Point(1, 0)
assert bs4.BeautifulSoup("<p>a<b>b</b></p>", "html.parser").b.text == "b"
assert nx.shortest_path(nx.path_graph(4), 0, 3) == [0, 1, 2, 3]

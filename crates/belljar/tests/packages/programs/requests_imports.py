import requests
import urllib3


def refused(act):
    try:
        act()
    except Exception as error:
        return str(error)
    raise AssertionError("there is a network")


reason = "this sandbox has no network access"
assert reason in refused(lambda: requests.get("https://example.com/")), refused(lambda: requests.get("https://example.com/"))
assert reason in refused(lambda: requests.Session().post("http://192.0.2.1/", json={}))
assert reason in refused(lambda: urllib3.PoolManager(retries=False).request("GET", "https://example.com/"))
prepared = requests.Request("GET", "https://example.com/", params={"q": "a b"}).prepare()
assert prepared.url == "https://example.com/?q=a+b"

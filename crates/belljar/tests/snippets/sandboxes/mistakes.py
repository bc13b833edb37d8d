# Programs that fail, or that ask for what is not here: the error says what to do.
# %% 92 input()
name = input("What is your name? ")
print("Hello", name)
#wasm! input
#native! input() is not available
# %% 95 %%time / %matplotlib inline
%matplotlib inline
%time total = sum(range(100000))
print(total)
#> …4999950000
# %% 96 infinite loop
# timeout: 2
count = 0
while True:
    count += 1
#! Limit reached: time
# %% 97 big memory
chunks = []
for n in range(64):
    chunks.append(bytearray(1 << 29))
print(len(chunks))
#! emory
# %% 98 SyntaxError
def broken(:
    return 1
#! SyntaxError
# %% 99 wrong import name (pip name)
import sklearn2

print(sklearn2.__version__)
#! sklearn
# %% 100 typo package
import reqeusts

print(reqeusts.get("https://example.com"))
#! requests
# %% An exception in a function
def average(numbers):
    return sum(numbers) / len(numbers)


print(average([1, 2, 3]))
print(average([]))
#> 2.0
#! ZeroDivisionError: division by zero
# %% sys.exit with a message
import sys

print("before")
sys.exit("config file is missing")
#> …
#! SystemExit
# %% sys.exit(0) ends well
import sys


def main():
    print("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
#> done
# %% A missing file
import belljar_no_such_module

print(belljar_no_such_module)
#! No module named 'belljar_no_such_module'
# %% A file of the host is not there
with open("/home/user/data.csv") as file:
    print(file.read())
#! FileNotFoundError
# %% KeyError and its message
config = {"host": "localhost"}
print(config["port"])
#! KeyError: 'port'
# %% A warning is not an error
import warnings

warnings.warn("old API", DeprecationWarning)
print("went on")
#> …went on
# %% assert fails with its message
def withdraw(balance, amount):
    assert amount <= balance, f"only {balance} left"
    return balance - amount


print(withdraw(10, 3))
withdraw(5, 7)
#> 7
#! AssertionError: only 5 left
# %% An indentation error
def f():
print("x")
#! IndentationError
# %% A package for another system
import winreg

print(winreg.HKEY_CURRENT_USER)
#! winreg
# %% The time limit of one call
# timeout: 2
import time

print("waiting", flush=True)
time.sleep(60)
#> waiting
#! Limit reached: time
# %% Output that is long
for n in range(20000):
    print("line", n)
#> line 0
#> …line 19999
